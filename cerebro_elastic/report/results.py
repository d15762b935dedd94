"""A run's results, read from its history."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cerebro_elastic.core.events import Event, UnitCommitted
from cerebro_elastic.core.machine import fold
from cerebro_elastic.core.state import State
from cerebro_elastic.core.values import CheckpointRef, HParams, Status, Visit


@dataclass(frozen=True, slots=True)
class ConfigResult:
    """What became of one config.

    ``curve`` has the metrics of each full epoch; ``best_epoch`` is the one with the best value of
    the objective (``None`` if it was never logged), ``best`` that value and ``best_checkpoint`` the
    state at its end; ``checkpoint`` is the last state; ``visits`` are in the order in which they
    were committed.
    """

    config: str
    hparams: HParams
    status: Status
    reason: str
    curve: Sequence[Mapping[str, float]]
    visits: Sequence[Visit]
    best_epoch: int | None = None
    best: float | None = None
    checkpoint: CheckpointRef | None = None
    best_checkpoint: CheckpointRef | None = None


@dataclass
class _Epochs:
    """What is gathered of a config while its events go by."""

    curve: list[Mapping[str, float]] = field(default_factory=list)
    ends: list[CheckpointRef] = field(default_factory=list)
    visits: list[Visit] = field(default_factory=list)


def gather(events: Sequence[Event]) -> tuple[State, dict[str, _Epochs]]:
    """The state after ``events``, and each config's epochs and visits."""
    state = State()
    epochs: dict[str, _Epochs] = {}
    for event in events:
        before, state = state, fold(state, event)
        if isinstance(event, UnitCommitted):
            config = state.configs[event.visit.unit.config]
            story = epochs.setdefault(config.id, _Epochs())
            story.visits.append(event.visit)
            if config.epoch > before.configs[config.id].epoch:
                story.curve.append(config.metrics)
                story.ends.append(event.visit.output)
    return state, epochs


def leaderboard(events: Sequence[Event], metric: str, mode: str) -> list[ConfigResult]:
    """All configs, the best first by the best value of ``metric`` over their epochs; those without
    any value last, in the order of their ids."""
    state, epochs = gather(events)
    rows = []
    for config in state.configs.values():
        story = epochs.get(config.id, _Epochs())
        best = best_epoch([metrics.get(metric) for metrics in story.curve], mode)
        rows.append(
            ConfigResult(
                config=config.id,
                hparams=config.hparams,
                status=config.status,
                reason=config.reason,
                curve=story.curve,
                visits=story.visits,
                best_epoch=best,
                best=None if best is None else story.curve[best][metric],
                checkpoint=config.head,
                best_checkpoint=None if best is None else story.ends[best],
            )
        )
    sign = -1.0 if mode == "max" else 1.0
    return sorted(rows, key=lambda row: (row.best is None, sign * (row.best or 0.0), row.config))


def best_epoch(values: Sequence[float | None], mode: str) -> int | None:
    """Index of the best value (the first of equals); NaN and missing values never are."""
    known = [i for i, value in enumerate(values) if value is not None and not math.isnan(value)]
    if not known:
        return None
    sign = -1.0 if mode == "max" else 1.0
    return min(known, key=lambda i: (sign * (values[i] or 0.0), i))
