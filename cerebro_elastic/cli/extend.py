"""``cerebro extend``: more epochs or configs for a run that has ended."""

from __future__ import annotations

from typing import Annotated

import typer

from cerebro_elastic.cli.options import (
    Etcd,
    Grace,
    Home,
    Json,
    Run,
    Verbose,
    echo,
    stopped_as_by_ctrl_c,
    store_of,
)
from cerebro_elastic.config import GRACE
from cerebro_elastic.runs.start.imports import SharedImports


def extend(
    run: Run,
    epochs: Annotated[int | None, typer.Option(help="Epochs of each config in all.")] = None,
    num: Annotated[int | None, typer.Option(help="Configs that the search may propose in all.")] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A greater bound of search.budget, e.g. units=400."),
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option(help="Only this config gets more epochs; may be given again.")
    ] = None,
    top: Annotated[int | None, typer.Option(help="Only so many of the best configs get more epochs.")] = None,
    by: Annotated[str, typer.Option(help="Who asks, for the record.")] = "",
    home: Home = None,
    etcd: Etcd = None,
    grace: Grace = GRACE,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Let a run that has ended go on, as if it had been that long from the start.

    It is refused where a training or the search depends on the number of epochs, with the names of what does.
    Ctrl-C stops the run cleanly; `cerebro run` with its recipe continues it.

    Example: cerebro extend digits --epochs 20 --top 3
    """
    bounds = dict(map(_bound, budget or []))
    try:
        with SharedImports() as imports:
            from cerebro_elastic.cli.output import in_vain, json_text, outcome_json, show_outcome
            from cerebro_elastic.reporting.terminal import terminal
            from cerebro_elastic.runs.live import LiveView
            from cerebro_elastic.runs.results.result import open_run
            from cerebro_elastic.runs.start.extend import extend as perform

            store = store_of(etcd)
            objective = open_run(run, home=home, store=store).recipe.objective
            view = LiveView(objective, terminal(stderr=as_json), verbose=verbose)
            with stopped_as_by_ctrl_c(grace), view:
                result = perform(
                    run,
                    epochs=epochs,
                    num=num,
                    budget=bounds,
                    configs=config or (),
                    top=top,
                    by=by,
                    home=home,
                    store=store,
                    grace=grace,
                    watcher=view.watcher,
                    imports=imports,
                )
    except KeyboardInterrupt:
        echo(
            "stopped; what was committed is safe. `cerebro run` with the run's recipe goes on from there.",
            err=True,
        )
        raise typer.Exit(130) from None
    if as_json:
        echo(json_text(outcome_json(result)))
    else:
        show_outcome(result)
    if in_vain(result):
        raise typer.Exit(1)


def _bound(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError as exc:
        raise typer.BadParameter(f"{text!r} is not KEY=NUMBER, such as units=400") from exc
