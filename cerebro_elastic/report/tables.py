"""What people see in the terminal: progress while a run goes on, the leaderboard at its end."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cerebro_elastic.core.estimates import unit_seconds
from cerebro_elastic.core.progress import units_left
from cerebro_elastic.core.state import State
from cerebro_elastic.core.values import Config, Phase, Plan, Status, Unit
from cerebro_elastic.report.results import ConfigResult

_BARS = "▁▂▃▄▅▆▇█"
_STYLES = {Status.LIVE: "", Status.FINISHED: "green", Status.STOPPED: "yellow", Status.FAILED: "red"}


def hparams_text(hparams: Mapping[str, Any]) -> str:
    """``lr=0.01 width=64``."""
    return " ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in hparams.items()
    )


def sparkline(values: Sequence[float], width: int = 12) -> str:
    """A curve in at most ``width`` characters; a longer one has means of neighbouring values. What is
    not finite leaves a gap."""
    means = [_mean(part) for part in _slices(values, width)]
    finite = [mean for mean in means if mean is not None]
    if not finite:
        return ""
    low, span = min(finite), (max(finite) - min(finite)) or 1.0
    return "".join(
        " " if mean is None else _BARS[round((mean - low) / span * (len(_BARS) - 1))] for mean in means
    )


def _slices(values: Sequence[float], most: int) -> list[Sequence[float]]:
    """``values`` in at most ``most`` parts whose lengths differ by one at most."""
    count = min(len(values), most)
    ends = [i * len(values) // count for i in range(count + 1)] if count else []
    return [values[start:end] for start, end in pairwise(ends)]


def _mean(values: Sequence[float]) -> float | None:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else None


def leaderboard_table(rows: Sequence[ConfigResult], metric: str, most: int = 20) -> Table:
    """The best ``most`` configs, the best first."""
    shown = f", the best {most} of {len(rows)} configs" if len(rows) > most else ""
    table = Table(
        title=f"\nLeaderboard by {metric}{shown}", title_justify="left", box=None, padding=(0, 2, 0, 0)
    )
    table.add_column("#", justify="right")
    table.add_column("config", no_wrap=True)
    table.add_column("hyper-parameters")
    table.add_column(metric, justify="right")
    table.add_column("epoch", justify="right", no_wrap=True)
    table.add_column("curve", no_wrap=True)
    table.add_column("status", no_wrap=True)
    for place, row in enumerate(rows[:most], start=1):
        curve = [metrics[metric] for metrics in row.curve if metric in metrics]
        table.add_row(
            str(place),
            row.config,
            hparams_text(row.hparams),
            "-" if row.best is None else f"{row.best:.4f}",
            "-" if row.best_epoch is None else f"{row.behind + row.best_epoch + 1}/{_epochs(row)}",
            sparkline(curve),
            Text(row.status.value, _STYLES[row.status]),
        )
    return table


def _epochs(row: ConfigResult) -> int:
    return row.behind + len(row.curve)


def progress_view(
    state: State, metric: str, elapsed: float | None, lines: int | None = None
) -> RenderableType:
    """Nodes with their units, configs with their progress, and how long it will take; in at most
    ``lines`` lines, if given, by leaving out what does not move."""
    if state.plan is None:
        return Text("waiting for the run to be opened")
    room = None if lines is None else max(2, lines - 7)
    nodes = sorted(state.nodes, key=lambda name: (name not in state.attempts, name))
    configs = sorted(state.configs.values(), key=lambda config: _calm(state, config))
    shown_nodes = nodes[: None if room is None else max(1, room // 3)]
    shown = configs[: None if room is None else room - len(shown_nodes)]
    return Group(
        *([_nodes_table(state, sorted(shown_nodes))] if nodes else []),
        *_left_out("nodes", ["busy" if n in state.attempts else "idle" for n in nodes[len(shown_nodes) :]]),
        *([""] if nodes else []),
        _configs_table(state, state.plan, metric, sorted(shown, key=lambda config: config.id)),
        *_left_out("configs", [_phase(state, config) for config in configs[len(shown) :]]),
        "",
        summary_line(state, elapsed),
    )


def _calm(state: State, config: Config) -> tuple[int, str]:
    """Those that move first: in training, then waiting, then ended."""
    phases = ("in training", "waiting")
    phase = _phase(state, config)
    return phases.index(phase) if phase in phases else len(phases), config.id


def _left_out(what: str, doing: Iterable[str]) -> list[str]:
    counts = Counter(doing)
    told = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    return [f"and {counts.total()} more {what}: {told}"] if counts else []


def _nodes_table(state: State, names: Sequence[str]) -> Table:
    table = _plain_table("node", "unit", "home of partitions")
    table.add_column("")  # gives way
    for name in names:
        attempt = state.attempts.get(name)
        homes = " ".join(str(j) for j, home in state.homes.items() if home == name)
        note = Text(node_note(state, name), "yellow", no_wrap=True, overflow="ellipsis")
        table.add_row(name, unit_text(attempt.unit) if attempt else "idle", homes, note)
    return table


def node_note(state: State, name: str) -> str:
    """What is out of the ordinary about a node, if anything is."""
    if state.nodes[name].drain is not None:
        return "leaving"
    return f"set aside: {state.aside[name]}" if name in state.aside else ""


def _configs_table(state: State, plan: Plan, metric: str, configs: Sequence[Config]) -> Table:
    table = _plain_table("config", "progress", "epoch", metric, "status")
    table.add_column("hyper-parameters")  # the only one that gives way
    total = plan.epochs * (plan.partitions + plan.evaluations)
    for config in configs:
        done = total - units_left(config, plan) if config.status is Status.LIVE else total
        value = config.metrics.get(metric)
        table.add_row(
            config.id,
            ProgressBar(total=total, completed=done, width=12),
            f"{min(config.epoch + 1, plan.epochs)}/{plan.epochs}",
            "-" if value is None else f"{value:.4f}",
            Text(_doing(state, config), _STYLES[config.status]),
            Text(hparams_text(config.hparams), no_wrap=True, overflow="ellipsis"),
        )
    return table


def _plain_table(*columns: str) -> Table:
    """Columns of a fixed width."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name, no_wrap=True)
    return table


def summary_line(state: State, elapsed: float | None) -> str:
    """Units done, and the time that the rest will take."""
    assert state.plan is not None
    plan = state.plan
    total = len(state.configs) * plan.epochs * (plan.partitions + plan.evaluations)
    left = sum(units_left(config, plan) for config in state.configs.values())
    nodes = f"{len(state.nodes)} node{'' if len(state.nodes) == 1 else 's'}"
    told = [f"{total - left}/{total} units", nodes]
    if elapsed is not None:
        told.append(f"{clock_text(elapsed)} gone")
    eta = _eta(state, plan)
    if eta is not None and left:
        told.append(f"about {clock_text(eta)} to go")
    return ", ".join(told)


def unit_text(unit: Unit) -> str:
    what = "partition" if unit.phase is Phase.TRAIN else "evaluation"
    return f"{unit.config} epoch {unit.epoch + 1} {what} {unit.partition}"


def _doing(state: State, config: Config) -> str:
    attempt = state.running(config.id)
    return f"on {attempt.node}" if attempt else _phase(state, config)


def _phase(state: State, config: Config) -> str:
    if config.status is not Status.LIVE:
        return config.status.value
    return "in training" if state.running(config.id) else "waiting"


def _eta(state: State, plan: Plan) -> float | None:
    """Seconds, once a unit has been timed: no less than the configs' work over the nodes, nor than the
    longest config."""
    if not state.nodes or not state.timings:
        return None
    work = [units_left(c, plan) * unit_seconds(state, c.id) for c in state.configs.values()]
    return max(sum(work) / len(state.nodes), max(work, default=0.0))


def clock_text(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
