"""What people see in the terminal: progress while a run goes on, the leaderboard at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cerebro_elastic.core.decide import expected_seconds
from cerebro_elastic.core.machine import State
from cerebro_elastic.core.progress import units_left
from cerebro_elastic.core.values import Config, Phase, Plan, Status, Unit
from cerebro_elastic.report.results import ConfigResult

_BARS = " ▁▂▃▄▅▆▇█"
_STYLES = {Status.LIVE: "", Status.FINISHED: "green", Status.STOPPED: "yellow", Status.FAILED: "red"}


def hparams_text(hparams: Mapping[str, Any]) -> str:
    return " ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in hparams.items()
    )


def sparkline(values: Sequence[float]) -> str:
    """A curve in as many characters as it has values."""
    finite = [v for v in values if v == v and abs(v) != float("inf")]
    if not finite:
        return ""
    low, span = min(finite), (max(finite) - min(finite)) or 1.0
    return "".join(
        _BARS[1 + round((v - low) / span * (len(_BARS) - 2))] if v in finite else " " for v in values
    )


def leaderboard_table(rows: Sequence[ConfigResult], metric: str) -> Table:
    """One line for each config, the best first."""
    table = Table(title=f"Leaderboard by {metric}", title_justify="left")
    for name, justify in (
        ("#", "right"),
        ("config", "left"),
        ("hyper-parameters", "left"),
        (metric, "right"),
        ("epoch", "right"),
        ("curve", "left"),
        ("status", "left"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for place, row in enumerate(rows, start=1):
        curve = [metrics[metric] for metrics in row.curve if metric in metrics]
        table.add_row(
            str(place),
            row.config,
            hparams_text(row.hparams),
            "-" if row.best is None else f"{row.best:.4f}",
            "-" if row.best_epoch is None else f"{row.best_epoch + 1}/{len(row.curve)}",
            sparkline(curve),
            Text(row.status.value, _STYLES[row.status]),
        )
    return table


def progress_view(state: State, metric: str, elapsed: float | None) -> RenderableType:
    """Nodes with their units, configs with their progress, and how long it will take."""
    if state.plan is None:
        return Text("waiting for the run to be opened")
    nodes = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("node", "unit", "home of partitions"):
        nodes.add_column(name)
    for node in state.nodes.values():
        attempt = state.attempts.get(node.name)
        homes = [str(j) for j, home in state.homes.items() if home == node.name]
        nodes.add_row(node.name, unit_text(attempt.unit) if attempt else "idle", " ".join(homes))
    configs = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("config", "progress", "", metric, "status"):
        configs.add_column(name)
    total = state.plan.epochs * (state.plan.partitions + state.plan.evaluations)
    for config in state.configs.values():
        done = total - units_left(config, state.plan) if config.status is Status.LIVE else total
        value = config.metrics.get(metric)
        configs.add_row(
            config.id,
            ProgressBar(total=total, completed=done, width=30),
            f"epoch {min(config.epoch + 1, state.plan.epochs)}/{state.plan.epochs}",
            "-" if value is None else f"{value:.4f}",
            Text(_doing(state, config), _STYLES[config.status]),
        )
    return Group(nodes, "", configs, "", summary_line(state, elapsed))


def summary_line(state: State, elapsed: float | None) -> str:
    """Units done, and the time that the rest will take."""
    assert state.plan is not None
    plan = state.plan
    total = len(state.configs) * plan.epochs * (plan.partitions + plan.evaluations)
    left = sum(units_left(config, plan) for config in state.configs.values())
    eta = _eta(state, plan)
    return (
        f"{total - left}/{total} units on {len(state.nodes)} nodes, "
        + ("" if elapsed is None else f"{_clock(elapsed)} gone, ")
        + ("no node yet" if eta is None else f"about {_clock(eta)} to go")
    )


def unit_text(unit: Unit) -> str:
    what = "partition" if unit.phase is Phase.TRAIN else "evaluation"
    return f"{unit.config} epoch {unit.epoch + 1} {what} {unit.partition}"


def _doing(state: State, config: Config) -> str:
    if config.status is not Status.LIVE:
        return config.status.value
    attempt = state.running(config.id)
    return f"on {attempt.node}" if attempt else "waiting"


def _eta(state: State, plan: Plan) -> float | None:
    """Seconds: no less than the configs' work over the nodes, nor than the longest config."""
    if not state.nodes:
        return None
    work = [units_left(c, plan) * expected_seconds(state, c.id) for c in state.configs.values()]
    return max(sum(work) / len(state.nodes), max(work, default=0.0))


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
