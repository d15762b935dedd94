"""The live view of a run: a table that moves in a terminal, plain lines everywhere else."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console
from rich.live import Live

from cerebro_elastic.core.events import ConfigEnded, Event, NodeJoined, NodeLeft, UnitCommitted, UnitFailed
from cerebro_elastic.core.state import State
from cerebro_elastic.core.values import Plan, Visit
from cerebro_elastic.report.tables import progress_view, summary_line, unit_text
from cerebro_elastic.runs.watcher import Watcher


class LiveView:
    """Shows what a run tells its watcher."""

    def __init__(self, metric: str, console: Console | None = None) -> None:
        console = console or Console()
        self._console = console
        self._live = (
            Live(console=console, transient=True, auto_refresh=False) if console.is_terminal else None
        )
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
        case NodeJoined(node=node):
            return f"{node.name} joined"
        case NodeLeft(node=name):
            return f"{name} left"
        case UnitFailed(failure=failure):
            return (
                f"{unit_text(failure.unit)} failed on {failure.node}, {failure.kind.value}: {failure.story}"
            )
        case ConfigEnded(config=name, status=status, reason=reason):
            return f"{name} {status.value}: {reason}"
        case UnitCommitted(visit=visit) if told_all and state.plan and _ends_epoch(visit, state.plan):
            metrics = state.configs[visit.unit.config].metrics
            told = " ".join(f"{name}={value:.4g}" for name, value in metrics.items())
            return (
                f"{visit.unit.config} epoch {visit.unit.epoch + 1}/{state.plan.epochs} {told} "
                f"({summary_line(state, elapsed)})"
            )
    return None


def _ends_epoch(visit: Visit, plan: Plan) -> bool:
    return visit.k + 1 == plan.partitions + plan.evaluations
