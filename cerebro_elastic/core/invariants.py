"""The invariants of the design, section 3, each said in words and as a function over a trace.

A trace is a run's events in the store's order. The functions keep their own accounts and share
nothing with the machine, so that a wrong machine cannot hide its mistakes from them. Each yields
a sentence per violation. ``check`` runs them all: after every step in the tests, and over
the recorded history in ``cerebro verify``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cerebro_elastic.core.events import (
    ConfigCreated,
    ConfigEnded,
    Event,
    NodeJoined,
    NodeLeft,
    RunEnded,
    RunOpened,
    UnitAssigned,
    UnitCommitted,
    UnitFailed,
    UnitWithdrawn,
)
from cerebro_elastic.core.values import (
    Attempt,
    CheckpointRef,
    FailureKind,
    HParams,
    Phase,
    Plan,
    Status,
    Unit,
    Visit,
)

Trace = Sequence[Event]


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that a trace breaks, and how."""

    invariant: str
    story: str


def check(
    trace: Trace,
    *,
    readable: Callable[[CheckpointRef], bool] = lambda _ref: True,
    acknowledged: Collection[Visit] = (),
    retrain: Callable[[Visit, HParams], str] | None = None,
) -> list[Violation]:
    """All violations in ``trace``. ``readable`` says whether a checkpoint can be read whole,
    ``acknowledged`` has the visits whose commit was confirmed to a worker, ``retrain`` gives the
    digest of a visit done again."""
    findings = {
        "completeness": completeness(trace),
        "isolation": isolation(trace),
        "exclusive access": exclusive_access(trace),
        "non-preemption": non_preemption(trace),
        "fencing": fencing(trace),
        "durability": durability(trace, readable, acknowledged),
        "purity": purity(trace, retrain),
        "boundedness": boundedness(trace),
    }
    return [Violation(name, story) for name, stories in findings.items() for story in stories]


def completeness(trace: Trace) -> Iterator[str]:
    """In one epoch each live config visits each partition exactly once, and begins no epoch before
    the last one is complete; when the run ends, every config has done all its epochs or was
    ended."""
    plan = _plan(trace)
    done: dict[tuple[str, int], list[tuple[Phase, int]]] = {}
    ended: set[str] = set()
    created: list[str] = []
    for event in trace:
        match event:
            case ConfigCreated(config=config):
                created.append(config.id)
            case ConfigEnded(config=name):
                ended.add(name)
            case UnitCommitted(visit=visit):
                unit = visit.unit
                epoch = done.setdefault((unit.config, unit.epoch), [])
                if (unit.phase, unit.partition) in epoch:
                    yield f"{_name(unit)} was visited twice, at last at revision {event.revision}"
                if visit.k != len(epoch):
                    yield f"{_name(unit)} says it is visit {visit.k} of its epoch, it is {len(epoch)}"
                epoch.append((unit.phase, unit.partition))
                before = done.get((unit.config, unit.epoch - 1), [])
                if plan and unit.epoch > 0 and set(before) != _epoch(plan):
                    yield f"{_name(unit)} was visited before epoch {unit.epoch - 1} was complete"
                if visit.done and plan and set(epoch) == _epoch(plan):
                    ended.add(unit.config)
            case RunEnded():
                for name in created:
                    missing = [
                        e
                        for e in range(plan.epochs if plan else 0)
                        if set(done.get((name, e), [])) != _epoch(plan)
                    ]
                    if missing and name not in ended:
                        yield f"config {name} has not visited all partitions in epochs {missing}"


def isolation(trace: Trace) -> Iterator[str]:
    """At most one attempt of a config can ever commit at a time; its checkpoints form one chain."""
    head: dict[str, CheckpointRef | None] = {}
    open_: dict[int, Attempt] = {}
    for event in trace:
        match event:
            case UnitAssigned(attempt=attempt):
                for other in open_.values():
                    if other.unit.config == attempt.unit.config:
                        yield (
                            f"{_name(attempt.unit)} was assigned to {attempt.node} at revision "
                            f"{event.revision} while {_name(other.unit)} was open on {other.node}"
                        )
                open_[event.revision] = attempt
            case UnitCommitted(visit=visit):
                open_.pop(visit.attempt, None)
                expected = head.get(visit.unit.config)
                if visit.input != expected:
                    yield f"{_name(visit.unit)} began from {visit.input}, the config's head was {expected}"
                head[visit.unit.config] = visit.output
            case UnitFailed(failure=failure):
                open_.pop(failure.attempt, None)
            case UnitWithdrawn(token=token):
                open_.pop(token, None)


def exclusive_access(trace: Trace) -> Iterator[str]:
    """A node runs at most one attempt at a time."""
    busy: dict[str, int] = {}
    for event in trace:
        match event:
            case UnitAssigned(attempt=attempt):
                if attempt.node in busy:
                    yield (
                        f"node {attempt.node} got {_name(attempt.unit)} at revision {event.revision} "
                        f"while attempt {busy[attempt.node]} was open on it"
                    )
                busy[attempt.node] = event.revision
            case UnitCommitted(visit=Visit(node=node, attempt=token)) | UnitWithdrawn(node=node, token=token):
                _forget(busy, node, token)
            case UnitFailed(failure=failure):
                _forget(busy, failure.node, failure.attempt)


def non_preemption(trace: Trace) -> Iterator[str]:
    """A started unit is not stopped for another unit's sake: an assignment is withdrawn only when
    its node's registration is gone or its config has ended."""
    open_: dict[int, Attempt] = {}
    registered: dict[str, int] = {}
    ended: set[str] = set()
    for event in trace:
        _register(registered, event)
        match event:
            case UnitAssigned(attempt=attempt):
                open_[event.revision] = attempt
            case ConfigEnded(config=name):
                ended.add(name)
            case UnitWithdrawn(token=token) if token in open_:
                attempt = open_.pop(token)
                alive = registered.get(attempt.node) == attempt.registration
                if alive and attempt.unit.config not in ended:
                    yield f"{_name(attempt.unit)} was taken from {attempt.node} without need, {event}"


def fencing(trace: Trace) -> Iterator[str]:
    """An attempt whose node lost its registration, or whose assignment was withdrawn, cannot
    commit or fail a unit."""
    open_: dict[int, Attempt] = {}
    registered: dict[str, int] = {}
    for event in trace:
        _register(registered, event)
        match event:
            case UnitAssigned(attempt=attempt):
                open_[event.revision] = replace(attempt, token=event.revision)
            case UnitWithdrawn(token=token):
                open_.pop(token, None)
            case UnitCommitted(visit=Visit(unit=unit, node=node, attempt=token)):
                yield from _fenced(open_.pop(token, None), registered, unit, node, event)
            case UnitFailed(failure=failure):
                failed = open_.pop(failure.attempt, None)
                yield from _fenced(failed, registered, failure.unit, failure.node, event)


def durability(
    trace: Trace, readable: Callable[[CheckpointRef], bool], acknowledged: Collection[Visit] = ()
) -> Iterator[str]:
    """A visit is committed only after its checkpoint is readable by others; an acknowledged visit is
    never lost. (Older checkpoints of a config may have been collected: its last one must be there.)"""
    visits = [event.visit for event in trace if isinstance(event, UnitCommitted)]
    for visit in {visit.unit.config: visit for visit in visits}.values():
        if not readable(visit.output):
            yield f"{_name(visit.unit)} was committed with {visit.output.url}, which cannot be read whole"
    for visit in acknowledged:
        if visit not in visits:
            yield f"{_name(visit.unit)} was acknowledged to {visit.node} and is lost"


def purity(trace: Trace, retrain: Callable[[Visit, HParams], str] | None = None) -> Iterator[str]:
    """A unit's result depends on (input state, config, epoch, partition, run seed) alone: whoever
    does it again on the same parallelism gets the same digest."""
    hparams: dict[str, HParams] = {}
    seen: dict[tuple[str | None, Unit, str, int], str] = {}
    for event in trace:
        match event:
            case ConfigCreated(config=config):
                hparams[config.id] = config.hparams
            case UnitCommitted(visit=visit):
                source = visit.input.digest if visit.input else None
                key = (source, visit.unit, visit.parallelism, visit.world_size)
                if seen.setdefault(key, visit.output.digest) != visit.output.digest:
                    yield f"{_name(visit.unit)} gave two different results from the same input"
                if visit.unit.phase is Phase.EVALUATE and visit.output != visit.input:
                    yield f"{_name(visit.unit)} is an evaluation and changed its config's state"
                if retrain is not None:
                    again = retrain(visit, hparams[visit.unit.config])
                    if again != visit.output.digest:
                        yield f"{_name(visit.unit)} gave {visit.output.digest}, done again {again}"


def boundedness(trace: Trace) -> Iterator[str]:
    """A unit that keeps failing is tried a bounded number of times, on different nodes where there
    are any (known to whoever decides: registered since before the failure), then its config is
    FAILED with the error's story."""
    plan = _plan(trace)
    failed: dict[Unit, list[str]] = {}
    there: dict[Unit, dict[str, int]] = {}
    registered: dict[str, int] = {}
    for event in trace:
        _register(registered, event)
        match event:
            case UnitFailed(failure=failure) if failure.kind is not FailureKind.DISK_FULL:
                nodes = failed.setdefault(failure.unit, [])
                nodes.append(failure.node)
                oldest = sorted(registered.items(), key=lambda item: item[1])
                there[failure.unit] = dict(oldest[: plan.max_nodes if plan else None])
                if plan and len(nodes) > plan.tries:
                    yield f"{_name(failure.unit)} failed {len(nodes)} times, tries: {plan.tries}"
            case UnitAssigned(attempt=attempt) if attempt.unit in failed:
                nodes = failed[attempt.unit]
                still = {n for n, since in there[attempt.unit].items() if registered.get(n) == since}
                others = sorted(still - set(nodes))
                if attempt.node in nodes and others:
                    yield f"{_name(attempt.unit)} was tried again on {attempt.node}, not on {others}"
                if plan and len(nodes) >= plan.tries:
                    yield f"{_name(attempt.unit)} was assigned after {len(nodes)} failures"
            case ConfigEnded(config=name, status=Status.FAILED, reason=reason) if not reason:
                yield f"config {name} failed without a story"


def _plan(trace: Trace) -> Plan | None:
    return next((event.plan for event in trace if isinstance(event, RunOpened)), None)


def _epoch(plan: Plan | None) -> set[tuple[Phase, int]]:
    """All units that make an epoch."""
    if plan is None:
        return set()
    trains = {(Phase.TRAIN, j) for j in range(plan.partitions)}
    return trains | {(Phase.EVALUATE, j) for j in range(plan.evaluations)}


def _register(registered: dict[str, int], event: Event) -> None:
    match event:
        case NodeJoined(node=node):
            registered[node.name] = node.registration
        case NodeLeft(node=name):
            registered.pop(name, None)


def _forget(busy: dict[str, int], node: str, token: int) -> None:
    if busy.get(node) == token:
        del busy[node]


def _fenced(
    attempt: Attempt | None, registered: Mapping[str, int], unit: Unit, node: str, event: Event
) -> Iterator[str]:
    if attempt is None or (attempt.unit, attempt.node) != (unit, node):
        yield f"{_name(unit)} on {node} had no open assignment at revision {event.revision}"
    elif registered.get(node) != attempt.registration:
        yield f"{_name(unit)}: the registration of {node} was gone at revision {event.revision}"


def _name(unit: Unit) -> str:
    what = "partition" if unit.phase is Phase.TRAIN else "evaluation"
    return f"{unit.config} epoch {unit.epoch} {what} {unit.partition}"
