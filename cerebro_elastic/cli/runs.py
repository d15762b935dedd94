"""Commands about the runs of a home as things: list, compare, remove."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table

from cerebro_elastic.cli.commands import Command
from cerebro_elastic.cli.options import Home, Json, argument, echo, echo_json, option, run_ids
from cerebro_elastic.errors import RunError
from cerebro_elastic.reporting.terminal import plain_table, terminal
from cerebro_elastic.system.words import counted, hparams_text, number

if TYPE_CHECKING:
    from cerebro_elastic.runs.catalog import RunSummary
    from cerebro_elastic.runs.comparison import Comparison
    from cerebro_elastic.runs.run import Run

Names = Annotated[
    list[str], argument([], "Run ids, or folders of runs.", metavar="RUN", autocompletion=run_ids)
]
_SHOWN_EPOCHS = 60
"""Longer curves are shown by their end."""
_SHOWN_CONFIGS = 20
"""Further configs are counted."""


class Runs(Command):
    """List the runs of a home, or compare some of them.

    Of each run: its state, its configs, its best value, its size on this machine, its age, and its project,
    the folder of its recipe. The run that changed last is first.

    Two or more runs that you name are compared: recipes, data, code, versions, results, curves, and equal
    configs. Of recipes, data, code and versions only what differs is shown.

    Example: cerebro runs digits digits-2
    """

    names: Names
    home: Home
    as_json: Json

    def __call__(self) -> None:
        from cerebro_elastic.runs.run import Run

        opened = [Run.open(name, home=self.home) for name in self.names]
        if len(opened) < 2:
            self._list(opened)
            return
        comparison = opened[0].compare(*opened[1:])
        if self.as_json:
            echo_json(comparison)
        else:
            _show_comparison(comparison)

    def _list(self, named: Sequence[Run]) -> None:
        """The named runs, or all of the home."""
        from cerebro_elastic.cli.shapes import RunsJson
        from cerebro_elastic.runs.catalog import summaries
        from cerebro_elastic.runs.folder import home_of

        place = home_of(self.home).resolve()
        if not (named or place.is_dir()):
            raise RunError(
                f"there is no folder of runs at {place}: name one with --home; `cerebro run` makes one"
            )
        found = summaries(place, [run.folder for run in named])
        if self.as_json:
            echo_json(RunsJson(home=str(place), runs=found))
        elif not found:
            echo(f"no run in {place}")
        else:
            terminal().print(_runs_table(found))
            for summary in found:
                if summary.problem is not None:
                    terminal().print(f"{summary.run}: {summary.problem}", style="yellow", soft_wrap=True)


class Rm(Command):
    """Remove runs and all that is theirs, or only their checkpoints.

    The command says what goes, and asks. The run's folder goes, its checkpoints and logs wherever they are
    (S3 too), and its keys in a shared etcd. A live run is refused. A dataset that was prepared elsewhere
    stays.

    With --checkpoints the record stays whole, and the command also says what can still be done: export needs
    a config's best checkpoint, extend its last one, replay none. `cerebro verify` lists what was removed.

    Example: cerebro rm digits --checkpoints --keep best
    """

    names: Names
    checkpoints: bool = option(False, "Remove only checkpoints, of runs that have ended.")
    keep: list[str] = option(
        [],
        "With --checkpoints, what stays: `best`, the checkpoint of each config's best epoch; "
        "`last`, each config's last one; `winner`, only the best config's best. May be given again.",
        show_default="best",
    )
    yes: bool = option(False, "Do not ask.", "--yes", "-y")
    home: Home
    as_json: Json

    def __call__(self) -> None:
        if not self.names:
            raise RunError("name the runs to remove; `cerebro runs` lists them")
        if self.checkpoints:
            self._remove_checkpoints()
            return
        if self.keep or self.as_json:
            raise RunError("--keep and --json need --checkpoints, which keeps the runs: add it")
        from cerebro_elastic.runs.folder import find_run
        from cerebro_elastic.runs.removal import Removal

        removals = [Removal.of(find_run(name, self.home)) for name in self.names]
        for removal in removals:
            echo(f"run {removal.folder.run}:")
            for line in removal.lines():
                echo(f"  {line}")
        _agree("Remove this for good?", self.yes)
        for removal in removals:
            removal.perform()
            echo(f"removed run {removal.folder.run}")

    def _remove_checkpoints(self) -> None:
        from cerebro_elastic.cli.shapes import RmJson
        from cerebro_elastic.runs.folder import find_run
        from cerebro_elastic.runs.removal import prune, pruning
        from cerebro_elastic.runs.results.result import RunResult

        results = [RunResult(find_run(name, self.home)) for name in self.names]
        planned = [(result, pruning(result, self.keep or ["best"])) for result in results]
        work = [(result, found) for result, found in planned if found.urls]
        if not self.as_json:
            for _, found in planned:
                for number, line in enumerate(found.lines()):
                    echo(f"{'  ' if number else ''}{line}")
        if work:
            _agree("Remove these checkpoints for good?", self.yes)
        for result, found in work:
            prune(result, found)
            if not self.as_json:
                echo(f"removed checkpoints of run {result.run}")
        if self.as_json:
            echo_json(RmJson(runs=[found for _, found in planned]))


def _agree(question: str, yes: bool) -> None:
    """Continue if the person agrees. Raises ``RunError`` without a terminal to ask."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise RunError("nothing was removed: this is no terminal, so there is no one to confirm; pass --yes")
    if not typer.confirm(question):
        echo("nothing was removed")
        raise typer.Exit(1)


def _runs_table(found: Iterable[RunSummary]) -> Table:

    from cerebro_elastic.reporting.tables import bytes_text

    found = list(found)
    projects = {summary.project for summary in found}
    table = plain_table(
        *(Column(name, no_wrap=name in ("run", "state")) for name in ("run", "state", "configs", "best")),
        *(Column(name, justify="right", no_wrap=True) for name in ("size", "age")),
        *([Column("project", overflow="fold")] if len(projects) > 1 else []),
    )
    names = Counter(project.rpartition("/")[2] for project in projects)
    for summary in found:
        name, size = summary.project.rpartition("/")[2], bytes_text(summary.bytes)
        table.add_row(
            summary.run,
            summary.state,
            ", ".join(f"{count} {status}" for status, count in summary.configs.items()),
            "" if summary.best is None else f"{summary.metric} {number(summary.best)}",
            f"{size} + {summary.storage.partition(':')[0]}" if summary.storage else size,
            _age(summary.changed),
            *([name if names[name] == 1 else summary.project] if len(projects) > 1 else []),
        )
    return table


def _age(changed: float) -> str:
    """``5 s``, ``12 min``, ``3 h`` or ``8 d``."""
    seconds = max(0.0, time.time() - changed)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def _show_comparison(comparison: Comparison) -> None:

    from cerebro_elastic.reporting.tables import sparkline

    def text(value: object) -> str:
        if value is None:
            return "-"
        return hparams_text(value) if isinstance(value, dict) else number(value)

    table = plain_table("", "", *(Column(name, overflow="fold") for name in comparison.runs))
    before = None
    for row in comparison.rows:
        shown = "" if row.subject == before else row.subject
        before = row.subject
        table.add_row(shown, row.name, *map(text, row.values))
    longest = max(map(len, comparison.curves), default=0)
    curves = [sparkline([value for value in curve if value is not None]) for curve in comparison.curves]
    table.add_row("curves", "of the best config", *curves)
    for epoch in range(max(0, longest - _SHOWN_EPOCHS), longest):
        values = (curve[epoch] if epoch < len(curve) else None for curve in comparison.curves)
        table.add_row("", f"epoch {epoch + 1}", *map(text, values))
    for place, config in enumerate(comparison.configs[:_SHOWN_CONFIGS]):
        name = f"{hparams_text(config.hparams)}{' =' if config.same else ''}"
        table.add_row("" if place else "configs", name, *map(text, config.values))
    console = terminal()
    console.print(table)
    same = [
        s for s in ("recipe", "data", "code", "versions") if all(row.subject != s for row in comparison.rows)
    ]
    if same:
        console.print(f"the same in all: {', '.join(same)}", soft_wrap=True)
    if (more := len(comparison.configs) - _SHOWN_CONFIGS) > 0:
        console.print(f"and {counted(more, 'config')} that several runs have (--json has all)")
    if any(config.same for config in comparison.configs):
        console.print("=: bit for bit the same, as far as all of these runs have come")
    if len(set(comparison.metrics)) > 1:
        console.print("note: the objectives differ, so their values cannot be compared", style="yellow")
