"""``cerebro run``: a whole run on this machine. What takes long to import is imported when the first line is
on the screen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cerebro_elastic.cli.options import Etcd, Grace, Home, Json, Verbose, echo, stopped_as_by_ctrl_c, store_of
from cerebro_elastic.config import GRACE
from cerebro_elastic.errors import RecipeError, RunError

if TYPE_CHECKING:
    from cerebro_elastic.runs.result import RunResult


def run(
    recipe: Annotated[
        Path | None, typer.Argument(help="The recipe, a YAML file.", show_default=False)
    ] = None,
    run_id: Annotated[
        str | None, typer.Option(help="The run's id.", show_default="the recipe's name")
    ] = None,
    nodes: Annotated[str | None, typer.Option(help="Number of local nodes, instead of the recipe's.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs, instead of the recipe's.")] = None,
    checkpoints: Annotated[
        str | None, typer.Option(help="URL for checkpoints and logs, instead of the recipe's: s3://...")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Throw away what a run of this id has left.")
    ] = False,
    home: Home = None,
    etcd: Etcd = None,
    grace: Grace = GRACE,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Run a recipe on this machine, or go on with an unfinished run of it.

    Ctrl-C or SIGTERM stops it cleanly; the same command goes on where it stood. Nodes may join at any time.
    """
    if recipe is None:
        raise RecipeError(
            "name a recipe: cerebro run my_run.yaml. `cerebro init digits` writes one to begin with, and "
            "`cerebro init` lists others"
        )
    echo(f"reading {recipe}", err=as_json)  # what is imported now takes a second
    from cerebro_elastic.recipes import load_recipe
    from cerebro_elastic.report.terminal import terminal
    from cerebro_elastic.runs.launch import run as launch
    from cerebro_elastic.runs.live import LiveView

    given: dict[str, Any] = {"nodes": nodes, "epochs": epochs, "checkpoints": checkpoints}
    checked = load_recipe(recipe, **{key: value for key, value in given.items() if value is not None})
    view = LiveView(checked.objective, terminal(stderr=as_json), verbose=verbose)
    try:
        with stopped_as_by_ctrl_c(), view:
            result = launch(
                checked,
                run_id=run_id,
                home=home,
                fresh=fresh,
                store=store_of(etcd),
                grace=grace,
                watcher=view.watcher,
            )
    except KeyboardInterrupt:
        echo("stopped; what was committed is safe. The same command goes on from there.", err=True)
        raise typer.Exit(130) from None
    if as_json:
        from cerebro_elastic.cli.shown import json_text, outcome_json

        echo(json_text(outcome_json(result)))
    else:
        _show_outcome(result)
    rows = result.leaderboard
    if all(row.status == "failed" for row in rows) or all(row.best is None for row in rows):
        raise typer.Exit(1)


def _show_outcome(result: RunResult) -> None:
    from cerebro_elastic.cli.shown import head_text
    from cerebro_elastic.report.failures import failures_told
    from cerebro_elastic.report.tables import leaderboard_table
    from cerebro_elastic.report.terminal import terminal
    from cerebro_elastic.runs.beside import known

    console = terminal()
    console.print(leaderboard_table(result.leaderboard, result.recipe.objective.metric))
    failed = list(failures_told(result.leaderboard, result.events, result.folder.logs))
    for text in failed:
        console.print(text, style="red", soft_wrap=True)
    if failed:
        console.print("to train these again: correct it, and start the run anew with --fresh", soft_wrap=True)
    try:
        best = result.best
    except RunError as error:
        if not all(row.status == "failed" for row in result.leaderboard):
            console.print(str(error), style="yellow", soft_wrap=True)
    else:
        assert best.best_checkpoint is not None
        console.print(f"best checkpoint: {best.best_checkpoint.url}", soft_wrap=True)
    console.print(f"curves: {result.folder.curves}", soft_wrap=True)
    console.print(f"report: {result.folder.report}", soft_wrap=True)
    if result.head is not None:
        console.print(head_text(result.head), soft_wrap=True)
    name = result.run
    console.print(f"next: cerebro verify {name}, cerebro replay {name} --config CONFIG")
    for each in known(result.folder):
        if not each.exactness.outcome.good and not (failed and each.exactness.outcome.bad):
            console.print(f"note: {each.text}", style="yellow", soft_wrap=True)
