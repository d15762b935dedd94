"""Is each config's history right? Completeness, isolation, durability, purity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from cerebro_elastic.core.invariants.trace import Stretch, ended_tokens, in_words, visits_in
from cerebro_elastic.core.model.attempts import Attempt, Visit
from cerebro_elastic.core.model.configs import Config, HParams, Status
from cerebro_elastic.core.model.events import (
    ConfigCreated,
    ConfigEnded,
    ConfigMeasured,
    ConfigResumed,
    RunEnded,
    RunExtended,
    UnitAssigned,
    UnitCommitted,
    UnitsReused,
)
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.units import CheckpointRef, PartialUnit, Phase
from cerebro_elastic.system.words import counted


@dataclass
class _Epoch:
    """A config's progress in an epoch."""

    number: int = 0
    """The epoch, from 0."""
    done: list[tuple[Phase, int]] = field(default_factory=list)
    """Its trained and evaluated partitions, in order."""
    visits: int = 0
    partial_unit: PartialUnit | None = None
    """The partition trained in part."""
    last: bool = False
    """The task ends its training with this epoch."""


def completeness(stretch: Stretch) -> Iterator[str]:
    """In one epoch each live config visits each partition exactly once.

    - A config begins no epoch before the previous one is complete.
    - When the run ends, every config has done all its epochs or was ended. The same holds for every config
      that an extension continues.
    - Once a config has visited a part of a partition, it visits nothing else before the rest. Each part
      begins at the batch where the last one ended. All parts together have as many batches as a whole visit.
    - A config with a parent continues from a state of the parent.
    - A config with a fold visits all partitions except the fold's, and evaluates only those of the fold.
    - Members of a config have its hyper-parameters, and each is on another fold or has another seed. With
      each seed it has all folds.
    """
    start, plan = stretch.start, stretch.plan
    if plan is None:
        return
    epochs, known = plan.epochs, list(start.configs.values())
    wholes = {name: _units(plan, config) for name, config in start.configs.items()}
    progress = {name: _began(config) for name, config in start.configs.items()}
    ended = {name for name, config in start.configs.items() if config.status is not Status.LIVE}
    sizes: dict[tuple[str, int], Visit] = {}
    for event in stretch.whole:
        match event:
            case _ if event.afresh:
                for config in start.configs.values():
                    yield from _misplaced(progress[config.id], config, wholes[config.id])
            case ConfigCreated():
                for config in event.configs:
                    yield from _misfit(config, known)
                    known.append(config)
                    progress[config.id], wholes[config.id] = _began(config), _units(plan, config)
                yield from _lacking(plan, event.config.seen_as, known)
            case ConfigEnded(config=name):
                ended.add(name)
            case ConfigResumed(config=name):
                ended.discard(name)
            case UnitCommitted() | UnitsReused():
                for visit in visits_in(event):
                    epoch = progress.setdefault(visit.unit.config, _Epoch())
                    whole = wholes.get(visit.unit.config, set())
                    if (visit.unit.phase, visit.unit.partition) not in whole:
                        yield f"{in_words(visit.unit)} was visited, and is none of the config's units"
                    if visit.unit.epoch == epoch.number + 1 and set(epoch.done) == whole:
                        epoch = progress[visit.unit.config] = _Epoch(visit.unit.epoch)
                    yield from _violations_of_visit(epoch, visit)
                    yield from _wrong_size(sizes, visit)
                    if epoch.last and set(epoch.done) == whole:
                        ended.add(visit.unit.config)
            case RunExtended(extension=extension):
                epochs = extension.epochs
                ended = set(progress).difference(extension.configs)
            case RunEnded():
                for name, epoch in progress.items():
                    complete = epoch.number + (set(epoch.done) == wholes.get(name))
                    if complete < epochs and name not in ended:
                        yield f"config {name} has completed {complete} epochs of {epochs}"


def isolation(stretch: Stretch) -> Iterator[str]:
    """At most one attempt of a config is open at a time. Its checkpoints form one chain, which begins with
    nothing or with the checkpoint of its parent; a person may choose an earlier one of the parent's."""
    start = stretch.start
    written: set[tuple[str, CheckpointRef]] = set()
    head = {name: ref for name, config in start.configs.items() if (ref := _inherited(config))}
    attempts: dict[int, Attempt] = {a.token: a for a in start.underway()}
    for event in stretch.whole:
        for token in ended_tokens(event):
            attempts.pop(token, None)
        match event:
            case _ if event.afresh:
                for config in start.configs.values():
                    if config.head != head.get(config.id):
                        yield f"config {config.id} is at {config.head}, its last visit led elsewhere"
            case ConfigCreated():
                for config in event.configs:
                    if (edge := config.parent) is None:
                        continue
                    chosen = config.by_hand and (edge.config, edge.checkpoint) in written
                    if edge.config and edge.checkpoint != head.get(edge.config) and not chosen:
                        stood = head.get(edge.config)
                        yield f"config {config.id} began with {edge.checkpoint}, its parent was at {stood}"
                    head[config.id] = edge.checkpoint
            case UnitAssigned(attempt=attempt):
                for other in attempts.values():
                    if other.unit.config == attempt.unit.config:
                        yield (
                            f"{in_words(attempt.unit)} was assigned to {attempt.node} at revision "
                            f"{event.revision} while {in_words(other.unit)} was open on {other.node}"
                        )
                attempts[event.revision] = attempt
            case UnitsReused(visits=visits):
                for other in attempts.values():
                    if other.unit.config == event.config:
                        yield (
                            f"{event.config} took over visits of {visits[0].reused or 'no earlier run'} at "
                            f"revision {event.revision} while {in_words(other.unit)} was open on {other.node}"
                        )
        for visit in visits_in(event):
            expected = head.get(visit.unit.config)
            if visit.input != expected:
                yield f"{in_words(visit.unit)} began from {visit.input}, the config's head was {expected}"
            if isinstance(event, UnitsReused) != bool(visit.reused) and event.revision:
                yield f"{in_words(visit.unit)} is said to be of {visit.reused or 'this run'}, which it is not"
            head[visit.unit.config] = visit.output
            written.add((visit.unit.config, visit.output))


def durability(
    parts: Sequence[Stretch],
    readable: Callable[[CheckpointRef], bool],
    acknowledged: Collection[Visit] = (),
) -> Iterator[str]:
    """A visit is committed only after its checkpoint is readable by others, and an acknowledged visit is
    never lost. Older checkpoints may have been deleted, so only a config's last one is checked, or the one
    with which it will begin."""
    heads: dict[str, CheckpointRef] = {}
    visits: list[Visit] = []
    for part in parts:
        created = [each for e in part.events if isinstance(e, ConfigCreated) for each in e.configs]
        configs = [*part.start.configs.values(), *created]
        heads = {config.id: ref for config in configs if (ref := _inherited(config))}
        known = [visit for event in part.whole for visit in visits_in(event)]
        heads |= {visit.unit.config: visit.output for visit in known}
        visits += known
    for name, head in heads.items():
        if not readable(head):
            yield f"the last visit of config {name} was committed with {head.url}, which cannot be read whole"
    for visit in acknowledged:
        if visit not in visits:
            yield f"{in_words(visit.unit)} was acknowledged to {visit.node} and is lost"


def purity(parts: Sequence[Stretch], retrain: Callable[[Visit, HParams], str] | None = None) -> Iterator[str]:
    """A unit's result depends only on (input state, config, epoch, partition, run seed): a repetition with
    the same strategy gives the same digest."""
    hparams: dict[str, HParams] = {}
    seen: dict[tuple[object, ...], str] = {}
    for part in parts:
        hparams |= {name: config.hparams for name, config in part.start.configs.items()}
        for event in part.whole:
            if isinstance(event, ConfigCreated):
                hparams |= {config.id: config.hparams for config in event.configs}
            for visit in visits_in(event):
                yield from _impure(visit, seen)
                if retrain is not None:
                    again = retrain(visit, hparams[visit.unit.config])
                    if again != visit.output.digest:
                        yield f"{in_words(visit.unit)} gave {visit.output.digest}, done again {again}"


def _units(plan: Plan, config: Config) -> set[tuple[Phase, int]]:
    """All units of an epoch of the config, as (phase, partition)."""
    if config.fold is None:
        trains = {(Phase.TRAIN, j) for j in range(plan.partitions)}
        return trains | {(Phase.EVALUATE, j) for j in range(plan.evaluations)}
    fold_of = {j: j * plan.folds // plan.partitions for j in range(plan.partitions)}
    held_out = {j for j, fold in fold_of.items() if fold == config.fold}
    trains = {(Phase.TRAIN, j) for j in fold_of if j not in held_out}
    return trains | {(Phase.EVALUATE, j) for j in held_out if plan.evaluations}


def _misfit(config: Config, others: Iterable[Config]) -> Iterator[str]:
    """A violation if the config does not fit the ``others`` of the same config."""
    for other in others:
        if other.member_of == config.member_of != "" and other.id != config.id:
            if other.hparams != config.hparams:
                yield f"{config.id} and {other.id} are one config, and differ in hyper-parameters"
            if (other.fold, other.repeat) == (config.fold, config.repeat):
                yield f"{config.id} and {other.id} have the same fold and seed"


def _lacking(plan: Plan, name: str, known: Iterable[Config]) -> Iterator[str]:
    """A violation if the config lacks a fold of one of its seeds."""
    folds = Counter(config.repeat for config in known if config.member_of == name)
    for repeat, number in folds.items():
        if number != (plan.folds or 1):
            yield f"config {name} has {number} of {plan.folds} folds of seed {repeat}"


def unseen(stretch: Stretch) -> Iterator[str]:
    """Nobody looks at the test set before the run has ended. Only a state written by a visit of the config is
    measured on it."""
    over = stretch.start.outcome is not None
    written: set[tuple[str, CheckpointRef]] = set()
    for event in stretch.whole:
        written |= {(visit.unit.config, visit.output) for visit in visits_in(event)}
        match event:
            case RunEnded():
                over = True
            case RunExtended():
                over = False
            case ConfigMeasured(measurement=found):
                if not over:
                    yield f"{found.config} was measured on the test set before the run had ended"
                if (found.config, found.checkpoint) not in written:
                    yield (
                        f"{found.config} was measured on the test set with {found.checkpoint.url}, which no "
                        "visit of it has written"
                    )


def _began(config: Config) -> _Epoch:
    """The config's progress when it was created."""
    edge = config.parent
    if edge is None:
        return _Epoch()
    return _Epoch(edge.epoch, [(Phase.TRAIN, j) for j in edge.visited], len(edge.visited), edge.partial_unit)


def _inherited(config: Config) -> CheckpointRef | None:
    """The checkpoint with which the config began, if it is another's."""
    return config.parent.checkpoint if config.parent else None


def _misplaced(epoch: _Epoch, config: Config, whole: set[tuple[Phase, int]]) -> Iterator[str]:
    """A violation if the config's progress is not the result of its visits."""
    if set(epoch.done) == whole:
        epoch = _Epoch(epoch.number + 1)
    done = [(Phase.TRAIN, j) for j in config.visited] + [(Phase.EVALUATE, j) for j in config.evaluated]
    if _Epoch(config.epoch, done, len(done) + config.parts, config.partial_unit, config.done) != epoch:
        yield f"config {config.id} is not where its visits have brought it: {config}, {epoch}"


def _violations_of_visit(epoch: _Epoch, visit: Visit) -> Iterator[str]:
    """The violations of one more visit, which is added to ``epoch``."""
    unit, what = visit.unit, (visit.unit.phase, visit.unit.partition)
    if unit.epoch != epoch.number:
        yield f"{in_words(unit)} was visited when epoch {epoch.number} was not complete, or was already"
        return
    if what in epoch.done:
        yield f"{in_words(unit)} was visited twice, at last by attempt {visit.attempt}"
    if visit.index_in_epoch != epoch.visits:
        yield f"{in_words(unit)} says it is visit {visit.index_in_epoch} of its epoch, it is {epoch.visits}"
    partial_unit = epoch.partial_unit
    if partial_unit is not None and what != (Phase.TRAIN, partial_unit.partition):
        yield f"{in_words(unit)} was visited while partition {partial_unit.partition} was begun"
    done = partial_unit.batches if partial_unit is not None else 0
    if visit.skip != done:
        yield f"{in_words(unit)} continued after {visit.skip} batches, {done} were done"
    epoch.visits += 1
    epoch.partial_unit = None if visit.whole else PartialUnit(unit.partition, visit.skip + visit.batches)
    if unit.phase is Phase.TRAIN:
        epoch.last = visit.done
    if visit.whole:
        epoch.done.append(what)
    elif visit.batches < 1 or unit.phase is not Phase.TRAIN or visit.done:
        trained = counted(visit.batches, "batch", "batches")
        yield f"{in_words(unit)} was left after {trained}, which it cannot have been"


def _wrong_size(first: dict[tuple[str, int], Visit], visit: Visit) -> Iterator[str]:
    """A violation if a partition has more or fewer batches in parts than in a whole visit. (A user's own loop
    may leave a pass early, but is never split.)"""
    if visit.whole and visit.unit.phase is Phase.TRAIN:
        other = first.setdefault((visit.unit.config, visit.unit.partition), visit)
        size, before = visit.skip + visit.batches, other.skip + other.batches
        if size != before and (visit.skip or other.skip):
            yield (
                f"{in_words(visit.unit)} had {size} batches, in epoch {other.unit.epoch} it had {before}: it "
                "has as many batches in parts as in one go"
            )


def _impure(visit: Visit, seen: dict[tuple[object, ...], str]) -> Iterator[str]:
    source = visit.input.digest if visit.input else None
    upto = None if visit.whole else visit.batches
    key = (source, visit.unit, visit.strategy, visit.hardware, visit.skip, upto)
    if seen.setdefault(key, visit.output.digest) != visit.output.digest:
        yield f"{in_words(visit.unit)} gave two different results from the same input"
    if visit.unit.phase is Phase.EVALUATE and visit.output != visit.input:
        yield f"{in_words(visit.unit)} is an evaluation and changed its config's state"
