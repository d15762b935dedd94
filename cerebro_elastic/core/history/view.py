"""What does a run look like to those who watch it, or read its record? One view, advanced event by event.

Whatever people and other programs see of a run is made from it: status, pages, reports, results, what loggers
and callbacks get, the journal for optuna, measured times, and which checkpoints are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Self

from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.history.progress import advance
from cerebro_elastic.core.history.spans import Spans
from cerebro_elastic.core.history.tallies import add_point
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.best import best_end, epoch_ends
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import Event, NodeJoined, StateRead, UnitCommitted
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Extension, Plan
from cerebro_elastic.core.model.state import Point, State
from cerebro_elastic.core.model.units import CheckpointRef, Phase


@dataclass(frozen=True, slots=True)
class ConfigHistory:
    """Where a config stands, and what its visits have left: a curve, and checkpoints."""

    config: Config
    """The config after its last visit."""
    curve: tuple[Point, ...] = ()
    """A point for each whole training unit and each epoch's end that it has done itself."""
    last: tuple[CheckpointRef, ...] = ()
    """The last checkpoint that it wrote and the one before it, oldest first."""

    @classmethod
    def of(cls, config: Config, visits: Iterable[Visit], plan: Plan) -> Self:
        """The history of a config that has made these visits since it was created."""
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

    def kept(self, metric: str, mode: str) -> frozenset[str]:
        """The URLs of the checkpoints to keep: the last, the one before it, and the best epoch's.

        The last one has been written, but not yet read. The visit that takes it as input loads it and checks
        its digest, and only that visit's commit allows the one before it to be deleted: until then the last
        one can be made again from it, should it be damaged (``worker/repair.py``).
        """
        ends = epoch_ends(self.curve)
        place = best_end(ends, metric, mode)
        best = () if place is None else (ends[place].checkpoint,)
        return frozenset(ref.url for ref in (*self.last, *best) if ref is not None)


class RunView:
    """A run after the events that were taken in: its state, its visits, and everything that took part."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.state = State()
        self.log: list[Visit] = []
        """The visits that count, in the order of their commits. A state that is read afresh brings a new log:
        a restored snapshot undoes visits."""
        self.visits: dict[str, list[Visit]] = {}
        """The same by config."""
        self.nodes: dict[str, Node] = {}
        """Every node that has ever been seen, as it registered last."""
        self.plans: list[tuple[int, Plan, Extension | None]] = []
        """The run's plan, and each later one: since which revision, and by which extension."""
        self.spans = Spans()
        """Its attempts, and when nodes were there, by the numbers of the events."""
        for event in events:
            self.take(event)

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
            case UnitCommitted(visit=visit):
                return self._add([visit])
            case StateRead(state=state, visits=visits):
                known = {_place(visit) for visit in self.log}
                self.log, self.visits = [], {}
                self.nodes |= state.nodes
                return [added for added in self._add(visits) if _place(added[1]) not in known]
            case NodeJoined(node=node):
                self.nodes[node.name] = node
        return []

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
