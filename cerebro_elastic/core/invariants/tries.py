"""The invariant of what fails: boundedness, of a unit's tries and of a node's failures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cerebro_elastic.core.events import (
    ConfigEnded,
    NodeSetAside,
    StateRead,
    UnitAssigned,
    UnitCommitted,
    UnitFailed,
)
from cerebro_elastic.core.invariants.accounts import Roll, Trace, plan_of, told
from cerebro_elastic.core.state import State
from cerebro_elastic.core.values import Attempt, Failure, Plan, Status, Unit

_IN_A_ROW = 3


def boundedness(read: StateRead, events: Trace) -> Iterator[str]:
    """A unit that keeps failing is tried a bounded number of times, on different nodes where there
    are any, then its config is FAILED with the error's story. What every node would fail at is not tried
    again; what a node's own trouble makes fail does not count. A node on which units keep failing, or
    that has trouble of its own, is set aside before it gets another."""
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
                yield from units.assigned(attempt)
                yield from rows.assigned(attempt, roll)
            case UnitCommitted(visit=visit):
                rows.end(visit.node)
            case UnitFailed(failure=failure):
                units.failed(failure, roll)
                rows.lengthen(failure, roll)
            case NodeSetAside(node=name):
                rows.answer(name)
            case ConfigEnded(config=name, status=Status.FAILED, reason=reason) if not reason:
                yield f"config {name} failed without a story"


class _Units:
    """The tries of each unit; and the nodes that have been in use ever since the last of them, which whoever
    decides must have known."""

    def __init__(self, start: State, roll: Roll, plan: Plan) -> None:
        self._plan = plan
        self._tries: dict[Unit, list[str]] = {}
        self._vain: set[Unit] = set()
        self._there: dict[Unit, set[tuple[str, int]]] = {}
        for config in start.configs.values():
            for failure in config.failures:
                self.failed(failure, roll)

    def narrow(self, roll: Roll) -> None:
        used = roll.used(self._plan.max_nodes)
        for unit in self._there:
            self._there[unit] &= used

    def failed(self, failure: Failure, roll: Roll) -> None:
        if not failure.kind.of_node:
            self._tries.setdefault(failure.unit, []).append(failure.node)
            self._there[failure.unit] = roll.used(self._plan.max_nodes)
        if failure.kind.of_config:
            self._vain.add(failure.unit)

    def assigned(self, attempt: Attempt) -> Iterator[str]:
        unit, tried = attempt.unit, self._tries.get(attempt.unit, [])
        others = sorted({name for name, _ in self._there.get(unit, ())} - set(tried))
        if attempt.node in tried and others:
            yield f"{told(unit)} was tried again on {attempt.node}, not on {others}"
        if len(tried) >= self._plan.tries:
            yield f"{told(unit)} was assigned after {len(tried)} failures"
        if unit in self._vain:
            yield f"{told(unit)} was assigned although another try was in vain"


@dataclass
class _Row:
    """A node's failures in a row. It is ``due`` to be set aside if the last is its own trouble, if they are
    many, or if it was set aside in this row before. ``open``: it was not aside when it failed last, and was
    not set aside since. (If it was, whoever decides may not know yet that it is forgiven.)"""

    failures: int
    own: bool
    probation: bool
    open: bool

    @property
    def due(self) -> bool:
        return self.open and (self.own or self.probation or self.failures >= _IN_A_ROW)


class _Rows:
    def __init__(self, start: State) -> None:
        judged = start.judged
        self._rows = {
            name: _Row(
                failures=streak.failures,
                own=streak.kind.of_node,
                probation=name in judged,
                open=streak.last > judged.get(name, 0) and name not in start.aside,
            )
            for name, streak in start.streaks.items()
        }

    def lengthen(self, failure: Failure, roll: Roll) -> None:
        if not failure.kind.of_config:
            row = self._rows.setdefault(failure.node, _Row(0, own=False, probation=False, open=True))
            row.failures += 1
            row.own, row.open = failure.kind.of_node, failure.node not in roll.aside

    def answer(self, node: str) -> None:
        if node in self._rows:
            self._rows[node].open, self._rows[node].probation = False, True

    def end(self, node: str) -> None:
        self._rows.pop(node, None)

    def assigned(self, attempt: Attempt, roll: Roll) -> Iterator[str]:
        row, aside = self._rows.get(attempt.node), attempt.node in roll.aside
        if row is None:
            return
        if row.due and not aside:
            yield f"{attempt.node} got {told(attempt.unit)} after {row.failures} failures in a row"
        if row.own and aside:
            yield f"{attempt.node} got {told(attempt.unit)} while it was set aside for its own trouble"
