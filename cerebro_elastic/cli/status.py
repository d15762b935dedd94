"""Commands that show the state of a run, and of this machine."""

from __future__ import annotations

import typer
from rich.table import Column
from rich.text import Text

from cerebro_elastic.cli.commands import InPlace, OnLastRun
from cerebro_elastic.cli.options import Json, Verbose, echo, echo_json
from cerebro_elastic.cli.output import head_text, state_json
from cerebro_elastic.cli.shapes import DoctorJson
from cerebro_elastic.errors import RunError
from cerebro_elastic.reporting.budget import budget_outlook
from cerebro_elastic.reporting.gap import search_end
from cerebro_elastic.reporting.profiles import profile_rows, profiles_view
from cerebro_elastic.reporting.progress import progress_view
from cerebro_elastic.reporting.terminal import plain_table, terminal
from cerebro_elastic.runs.folder import home_of

_LINES = 60
"""The most lines of nodes and configs, unless all are asked for."""


class Status(OnLastRun):
    """Show the state of a run, live or ended.

    Of many configs it shows the best, those in training and those that failed. With --verbose it shows all,
    and what each of several strategies takes.

    Example: cerebro status digits --verbose
    """

    verbose: Verbose
    as_json: Json

    def __call__(self) -> None:
        from cerebro_elastic.runs.counting import counting_text

        if self.verbose and self.as_json:
            raise RunError("--verbose would do nothing with --json, which has it all: leave it out")
        run = self.opened()
        now = run.status()
        objective = run.spec.objective
        end = search_end(run.spec.recipe)
        if self.as_json:
            echo_json(state_json(run.id, now, objective, end))
            return
        console = terminal()
        how = "live" if now.live else now.state.outcome or "not running; the same `cerebro run` continues it"
        led = f", led by {now.state.leader}" if now.state.leader else ""
        console.print(f"run {run.id}: {how}{led}", soft_wrap=True)
        outlook = budget_outlook(now.state, end)
        notes = [outlook.text] if outlook is not None else []
        waits = now.live and now.state.usage.began is None  # rows are counted before the first unit
        if waits and (counting := counting_text(run.spec)) is not None:
            notes.append(counting)
        lines = None if self.verbose else _LINES
        console.print(
            progress_view(now.state, objective, None, lines, verbose=self.verbose, notes=notes, end=end)
        )
        if self.verbose and (profiles := profile_rows(now.state)):
            console.print(profiles_view(profiles))
        if now.head is not None:
            console.print(head_text(run.id, now.head), soft_wrap=True)


class Doctor(InPlace):
    """Check what a run needs on this machine, and show what works.

    Example: cerebro doctor --home /scratch/runs
    """

    as_json: Json

    def __call__(self) -> None:
        from cerebro_elastic.runs.start.doctor import examine, next_step

        table = plain_table("", "", Column(overflow="fold"), show_header=False)
        marks = {True: Text("ok", "green"), False: Text("bad", "red"), None: Text("absent", "yellow")}
        findings = list(examine(home_of(self.home), self.store))
        for finding in findings:
            table.add_row(marks[finding.ok], finding.what, finding.detail)
        if self.as_json:
            echo_json(DoctorJson(findings=findings))
        else:
            terminal().print(table)
            if (advice := next_step(findings)) is not None:
                echo(advice)
        if any(finding.ok is False for finding in findings):
            raise typer.Exit(1)
