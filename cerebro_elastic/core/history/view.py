"""What does a run look like to its watchers, or to readers of its record? One view, advanced event by event.

Everything that people and other programs see of a run is made from it: status, pages, reports, results, the
arguments of loggers and callbacks, the journal for optuna, measured times, and the choice of kept
checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Self

from cerebro_elastic.core.history.derived import add_point
from cerebro_elastic.core.history.keys import visits_of
from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.history.progress import advance
from cerebro_elastic.core.history.sentences import Mark, mark_of
from cerebro_elastic.core.model.attempts import Attempt, Visit
from cerebro_elastic.core.model.best import best_end, epoch_ends
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import (
    Event,
    LeaderChanged,
    NodeJoined,
    NodeLeft,
    NodeQuarantined,
    NodeReady,
    NodeReleased,
    ProfileDone,
    RunEnded,
    RunExtended,
    StateRead,
    UnitAssigned,
    UnitCommitted,
    UnitFailed,
    UnitTrained,
    UnitWithdrawn,
)
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Extension, Plan
from cerebro_elastic.core.model.state import Point, State
from cerebro_elastic.core.model.units import CheckpointRef, Phase

if TYPE_CHECKING:
    from cerebro_elastic.recipes import Objective


@dataclass(frozen=True, slots=True)
class ConfigHistory:
    """A config, and the results of its visits: a curve and checkpoints."""

    config: Config
    """The config after its last visit."""
    curve: tuple[Point, ...] = ()
    """A point for each whole training unit and each epoch's end of the config's own."""
    last: tuple[CheckpointRef, ...] = ()
    """The last checkpoint that it wrote and the one before it, oldest first."""

    @classmethod
    def of(cls, config: Config, visits: Iterable[Visit], plan: Plan) -> Self:
        """The history of a config with these visits since its creation."""
        return reduce(lambda history, visit: history.after(visit, plan), visits, cls(born(config)))

    def after(self, visit: Visit, plan: Plan) -> Self:
        """The history after one more visit."""
        config = advance(self.config, visit, plan)
        trained = visit.unit.phase is Phase.TRAIN
        return replace(
            self,
            config=config,
            curve=add_point({config.id: self.curve}, config, visit, plan)[config.id],
            last=(*self.last, visit.output)[-2:] if trained else self.last,
        )

    def kept(self, objective: Objective, *, epochs: bool = False) -> frozenset[str]:
        """The URLs of the checkpoints to keep: the last, the one before it, and the best epoch's, or those of
        all ``epochs``.

        The last one has been written, but not yet read. The visit that takes it as input loads it and checks
        its digest, and only that visit's commit allows the one before it to be deleted: until then the last
        one can be made again from it, should it be damaged (``worker/offline/repair.py``).
        """
        ends = epoch_ends(self.curve)
        place = best_end(ends, objective, of_member=bool(self.config.member_of))
        best = () if place is None else (ends[place],)
        ended = [end.checkpoint for end in (ends if epochs else best)]
        return frozenset(ref.url for ref in (*self.last, *ended) if ref is not None)


@dataclass(slots=True)
class AttemptSpan:
    """An attempt from its assignment to its end."""

    attempt: Attempt
    began: int
    """The number of the event that assigned it."""
    freed: int | None = None
    """The number of the event that freed its nodes, if that was before its end."""
    ended: int | None = None
    """The number of the event that ended it without a visit."""
    why: str = ""
    """A profile's result, or the reason for the loss of the attempt's work; empty for a visit."""
    lost: bool = False


@dataclass(slots=True)
class NodeSpan:
    """A time in which a node was registered, or in quarantine."""

    node: str
    began: int
    """The number of the event that began it."""
    ended: int | None = None
    """The number of the event that ended it; ``None``: it lasts."""
    why: str = ""
    """Of a quarantine: the failures."""
    ordered: float | None = None
    """Of a quarantine that has ended by itself: its ordered seconds."""


_AT_FIRST = (LeaderChanged, NodeJoined, NodeLeft)
"""Events that are out of the ordinary only once a unit was assigned."""


class Spans:
    """The attempts of a run, the times of its nodes, and the events out of the ordinary, noted event by
    event.

    Only visits have times. Everything else has a place in the history: the number of its event, from 0.
    """

    def __init__(self) -> None:
        self.count = 0
        self.attempts: dict[int, AttemptSpan] = {}
        self.presences: list[NodeSpan] = []
        """The times in which nodes were registered."""
        self.quarantines: list[NodeSpan] = []
        """The times in which nodes were in quarantine."""
        self.marks: list[tuple[int, Mark]] = []
        """Events out of the ordinary and their numbers. Nodes that come and go before the first assignment,
        or after the run's end until it is extended, are not among them."""
        self.known: dict[int, float] = {}
        """When the latest visit so far had ended, by the number of the event that reported it."""
        self._assigned = self._over = False
        """Whether a unit was assigned since the run began or was extended, and whether the run has ended."""
        self._ordered: dict[str, float] = {}
        """By node: the seconds of its last quarantine."""

    def note(self, event: Event, before: State, state: State) -> None:
        """Note the next event, which has led from the state ``before`` to ``state``."""
        match event:
            case UnitAssigned(revision=token, attempt=attempt):
                self.attempts[token] = AttemptSpan(attempt, self.count)
                self._assigned = True
            case UnitTrained(token=token) if token in self.attempts:
                self.attempts[token].freed = self.count
            case UnitCommitted(visit=visit):
                self._visits_end(visit.ended)
            case UnitFailed(failure=failure):
                how = f"{failure.kind.value}: {failure.story}"
                self._end(failure.attempt, f"failed, {how}", lost=True)
            case UnitWithdrawn(token=token):
                self._end(token, "withdrawn: what it did was lost", lost=True)
            case ProfileDone(profile=profile):
                result = profile.refusal or f"a unit takes {profile.seconds:.3g} s"
                self._end(profile.attempt, f"{profile.strategy}: {result}", lost=False)
            case NodeJoined() | NodeLeft():
                self._follow(self.presences, dict.fromkeys(state.nodes, ""))
            case NodeQuarantined(node=name, seconds=seconds):
                self._ordered[name] = seconds
                self._follow(self.quarantines, state.quarantined)
            case NodeReleased(node=name):
                self._follow(self.quarantines, state.quarantined, self._ordered.get(name))
            case RunEnded():
                self._over, self._assigned = True, False
            case RunExtended():
                self._over = False
            case StateRead(visits=visits):
                self._follow(self.presences, dict.fromkeys(state.nodes, ""))
                self._follow(self.quarantines, state.quarantined)
                if ends := [visit.ended for visit in visits if not visit.reused]:
                    self._visits_end(max(ends))
        usual = self._over or isinstance(event, NodeReady if self._assigned else (NodeReady, *_AT_FIRST))
        if not usual and (mark := mark_of(event, before)) is not None:
            self.marks.append((self.count, mark))
        self.count += 1

    def _visits_end(self, ended: float) -> None:
        self.known[self.count] = max(next(reversed(self.known.values()), ended), ended)

    def _end(self, token: int, why: str, *, lost: bool) -> None:
        if token in self.attempts:
            span = self.attempts[token]
            span.ended, span.why, span.lost = self.count, why, lost

    def _follow(
        self, spans: list[NodeSpan], present: Mapping[str, str], ordered: float | None = None
    ) -> None:
        """End and begin spans, so that the open ones are of the nodes that are ``present``."""
        going_on = {span.node: span for span in spans if span.ended is None}
        for name in going_on.keys() - present.keys():
            going_on[name].ended, going_on[name].ordered = self.count, ordered
        spans += [NodeSpan(n, self.count, why=why) for n, why in present.items() if n not in going_on]


class RunView:
    """A run after all events taken in: its state, its visits, and all of its participants."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.state = State()
        self.log: list[Visit] = []
        """The visits that count, in the order of their commits. A state read afresh brings a new log: a
        restored snapshot undoes visits."""
        self.visits: dict[str, list[Visit]] = {}
        """The same by config."""
        self.nodes: dict[str, Node] = {}
        """Every node ever seen, as it last registered."""
        self.plans: list[tuple[int, Plan, Extension | None]] = []
        """The run's plan, and each later one, with its first revision and its extension."""
        self.spans = Spans()
        """Its attempts, and the presence of nodes, by the numbers of the events."""
        for event in events:
            self.take(event)

    @property
    def trained(self) -> list[Visit]:
        """The visits of ``log`` made by the run itself; earlier runs made the others."""
        return [visit for visit in self.log if not visit.reused]

    def take(self, event: Event) -> list[tuple[int, Visit]]:
        """Take in the next event. Returns the visits that it adds, each with its number among those of its
        config, from 1.

        Raises:
            IllegalEvent: The event is not possible after those before it.
        """
        before, self.state = self.state, fold(self.state, event)
        self.spans.note(event, before, self.state)
        if self.state.plan is not None and self.state.plan is not before.plan:
            self.plans.append((self.state.extended, self.state.plan, self.state.extension))
        match event:
            case StateRead(state=state, visits=visits):
                known = {_place(visit) for visit in self.log}
                self.log, self.visits = [], {}
                self.nodes |= state.nodes
                return [added for added in self._add(visits) if _place(added[1]) not in known]
            case NodeJoined(node=node):
                self.nodes[node.name] = node
        return self._add(visits_of(event))

    def _add(self, visits: Iterable[Visit]) -> list[tuple[int, Visit]]:
        added = []
        for visit in visits:
            own = self.visits.setdefault(visit.unit.config, [])
            own.append(visit)
            self.log.append(visit)
            added.append((len(own), visit))
        return added


def _place(visit: Visit) -> tuple[str, int, int]:
    return visit.unit.config, visit.unit.epoch, visit.index_in_epoch
