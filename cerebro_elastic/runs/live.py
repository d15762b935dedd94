"""The live view of a run: a table that moves in a terminal, plain lines everywhere else."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console
from rich.live import Live

from cerebro_elastic.core.events import (
    ConfigEnded,
    Event,
    LeaderChanged,
    NodeDraining,
    NodeForgiven,
    NodeJoined,
    NodeLeft,
    NodeSetAside,
    UnitCommitted,
    UnitFailed,
)
from cerebro_elastic.core.state import State
from cerebro_elastic.core.values import Visit
from cerebro_elastic.report.tables import progress_view, summary_line, unit_text
from cerebro_elastic.runs.drain import A_DAY
from cerebro_elastic.runs.watcher import Watcher


class LiveView:
    """Shows what a run tells its watcher: in a terminal, unless it shall not be ``moving``, a table with the
    configs' ``metric``, and lines of text about what is out of the ordinary; else lines alone."""

    def __init__(self, metric: str, console: Console | None = None, *, moving: bool = True) -> None:
        console = console or Console()
        self._console = console
        moves = moving and console.is_terminal
        self._live = Live(console=console, transient=True, auto_refresh=False) if moves else None
        self._began = time.monotonic()
        self._metric = metric
        self.watcher = Watcher(say=self._say, show=self._show)

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    def _show(self, events: list[Event], state: State) -> None:
        elapsed = time.monotonic() - self._began
        for event in events:
            line = _line(event, state, elapsed, told_all=self._live is None)
            if line:
                self._say(line)
        if self._live:
            view = progress_view(state, self._metric, elapsed, self._console.height)
            self._live.update(view, refresh=True)


def _line(event: Event, state: State, elapsed: float, *, told_all: bool) -> str | None:
    """What is worth a line: trouble always; with nothing moving on the screen, also each config's epochs."""
    match event:
        case LeaderChanged(leader=leader) if leader:
            return f"{leader} leads the run"
        case NodeJoined(node=node):
            return f"{node.name} joined"
        case NodeLeft(node=name):
            return f"{name} left"
        case NodeDraining(node=name, grace=grace):
            given = "" if grace >= A_DAY else f": it has {grace:g} s for its unit"
            return f"{name} is leaving{given}"
        case NodeSetAside(node=name, seconds=seconds, why=why):
            return f"{name} gets no units for {seconds:g} s: {why}"
        case NodeForgiven(node=name):
            return f"{name} gets units again"
        case UnitCommitted(visit=visit) if not visit.whole:
            return f"{unit_text(visit.unit)} was left by {visit.node} after {visit.batches} batches"
        case UnitFailed(failure=failure):
            return (
                f"{unit_text(failure.unit)} failed on {failure.node}, {failure.kind.value}: {failure.story}"
            )
        case ConfigEnded(config=name, status=status, reason=reason):
            return f"{name} {status.value}: {reason}"
        case UnitCommitted(visit=visit) if told_all and state.plan and _ended_epoch(visit, state):
            metrics = state.configs[visit.unit.config].metrics
            told = " ".join(f"{name}={value:.4g}" for name, value in metrics.items())
            return (
                f"{visit.unit.config} epoch {visit.unit.epoch + 1}/{state.plan.epochs} {told} "
                f"({summary_line(state, elapsed)})"
            )
    return None


def _ended_epoch(visit: Visit, state: State) -> bool:
    """Whether the config is where the visit left it, behind its epoch's end."""
    config = state.configs[visit.unit.config]
    return config.epoch > visit.unit.epoch and config.head == visit.output
