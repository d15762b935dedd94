"""A run's results, read from its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cerebro_elastic.core.history.lineage import born, in_order
from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.history.progress import advance
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.best import best, loss, ranking
from cerebro_elastic.core.model.configs import Config, HParams, Status
from cerebro_elastic.core.model.events import Event, NodeJoined, StateRead, UnitCommitted
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import CheckpointRef


@dataclass(frozen=True, slots=True, repr=False)
class ConfigResult:
    """The results of one config.

    Example:
        >>> row = open_run("sweep").config("c0000")
        >>> row.status, len(row.curve), len(row.visits)
        (<Status.FINISHED: 'finished'>, 2, 4)
        >>> row.best == row.curve[row.best_epoch]["val_acc"]
        True
    """

    config: str
    """The config's id."""
    hparams: HParams
    """Its hyper-parameters by name."""
    status: Status
    """Whether it is live, finished, stopped or failed."""
    reason: str
    """Why it was stopped or has failed; empty otherwise."""
    curve: Sequence[Mapping[str, float]]
    """The metrics of each full epoch that the config itself has done."""
    visits: Sequence[Visit]
    """Its committed units, in the order of their commits."""
    best_epoch: int | None = None
    """The index in ``curve`` of the epoch with the best value of the objective, the first of equals; ``None``
    without a finite value."""
    best: float | None = None
    """That value."""
    checkpoint: CheckpointRef | None = None
    """The last committed state."""
    best_checkpoint: CheckpointRef | None = None
    """The state at the end of the best epoch."""
    behind: int = 0
    """How many epochs its parent had done where it began."""

    def __repr__(self) -> str:
        hparams = " ".join(f"{name}={value}" for name, value in self.hparams.items())
        at = self.behind + (self.best_epoch or 0) + 1
        best = "" if self.best_epoch is None else f", best {self.best:.4g} in epoch {at}"
        return f"<ConfigResult {self.config} {hparams}: {self.status}{best}>"


def gather(events: Sequence[Event]) -> tuple[State, dict[str, list[Visit]]]:
    """The state after ``events``, and each config's visits."""
    state = State()
    visits: dict[str, list[Visit]] = {}
    for event in events:
        state = fold(state, event)
        match event:
            case StateRead(visits=visits_so_far):
                visits = {}
                for visit in visits_so_far:
                    visits.setdefault(visit.unit.config, []).append(visit)
            case UnitCommitted(visit=visit):
                visits.setdefault(visit.unit.config, []).append(visit)
    return state, visits


def nodes_of(events: Sequence[Event]) -> dict[str, Node]:
    """Every node that ever took part, as it registered last."""
    nodes: dict[str, Node] = {}
    for event in events:
        match event:
            case NodeJoined(node=node):
                nodes[node.name] = node
            case StateRead(state=state):
                nodes |= state.nodes
    return dict(sorted(nodes.items()))


def epoch_ends(config: Config, visits: Sequence[Visit], plan: Plan) -> list[tuple[Config, CheckpointRef]]:
    """The config as it stood at the end of each full epoch, with its checkpoint."""
    ends = []
    at = born(config)
    for visit in visits:
        before, at = at, advance(at, visit, plan)
        if at.epoch > before.epoch:
            ends.append((at, visit.output))
    return ends


def leaderboard(events: Sequence[Event], metric: str, mode: str) -> list[ConfigResult]:
    """All configs, the best first by the best value of ``metric`` over their epochs; those without
    a finite value last, in the order of their creation."""
    state, visits = gather(events)
    if state.plan is None:
        return []
    configs = in_order(state.configs.values())
    rows = [config_result(config, visits.get(config.id, ()), state.plan, metric, mode) for config in configs]
    return [*ranked(rows, mode), *(row for row in rows if row.best is None)]


def ranked(rows: Sequence[ConfigResult], mode: str) -> list[ConfigResult]:
    """The ``rows`` (in the order of creation) that have a best value; the best first."""
    return [rows[place] for place in ranking(loss(row.best, mode) for row in rows)]


def config_result(
    config: Config, visits: Sequence[Visit], plan: Plan, metric: str, mode: str
) -> ConfigResult:
    """What became of a config that made these visits."""
    ends = epoch_ends(config, visits, plan)
    curve = [end.metrics for end, _ in ends]
    best_epoch = best(loss(metrics.get(metric), mode) for metrics in curve)
    return ConfigResult(
        config=config.id,
        hparams=config.hparams,
        status=config.status,
        reason=config.reason,
        curve=curve,
        visits=visits,
        best_epoch=best_epoch,
        best=None if best_epoch is None else curve[best_epoch][metric],
        checkpoint=config.head,
        best_checkpoint=None if best_epoch is None else ends[best_epoch][1],
        behind=born(config).epoch,
    )
