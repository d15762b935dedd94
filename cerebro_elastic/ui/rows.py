"""What the page shows of one config, one node and one visit."""

from __future__ import annotations

from typing import Any

from cerebro_elastic.core.history.progress import units_left
from cerebro_elastic.core.model.attempts import Attempt, Visit
from cerebro_elastic.core.model.best import epoch_ends
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import Point
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.reporting.results import ConfigResult
from cerebro_elastic.system.explanations import shortened


def config_row(
    config: Config,
    result: ConfigResult,
    attempt: Attempt | None,
    queued: bool,
    last_node: str | None,
    plan: Plan,
) -> dict[str, Any]:
    """A config's row of the leaderboard. Its attempt may be ``queued`` behind another one."""
    total = plan.epochs * (plan.partitions + plan.evaluations)
    return {
        "hparams": config.hparams,
        "status": config.status,
        "reason": shortened(config.reason),
        "epoch": config.epoch,
        "done": total - units_left(config, plan) if config.status is Status.LIVE else None,
        "best": result.best,
        "at": result.best_at,
        "metrics": config.metrics,
        "parent": config.parent.config if config.parent else None,
        "on": attempt.node if attempt else None,
        "saving": bool(attempt and attempt.trained),
        "queued": queued,
        "last": last_node,
        "tries": len(config.failures),
    }


def curves_of(points: tuple[Point, ...]) -> dict[str, list[tuple[int, float]]]:
    """A config's curves by metric: epochs and the values at their ends."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for end in epoch_ends(points):
        for name, value in end.metrics.items():
            curves.setdefault(name, []).append((end.epochs, value))
    return curves


def node_row(
    node: Node, unit: dict[str, Any] | None, saved: Attempt | None, quarantined: str | None
) -> dict[str, Any]:
    """A node that is registered, and what it does."""
    return {
        "host": node.host,
        "hardware": node.hardware,
        "ranks": node.ranks,
        "devices": node.devices,
        "version": node.version,
        "starting": node.starting,
        "leaving": node.drain is not None,
        "stalled": None if node.stalled is None else shortened(node.stalled.why),
        "quarantined": None if quarantined is None else shortened(quarantined),
        "cached": node.cached,
        "unit": unit,
        "saves": None if saved is None else saved.unit.config,
    }


def unit_under_way(attempt: Attempt, began: float, last_node: str | None) -> dict[str, Any]:
    """An attempt in training: ``from`` is the node that has the config's state; ``None`` for a new one."""
    return {
        "config": attempt.unit.config,
        "epoch": attempt.unit.epoch + 1,
        "partition": attempt.unit.partition,
        "phase": attempt.unit.phase,
        "began": began,
        "expected": attempt.expected,
        "from": last_node if attempt.input is not None else None,
        "bytes": attempt.input.bytes if attempt.input is not None else 0,
        "strategy": "" if attempt.strategy == Strategy() else str(attempt.strategy),
        "token": attempt.token,
    }


def visit_span(visit: Visit, node: str) -> list[Any]:
    """A visit's bar in the chart of nodes: node, config, epoch, partition, phase, begin, end, seconds of
    loading and saving, bytes of the state that it began with."""
    unit = visit.unit
    return [
        node,
        unit.config,
        unit.epoch + 1,
        unit.partition,
        unit.phase,
        round(visit.started, 3),
        round(visit.freed, 3),
        round(visit.hop_seconds + visit.fetch_seconds, 3),
        visit.input.bytes if visit.input is not None else 0,
    ]
