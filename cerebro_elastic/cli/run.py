"""``cerebro run``: a whole run on this machine. Heavy modules are imported after its first line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cerebro_elastic.cli.options import (
    Checkpoints,
    Epochs,
    Etcd,
    Grace,
    Home,
    Json,
    RunId,
    Verbose,
    echo,
    overrides,
    stopped_as_by_ctrl_c,
    store_of,
)
from cerebro_elastic.config import GRACE
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.runs.start.imports import SharedImports

if TYPE_CHECKING:
    from cerebro_elastic.runs.folder import RunFolder


def run(
    recipe: Annotated[
        Path | None, typer.Argument(help="The recipe, a YAML file.", show_default=False)
    ] = None,
    run_id: RunId = None,
    nodes: Annotated[
        str | None, typer.Option(help="Number of nodes on this machine, instead of the recipe's.")
    ] = None,
    epochs: Epochs = None,
    checkpoints: Checkpoints = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Delete what an earlier run of this id has left.")
    ] = False,
    home: Home = None,
    etcd: Etcd = None,
    grace: Grace = GRACE,
    verbose: Verbose = False,
    as_json: Json = False,
    ui: Annotated[
        bool, typer.Option("--ui", help="Serve the live page beside the run (see `cerebro ui`).")
    ] = False,
) -> None:
    """Run a recipe on this machine, or continue an unfinished run of it.

    Ctrl-C or SIGTERM stops the run cleanly; the same command continues it. Nodes may join at any time.

    Example: cerebro run recipes/digits.yaml --nodes 2
    """
    if recipe is None:
        raise RecipeError(
            "name a recipe: cerebro run my_run.yaml. `cerebro init digits` writes one to begin with, and "
            "`cerebro init` lists others"
        )
    echo(f"reading {recipe}", err=as_json)
    from cerebro_elastic.recipes import load_recipe

    checked = load_recipe(recipe, **overrides(nodes=nodes, epochs=epochs, checkpoints=checkpoints))
    try:
        with SharedImports() as imports:  # they go on beside our own below
            from cerebro_elastic.cli.output import in_vain, json_text, outcome_json, show_outcome
            from cerebro_elastic.reporting.terminal import terminal
            from cerebro_elastic.runs.live import LiveView
            from cerebro_elastic.runs.start.launch import Launch

            launch = Launch.of(
                checked, run_id=run_id, home=home, fresh=fresh, store=store_of(etcd), grace=grace
            )
            view = LiveView(launch.recipe.objective, terminal(stderr=as_json), verbose=verbose)
            with stopped_as_by_ctrl_c(grace), _page(launch.folder) if ui else nullcontext(), view:
                result = launch(view.watcher, imports)
    except KeyboardInterrupt:
        echo("stopped; what was committed is safe. The same command goes on from there.", err=True)
        raise typer.Exit(130) from None

    if as_json:
        echo(json_text(outcome_json(result)))
    else:
        show_outcome(result)
    if in_vain(result):
        raise typer.Exit(1)


@contextmanager
def _page(folder: RunFolder) -> Iterator[None]:
    """Serve the live page, in a thread."""
    from cerebro_elastic.ui.places import Places
    from cerebro_elastic.ui.serve import served

    with served(Places(folder.path.parent), folder.run) as address:
        echo(f"live page: {address}", err=True)
        yield
