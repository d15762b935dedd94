"""The invariant of what fails: boundedness, of a unit's tries and of a node's failures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from cerebro_elastic.core.invariants.trace import Roll, Trace, plan_of, told
from cerebro_elastic.core.model.attempts import Attempt, Failure, FailureKind
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import (
    ConfigEnded,
    NodeQuarantined,
    ProfileDone,
    StateRead,
    UnitAssigned,
    UnitCommitted,
    UnitFailed,
)
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Phase, Strategy, Unit

_IN_A_ROW = 3


def boundedness(read: StateRead, events: Trace) -> Iterator[str]:
    """A unit that keeps failing is tried a bounded number of times, on different nodes where there
    are any, then its config is FAILED with the error's story. What every node would fail at is not tried
    again; what a node's own trouble makes fail does not count. A node on which units keep failing, or
    that has trouble of its own, is set aside before it gets another. A choice that was refused, by its trial
    or for want of memory, is not taken again on this kind of node."""
    start, plan = read.state, plan_of(read.state, events)
    if plan is None:
        return
    roll = Roll(start)
    units, rows = _Units(start, roll, plan), _Rows(start)
    for event in events:
        roll.read(event)
        units.narrow(roll)
        match event:
            case UnitAssigned(attempt=attempt):
                yield from units.assigned(attempt, roll)
                yield from rows.assigned(attempt, roll)
            case UnitCommitted(visit=visit):
                for name in visit.nodes:
                    rows.end(name, visit.attempt)
            case ProfileDone(profile=profile) if profile.refusal is not None:
                units.refused.add((profile.unit.config, profile.strategy, profile.hardware))
            case UnitFailed(failure=failure):
                units.failed(failure, roll)
                rows.lengthen(failure, roll)
            case NodeQuarantined(node=name, failure=token):
                rows.answer(name, token)
            case ConfigEnded(config=name, status=Status.FAILED, reason=reason) if not reason:
                yield f"config {name} failed without a story"


class _Units:
    """The tries of each unit; and the nodes that have been in use ever since the last of them, which whoever
    decides must have known."""

    def __init__(self, start: State, roll: Roll, plan: Plan) -> None:
        self._plan = plan
        self._tries: dict[_Try, list[str]] = {}
        self._vain: set[_Try] = set()
        self._alike = _Alike()
        self._there: dict[_Try, set[tuple[str, int]]] = {}
        self.refused = {
            (name, known.strategy, known.hardware)
            for name, estimates in start.profiles.items()
            for known in estimates
            if known.refusal is not None
        }
        for config in start.configs.values():
            for failure in config.failures:
                self.failed(failure, roll)

    def narrow(self, roll: Roll) -> None:
        used = roll.used(self._plan.max_nodes)
        for what in self._there:
            self._there[what] &= used

    def failed(self, failure: Failure, roll: Roll) -> None:
        if len(self._plan.strategies) > 1 and failure.kind is FailureKind.OUT_OF_MEMORY:
            self.refused.add((failure.unit.config, failure.strategy, failure.hardware))
        elif not failure.kind.of_node:
            what = _what(failure)
            self._tries.setdefault(what, []).append(failure.node)
            self._there[what] = roll.used(self._plan.max_nodes)
        if failure.kind.of_config or (
            failure.unit.phase is not Phase.PROFILE and self._alike.repeats(failure)
        ):
            self._vain.add(_what(failure))

    def assigned(self, attempt: Attempt, roll: Roll) -> Iterator[str]:
        unit, strategy, what = attempt.unit, attempt.strategy, _what(attempt)
        tried = self._tries.get(what, [])
        there = {name for name, _ in self._there.get(what, ()) if roll.hardware[name] == attempt.hardware}
        others, again = sorted(there - set(tried)), sorted({*attempt.nodes} & {*tried})
        if again and len(others) >= strategy.nodes:
            yield f"{told(unit)} was tried again on {again}, not on {others}"
        if (unit.config, strategy, attempt.hardware) in self.refused:
            yield f"{told(unit)} was assigned by {strategy}, which was refused on {attempt.hardware}"
        if len(tried) >= self._plan.tries:
            yield f"{told(unit)} was assigned after {len(tried)} failures"
        if what in self._vain:
            yield f"{told(unit)} was assigned although another try was in vain"


_Try: TypeAlias = tuple[Unit, Strategy | None, str]


def _what(of: Attempt | Failure) -> _Try:
    """What is tried so many times: a unit, by whatever choice and wherever; or the trial of one choice on one
    kind of node."""
    return (of.unit, of.strategy, of.hardware) if of.unit.phase is Phase.PROFILE else (of.unit, None, "")


class _Alike:
    """On which nodes a unit failed at which place."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[Unit, str], set[str]] = {}

    def repeats(self, failure: Failure) -> bool:
        """Note the failure; whether it was the same on another node."""
        if not failure.place:
            return False
        nodes = self._nodes.setdefault((failure.unit, failure.place), set())
        nodes.add(failure.node)
        return len(nodes) > 1

    def repeated(self, failure: Failure) -> bool:
        return len(self._nodes.get((failure.unit, failure.place), ())) > 1


@dataclass
class _Row:
    """A node's failures in a row. It is ``due`` to be set aside if the last is ``lasting`` trouble, if they
    are many and not of one config alone, or if it was set aside in this row before. ``own``: the last is the
    node's own trouble. ``open``: it was not aside when it failed last, and was not set aside since. (If it
    was, whoever decides may not know yet that it is forgiven.) ``answered`` is the failure for which it was.
    A node may save one attempt behind the next: the order is that of their tokens."""

    failures: list[Failure]
    own: bool
    lasting: bool
    answered: int
    open: bool

    def due(self, alike: _Alike) -> bool:
        against = [failure for failure in self.failures if not alike.repeated(failure)]
        of_several = self.own or len({failure.unit.config for failure in against}) > 1
        many = len(against) >= _IN_A_ROW and of_several
        return self.open and (self.lasting or self.answered > 0 or many)


class _Rows:
    def __init__(self, start: State) -> None:
        quarantined_for = start.quarantined_for
        failures = [failure for config in start.configs.values() for failure in config.failures]
        self._committed = dict(start.committed)
        self._alike = _Alike()
        for failure in failures:
            self._alike.repeats(failure)
        self._rows = {
            name: _Row(
                failures=[f for f in failures if f.node == name and self._counts(f)],
                own=streak.kind.of_node,
                lasting=streak.kind.lasting,
                answered=quarantined_for.get(name, 0),
                open=streak.last > quarantined_for.get(name, 0) and name not in start.quarantined,
            )
            for name, streak in start.streaks.items()
        }

    def lengthen(self, failure: Failure, roll: Roll) -> None:
        self._alike.repeats(failure)
        if self._counts(failure):
            row = self._rows.setdefault(
                failure.node, _Row([], own=False, lasting=False, answered=0, open=True)
            )
            if failure.attempt > max((f.attempt for f in row.failures), default=0):
                row.own, row.lasting = failure.kind.of_node, failure.kind.lasting
                row.open = failure.node not in roll.quarantined
            row.failures.append(failure)

    def answer(self, node: str, failure: int) -> None:
        if node in self._rows:
            self._rows[node].open, self._rows[node].answered = False, failure

    def end(self, node: str, token: int) -> None:
        """It has committed this attempt: what counts is what failed later."""
        self._committed[node] = max(token, self._committed.get(node, 0))
        row = self._rows.get(node)
        if row is not None:
            row.failures = [later for later in row.failures if later.attempt > token]
            row.answered = row.answered if row.answered > token else 0
            if not row.failures:
                del self._rows[node]

    def _counts(self, failure: Failure) -> bool:
        return not failure.kind.of_config and failure.attempt > self._committed.get(failure.node, 0)

    def assigned(self, attempt: Attempt, roll: Roll) -> Iterator[str]:
        for name in set(attempt.nodes) & set(self._rows):
            row, quarantined = self._rows[name], name in roll.quarantined
            if row.due(self._alike) and not quarantined:
                yield f"{name} got {told(attempt.unit)} after {len(row.failures)} failures in a row"
            if row.own and quarantined:
                yield f"{name} got {told(attempt.unit)} while it was set aside for its own trouble"
