"""The view of a live run in the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from cerebro_elastic.core.decisions.gangs import waits
from cerebro_elastic.core.history.sentences import mark_of
from cerebro_elastic.core.model.attempts import Attempt, Visit
from cerebro_elastic.core.model.best import loss
from cerebro_elastic.core.model.events import (
    Event,
    LeaderChanged,
    UnitCommitted,
    UnitFailed,
    UnitsReused,
)
from cerebro_elastic.core.model.state import State
from cerebro_elastic.recipes import Objective
from cerebro_elastic.reporting.budget import budget_outlook, first_text
from cerebro_elastic.reporting.gap import NO_END, SearchEnd
from cerebro_elastic.reporting.progress import lacking, leading, progress_view, summary_line
from cerebro_elastic.reporting.tables import brief
from cerebro_elastic.reporting.terminal import terminal
from cerebro_elastic.system.explanations import shortened
from cerebro_elastic.system.words import hparams_text, one_line

if TYPE_CHECKING:
    from cerebro_elastic.runs.results.result import RunResult


@dataclass(frozen=True, slots=True)
class Watcher:
    """Gets the reports of a live run."""

    say: Callable[[str], None] = lambda _text: None
    """It is called with a line of text at each step."""
    show: Callable[[list[Event], State], None] = lambda _events, _state: None
    """It is called with new events and the state after them, and with the state about twice a second."""
    conclude: Callable[[RunResult], None] = lambda _result: None
    """It is called with the result at the run's end, before its report is written."""


_LINE = 400
"""Characters of a line about a failure."""
_LINE_SECONDS = 60.0
"""Seconds between two lines on the run's progress, if no table moves."""


class TerminalView:
    """Shows a run's reports to its ``watcher``.

    In a terminal these are tables of nodes and configs, sorted by the ``objective``, and lines
    about unusual events. Elsewhere, or without ``moving``, it shows only lines: one a minute, one for each
    new best, and one when it becomes clear whether the budget will hold. ``verbose`` adds a line for every
    epoch of every config, and the optimality gap. ``conclude`` prints the result."""

    def __init__(
        self,
        objective: Objective | None = None,
        console: Console | None = None,
        *,
        moving: bool = True,
        verbose: bool = False,
        end: SearchEnd = NO_END,
        conclude: Callable[[RunResult], None] | None = None,
    ) -> None:
        console = console or terminal()
        self._console = console
        moves = moving and objective is not None and console.is_terminal
        self._live = Live(console=console, transient=True, auto_refresh=False) if moves else None
        self._began = time.monotonic()
        self._objective = objective
        self._verbose = verbose
        self._end = end
        self._conclude = conclude
        self.concluded = False
        """Whether the result was shown."""
        self._budget_holds: bool | None = None
        self._budget_due: float | None = None
        self._best: tuple[str, float] | None = None
        self._line_due = _LINE_SECONDS
        self._last_nodes: dict[str, str] = {}
        self._missing: list[str] = []
        self._has_begun = False
        self._leader: str | None = None
        self._known_failures: dict[str, str] = {}
        self._before = State()
        self._closed = False
        self.watcher = Watcher(self._say, self._show, self._show_result)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        if self._live:
            self._live.stop()

    def _show_result(self, result: RunResult) -> None:
        if self._live:
            self._live.stop()
        if self._conclude is not None and not self._closed:
            self._conclude(result)
            self.concluded = True

    def _say(self, text: str) -> None:
        if not self._closed:  # the run may continue, in the background
            self._console.print(Text(text), soft_wrap=True)

    def _show(self, events: list[Event], state: State) -> None:
        if self._closed:
            return
        elapsed = time.monotonic() - self._began
        if self._before.plan is None and state.usage.began is not None:
            self._has_begun = _first_attempt(state) is not None  # before this view joined the run
        for event in events:
            line = self._unusual(event) or (None if self._live else self._progress(event, state, elapsed))
            for text in filter(None, (line, self._first(state))):
                self._say(one_line(text))
            if isinstance(event, UnitCommitted):
                self._last_nodes[event.visit.unit.config] = event.visit.node
        self._before = state
        self._say_missing(state)
        if any(isinstance(event, UnitCommitted) for event in events) or self._budget_due is None:
            self._say_budget(state, elapsed)
        if self._live and self._objective:
            self._live.start()
            lines = self._console.height
            outlook = budget_outlook(state, self._end)
            view = progress_view(
                state,
                self._objective,
                elapsed,
                lines,
                self._last_nodes,
                verbose=self._verbose,
                notes=[outlook.text] if outlook is not None else [],
                end=self._end,
                redrawn=True,
            )
            self._live.update(view, refresh=True)

    def _unusual(self, event: Event) -> str | None:
        """A line about an unusual event. A failure of several units is shown in full once. Reused units were
        reported at the run's start; a leader is reported only if it is a different one."""
        mark = None if isinstance(event, UnitsReused) else mark_of(event, self._before)
        line = None if mark is None else mark.text
        if isinstance(event, LeaderChanged):
            line = line if event.leader not in (None, self._leader) else None
            self._leader = event.leader or self._leader
        for story, unit in self._known_failures.items():
            line = line and line.replace(story, f"the same as {unit}")
        if isinstance(event, UnitFailed) and event.failure.story:
            self._known_failures.setdefault(event.failure.story, str(event.failure.unit))
        return line and brief(shortened(line), _LINE)

    def _first(self, state: State) -> str | None:
        """A line on the first unit of a ready node, once: from then on the run trains."""
        if self._has_begun or (attempt := _first_attempt(state)) is None:
            return None
        self._has_begun = True
        return f"first unit: {attempt.unit} on {attempt.node}"

    def _say_missing(self, state: State) -> None:
        """Report the things that the run waits for, when they change."""
        missing = lacking(waits(state, state.plan)) if state.plan else []
        for line in missing:
            if line not in self._missing:
                self._say(line)
        self._missing = missing

    def _say_budget(self, state: State, elapsed: float) -> None:
        """Report the budget before the first unit, and whether it will hold, when that changes."""
        if state.plan is None:
            return
        if self._budget_due is None:
            self._budget_due = 0.0
            if state.usage.began is None and (text := first_text(self._end.budget, state.plan)) is not None:
                self._say(text)
        if self._live or elapsed < self._budget_due:
            return
        outlook = budget_outlook(state, self._end)
        if outlook is not None and outlook.holds not in (None, self._budget_holds):
            self._budget_holds, self._budget_due = outlook.holds, elapsed + _LINE_SECONDS
            self._say(outlook.text)

    def _progress(self, event: Event, state: State, elapsed: float) -> str | None:
        """A line of progress, if no table moves: a new best, all epochs, or now and then the summary."""
        if not isinstance(event, UnitCommitted) or not state.plan:
            return None
        ends = _ended_epoch(event.visit, state)
        is_new = ends and self._leads(event.visit.unit.config, state)
        if not (elapsed >= self._line_due or (ends and (self._verbose or is_new))):
            return None
        self._line_due = elapsed + _LINE_SECONDS
        summary = summary_line(state, self._objective, elapsed, verbose=self._verbose, end=self._end)
        if not ends:
            return summary
        unit = event.visit.unit
        metrics = hparams_text(state.configs[unit.config].metrics)
        return f"{unit.config} epoch {unit.epoch + 1}/{state.plan.epochs} {metrics} ({summary})"

    def _leads(self, config: str, state: State) -> bool:
        """Whether the best config or its value has changed since this ``config`` ended an epoch. All configs
        are compared only if the others could be better now."""
        if self._objective is None or state.plan is None:
            return False
        if self._best is None or self._best[0] == config or state.plan.has_members:
            best = leading(state, self._objective)
        else:
            alone = leading(replace(state, configs={config: state.configs[config]}), self._objective)
            losses = [loss(each and each[1], self._objective.mode) for each in (alone, self._best)]
            best = alone if losses[0] < losses[1] else self._best
        is_new, self._best = best is not None and best != self._best, best or self._best
        return is_new


def _first_attempt(state: State) -> Attempt | None:
    """An attempt of a ready node."""
    nodes = state.nodes
    return next((a for n, a in state.attempts.items() if n in nodes and not nodes[n].starting), None)


def _ended_epoch(visit: Visit, state: State) -> bool:
    """Whether the config is where the visit left it, after its epoch's end."""
    config = state.configs[visit.unit.config]
    return config.epoch > visit.unit.epoch and config.head == visit.output
