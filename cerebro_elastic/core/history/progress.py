"""How does a config advance through its epochs? Pure functions that worker, controller and replay share."""

from __future__ import annotations

from dataclasses import replace

from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import Point
from cerebro_elastic.core.model.units import PartialUnit, Phase, Unit


def units_done(config: Config, plan: Plan) -> int:
    """The config's whole training units, its parent's included."""
    return config.epoch * plan.trained + len(config.visited)


def next_units(config: Config, plan: Plan) -> tuple[Unit, ...]:
    """The units from which the config may take any one now: its partly trained partition, else the epoch's
    unvisited partitions, else the epoch's evaluations, if they are separate units."""
    phase, partitions = next_partitions(config, plan)
    return tuple(Unit(config.id, config.epoch, j, phase) for j in partitions)


def next_partitions(config: Config, plan: Plan) -> tuple[Phase, tuple[int, ...]]:
    """The phase of the config's next units, and their partitions."""
    if config.status is not Status.LIVE:
        return Phase.TRAIN, ()
    if config.partial_unit is not None:
        return Phase.TRAIN, (config.partial_unit.partition,)
    visited = set(config.visited)
    if left := tuple(j for j in plan.trains(config.fold) if j not in visited):
        return Phase.TRAIN, left
    return Phase.EVALUATE, tuple(j for j in plan.evaluates(config.fold) if j not in config.evaluated)


def is_next(config: Config, unit: Unit, plan: Plan) -> bool:
    """Whether ``unit``, or the unit that it profiles, is among ``next_units``."""
    trains = replace(unit, phase=Phase.TRAIN) if unit.phase is Phase.PROFILE else unit
    return trains in next_units(config, plan)


def skipped(config: Config) -> int:
    """The already trained batches of the config's next unit."""
    return config.partial_unit.batches if config.partial_unit is not None else 0


def position(config: Config) -> int:
    """``k``: the number of the config's visits in its present epoch, partial ones included."""
    return len(config.visited) + len(config.evaluated) + config.parts


def units_left(config: Config, plan: Plan) -> int:
    """Units until the config has used up its epochs; a partly trained one counts."""
    if config.status is not Status.LIVE:
        return 0
    per_epoch = plan.trained + plan.evaluations
    return (plan.epochs - config.epoch) * per_epoch - len(config.visited) - len(config.evaluated)


def advance(config: Config, visit: Visit, plan: Plan) -> Config:
    """The config after a committed visit (the store sets its ``revision``)."""
    moved = _train(config, visit) if visit.unit.phase is Phase.TRAIN else _evaluate(config, visit)
    epoch_done = len(moved.visited) == plan.trained and len(moved.evaluated) == plan.evaluations
    return _next_epoch(moved, plan) if epoch_done else moved


def _train(config: Config, visit: Visit) -> Config:
    """The config after a training visit. A partial one does not change the epoch's metrics."""
    if not visit.whole:
        partial_unit = PartialUnit(visit.unit.partition, visit.skip + visit.batches)
        return replace(config, head=visit.output, partial_unit=partial_unit, parts=config.parts + 1)
    return replace(
        config,
        visited=(*config.visited, visit.unit.partition),
        head=visit.output,
        done=visit.done,
        partial_unit=None,
        pending=dict(visit.metrics),
    )


def _evaluate(config: Config, visit: Visit) -> Config:
    """The config after an evaluation. Metrics are means over samples, so partitions count by their size."""
    sums = {m: config.weighted.get(m, 0.0) + v * visit.samples for m, v in visit.metrics.items()}
    samples = config.samples + visit.samples
    means = {m: total / samples for m, total in sums.items()} if samples else {}
    return replace(
        config,
        evaluated=(*config.evaluated, visit.unit.partition),
        pending={**config.pending, **means},
        weighted=sums,
        samples=samples,
    )


def _next_epoch(config: Config, plan: Plan) -> Config:
    epoch = config.epoch + 1
    finished = config.done or epoch == plan.epochs
    end = Point(epoch * plan.trained, epoch, config.pending, ends=True, checkpoint=config.head)
    ended = replace(
        config,
        status=Status.FINISHED if finished else config.status,
        reason="the task ended its training" if config.done and epoch < plan.epochs else config.reason,
    )
    return at_end(ended, end)


def at_end(config: Config, end: Point) -> Config:
    """The config as it is at the ``end`` of an epoch."""
    return replace(
        config,
        epoch=end.epochs,
        visited=(),
        evaluated=(),
        done=False,
        head=end.checkpoint,
        metrics=end.metrics,
        pending={},
        weighted={},
        samples=0,
        partial_unit=None,
        parts=0,
    )
