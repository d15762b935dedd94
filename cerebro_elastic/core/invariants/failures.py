"""Do failures end? Boundedness: of a unit's tries, and of a node's failures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from cerebro_elastic.core.invariants.trace import NodeRoster, Stretch, in_words
from cerebro_elastic.core.model.attempts import Attempt, Failure, FailureKind
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import (
    ConfigEnded,
    ConfigResumed,
    NodeJoined,
    NodeQuarantined,
    ProfileDone,
    UnitAssigned,
    UnitCommitted,
    UnitFailed,
)
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State, Streak
from cerebro_elastic.core.model.units import Phase, Strategy, Unit

_IN_A_ROW = 3


def boundedness(stretch: Stretch) -> Iterator[str]:
    """Failures are bounded.

    - A unit that keeps failing is tried a bounded number of times, on different nodes if possible. Then its
      config is FAILED with an explanation. Only a person has it tried again; its tries then count from 0.
    - A unit that would fail on every node is not tried again. A failure by a fault of the node does not
      count.
    - A node on which units keep failing, or that has its own fault, is quarantined before its next unit.
      (After a new registration a lasting fault may be repaired: it counts when it recurs.)
    - A strategy refused by its profile or for lack of memory is not used again on that kind of node.
    """
    start, plan = stretch.start, stretch.plan
    if plan is None:
        return
    roster = NodeRoster(start)
    units, streaks = _UnitTries(start, roster, plan), _FailureStreaks(start)
    over = {name for name, config in start.configs.items() if config.status is Status.FAILED}
    for event in stretch.events:
        roster.read(event)
        units.narrow(roster)
        match event:
            case UnitAssigned(attempt=attempt):
                yield from units.assigned(attempt, roster)
                yield from streaks.assigned(attempt, roster)
            case UnitCommitted(visit=visit):
                for name in visit.nodes:
                    streaks.committed(name, visit.attempt)
            case ProfileDone(profile=profile) if profile.refusal is not None:
                units.refused.add((profile.unit.config, profile.strategy, profile.hardware))
            case UnitFailed(failure=failure):
                units.failed(failure, roster)
                streaks.add(failure, roster)
            case NodeJoined(node=node):
                streaks.joined(node.name)
            case NodeQuarantined(node=name, failure=token):
                streaks.quarantined(name, token)
            case ConfigEnded(config=name, status=Status.FAILED, reason=reason):
                over.add(name)
                if not reason:
                    yield f"config {name} failed without a reason"
            case ConfigResumed(config=name) if name in over:
                over.discard(name)
                units.forget(name)
                if not (event.by_hand or event.extension):
                    yield f"config {name} had failed, and no person has had it tried again"


class _UnitTries:
    """The tries of each unit, and the nodes that the controller must have known: those in use ever since the
    last try."""

    def __init__(self, start: State, roster: NodeRoster, plan: Plan) -> None:
        self._plan = plan
        self._tries: dict[_Try, list[str]] = {}
        self._in_vain: set[_Try] = set()
        self._repeated_errors = _RepeatedErrors()
        self._in_use_since: dict[_Try, set[tuple[str, int]]] = {}
        self.refused = {
            (name, known.strategy, known.hardware)
            for name, estimates in start.profiles.items()
            for known in estimates
            if known.refusal is not None
        }
        for config in start.configs.values():
            for failure in config.failures:
                if failure.attempt > config.retried:
                    self.failed(failure, roster)

    def forget(self, config: str) -> None:
        """The config is tried again: the tries of all its units count from 0."""
        for subject in [subject for subject in self._tries if subject[0].config == config]:
            del self._tries[subject], self._in_use_since[subject]
        self._in_vain = {subject for subject in self._in_vain if subject[0].config != config}
        self._repeated_errors.forget(config)
        self.refused = {refusal for refusal in self.refused if refusal[0] != config}

    def narrow(self, roster: NodeRoster) -> None:
        used = roster.used(self._plan.max_nodes)
        for subject in self._in_use_since:
            self._in_use_since[subject] &= used

    def failed(self, failure: Failure, roster: NodeRoster) -> None:
        if len(self._plan.strategies) > 1 and failure.kind is FailureKind.OUT_OF_MEMORY:
            self.refused.add((failure.unit.config, failure.strategy, failure.hardware))
        elif not failure.kind.of_node:
            subject = _subject(failure)
            self._tries.setdefault(subject, []).append(failure.node)
            self._in_use_since[subject] = roster.used(self._plan.max_nodes)
        if failure.kind.of_config or (
            failure.unit.phase is not Phase.PROFILE and self._repeated_errors.repeats(failure)
        ):
            self._in_vain.add(_subject(failure))

    def assigned(self, attempt: Attempt, roster: NodeRoster) -> Iterator[str]:
        unit, strategy, subject = attempt.unit, attempt.strategy, _subject(attempt)
        tried = self._tries.get(subject, [])
        present = {
            name for name, _ in self._in_use_since.get(subject, ()) if _can_train(roster, name, attempt)
        }
        untried, tried_again = sorted(present - set(tried)), sorted({*attempt.nodes} & {*tried})
        if tried_again and len(untried) >= strategy.nodes:
            yield f"{in_words(unit)} was tried again on {tried_again}, not on {untried}"
        if (unit.config, strategy, attempt.hardware) in self.refused:
            yield f"{in_words(unit)} was assigned by {strategy}, which was refused on {attempt.hardware}"
        if len(tried) >= self._plan.tries:
            yield f"{in_words(unit)} was assigned after {len(tried)} failures"
        if subject in self._in_vain:
            yield f"{in_words(unit)} was assigned although another try was in vain"


def _can_train(roster: NodeRoster, name: str, attempt: Attempt) -> bool:
    """Whether the node could take part in such an attempt: the nodes of a gang have the same hardware and
    number of ranks."""
    kind = hardware, ranks = roster.kinds[name]
    if attempt.strategy.nodes > 1:
        return kind == roster.kinds.get(attempt.node)
    return hardware == attempt.hardware and ranks >= attempt.strategy.ranks


_Try: TypeAlias = tuple[Unit, Strategy | None, str]


def _subject(of: Attempt | Failure) -> _Try:
    """The subject of a budget of tries: a unit, with any strategy on any node; or the profile of one strategy
    on one kind of node."""
    return (of.unit, of.strategy, of.hardware) if of.unit.phase is Phase.PROFILE else (of.unit, None, "")


class _RepeatedErrors:
    """The nodes on which a unit failed with the same error."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[Unit, str], set[str]] = {}

    def repeats(self, failure: Failure) -> bool:
        """Add the failure; returns whether another node had the same one."""
        if not failure.place:
            return False
        nodes = self._nodes.setdefault((failure.unit, failure.place), set())
        nodes.add(failure.node)
        return len(nodes) > 1

    def forget(self, config: str) -> None:
        self._nodes = {key: nodes for key, nodes in self._nodes.items() if key[0].config != config}

    def repeated(self, failure: Failure) -> bool:
        return len(self._nodes.get((failure.unit, failure.place), ())) > 1


@dataclass
class _FailureStreak:
    """A node's failures since its last commit, in the order of their tokens. (A node may save one attempt
    behind the next, so events may come in another order.)"""

    failures: list[Failure]
    own: bool
    """The last one is a fault of the node."""
    lasting: bool
    """The last one is a fault that the next unit would meet, too."""
    answered: int
    """The token of the failure for which the node was last quarantined in this streak; 0 for none."""
    open: bool
    """The node was not quarantined at its last failure, nor since. (After a quarantine the controller may not
    know yet that it is over.)"""

    def due(self, repeated_errors: _RepeatedErrors) -> bool:
        """Whether the node must be quarantined before its next unit: its fault lasts, or it failed many
        times with several configs, or it failed again after a quarantine."""
        counting = [failure for failure in self.failures if not repeated_errors.repeated(failure)]
        of_several = self.own or len({failure.unit.config for failure in counting}) > 1
        many = len(counting) >= _IN_A_ROW and of_several
        return self.open and (self.lasting or self.answered > 0 or many)


def _mended(start: State, name: str, streak: Streak) -> int:
    """The token up to which lasting faults may be repaired, since the node registered after them."""
    return start.nodes[name].registration if streak.kind.lasting and name in start.nodes else 0


class _FailureStreaks:
    def __init__(self, start: State) -> None:
        quarantined_for = start.quarantined_for
        failures = [failure for config in start.configs.values() for failure in config.failures]
        self._committed = dict(start.committed)
        self._repeated_errors = _RepeatedErrors()
        for failure in failures:
            self._repeated_errors.repeats(failure)
        self._streaks = {
            name: _FailureStreak(
                failures=[f for f in failures if f.node == name and self._counts(f)],
                own=streak.kind.of_node,
                lasting=streak.kind.lasting,
                answered=quarantined_for.get(name, 0),
                open=streak.last > max(quarantined_for.get(name, 0), _mended(start, name, streak))
                and name not in start.quarantined,
            )
            for name, streak in start.streaks.items()
        }

    def add(self, failure: Failure, roster: NodeRoster) -> None:
        self._repeated_errors.repeats(failure)
        if self._counts(failure):
            streak = self._streaks.setdefault(
                failure.node, _FailureStreak([], own=False, lasting=False, answered=0, open=True)
            )
            if failure.attempt > max((f.attempt for f in streak.failures), default=0):
                streak.own, streak.lasting = failure.kind.of_node, failure.kind.lasting
                streak.open = failure.node not in roster.quarantined
            streak.failures.append(failure)

    def quarantined(self, node: str, failure: int) -> None:
        if node in self._streaks:
            self._streaks[node].open, self._streaks[node].answered = False, failure

    def joined(self, node: str) -> None:
        """The node has registered: a lasting fault may be repaired by now."""
        if (streak := self._streaks.get(node)) is not None and streak.lasting:
            streak.open = False

    def committed(self, node: str, token: int) -> None:
        """The node has committed this attempt: only later failures count."""
        self._committed[node] = max(token, self._committed.get(node, 0))
        streak = self._streaks.get(node)
        if streak is not None:
            streak.failures = [later for later in streak.failures if later.attempt > token]
            streak.answered = streak.answered if streak.answered > token else 0
            if not streak.failures:
                del self._streaks[node]

    def _counts(self, failure: Failure) -> bool:
        return not failure.kind.of_config and failure.attempt > self._committed.get(failure.node, 0)

    def assigned(self, attempt: Attempt, roster: NodeRoster) -> Iterator[str]:
        for name in set(attempt.nodes) & set(self._streaks):
            streak, quarantined = self._streaks[name], name in roster.quarantined
            if streak.due(self._repeated_errors) and not quarantined:
                yield f"{name} got {in_words(attempt.unit)} after {len(streak.failures)} failures in a row"
            if streak.own and quarantined:
                yield f"{name} got {in_words(attempt.unit)} while it was quarantined for its own fault"
