"""``cerebro simulate``: a run on a virtual clock."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from cerebro_elastic.cli.options import (
    NO_CACHE_LIMIT,
    Epochs,
    Home,
    Json,
    RecipeFile,
    echo,
    echo_json,
    overrides,
)
from cerebro_elastic.cli.shapes import SimulateJson
from cerebro_elastic.core.history.members import statuses
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import UnitCommitted
from cerebro_elastic.errors import RecipeError, RunError
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.reporting.tables import clock_text
from cerebro_elastic.reporting.terminal import plain_table, terminal
from cerebro_elastic.runs.forecast.simulate import SimulatedRun
from cerebro_elastic.runs.forecast.simulate import simulate as simulate_run
from cerebro_elastic.scheduling.openshop.checks import LARGEST
from cerebro_elastic.simulation import Times, read_times
from cerebro_elastic.system.words import counted


def simulate(
    recipe: RecipeFile,
    nodes: Annotated[str | None, typer.Option(help="Number of nodes, instead of the recipe's.")] = None,
    epochs: Epochs = None,
    seed: Annotated[int | None, typer.Option(help="Seed, instead of the recipe's.")] = None,
    seconds: Annotated[
        str | None,
        typer.Option(
            help="Seconds of a unit: a number, or a JSON file by config and node.", show_default="10"
        ),
    ] = None,
    like: Annotated[
        str | None, typer.Option("--from", help="Take seconds of units, and curves, from this recorded run.")
    ] = None,
    noise: Annotated[
        float, typer.Option(min=0, max=3, help="Spread of the units' seconds (sigma of a log-normal).")
    ] = 0.0,
    faults: Annotated[
        Path | None, typer.Option(help="A file with lines like `kill node-1 at 30 for 10`.")
    ] = None,
    report: Annotated[str | None, typer.Option(help="Write a report page: a file or URL.")] = None,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Simulate a run: how long it takes, and how busy its nodes are. Nothing is trained.

    The simulation makes the decisions of a live run. The seconds of units come from --seconds, or from a
    recorded run (--from).

    Example: cerebro simulate recipes/digits.yaml --nodes 4 --seconds 12 --noise 0.2
    """
    from cerebro_elastic.runs.results.report import write_page

    checked = load_recipe(recipe, **overrides(nodes=nodes, epochs=epochs, seed=seed))
    result = simulate_run(
        checked,
        seconds=_times(seconds),
        like=like,
        noise=noise,
        faults=_text(faults),
        start_time=time.time() if report else 0.0,
        home=home,
    )
    if report is not None:
        write_page(result.spec, result.simulation.events, report)
    if as_json:
        echo_json(_json(result))
    else:
        _show(result, report)
        if checked.node.cache_bytes is not None:
            echo(NO_CACHE_LIMIT)
    if result.simulation.state.outcome is None:
        raise RunError(
            f"the run stands still after {clock_text(result.simulation.seconds)}: no node is left that could "
            "do a unit, and none comes; give it nodes that come back (`kill NODE at 30 for 10`, `join`)"
        )


def _times(seconds: str | None) -> Times | None:
    if seconds is None:
        return None
    try:
        number = float(seconds)
    except ValueError:
        return read_times(Path(seconds))
    if not 0 < number <= LARGEST:
        raise RecipeError(
            f"--seconds is {seconds}: a unit takes a number above 0, at most {LARGEST:g}, or what a JSON "
            "file says"
        )
    return Times(usual=number)


def _text(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as exc:
        raise RecipeError(
            f"the faults cannot be read: {exc}: --faults names a file of sentences, one on each line, such "
            "as `kill node-1 at 30 for 10` (docs/how-to/forecast.md)"
        ) from exc


def _json(result: SimulatedRun) -> SimulateJson:
    simulation = result.simulation
    return {
        "run": result.spec.plan.run,
        "outcome": simulation.state.outcome,
        "seconds": simulation.seconds,
        "idle": result.idle,
        "visits": _visits(result),
        "configs": _configs(result),
        "nodes": {share.node: share.values() for share in result.shares},
    }


def _show(result: SimulatedRun, report: str | None) -> None:
    console = terminal()
    numbers = ("visits", "training", "hops", "profiles", "lost", "quarantine", "idle")
    table = plain_table("node", *numbers, right=numbers)
    for share in result.shares:
        idle = (share.quarantined, share.idle)
        seconds = (share.training, share.hopping, share.profiling, share.lost, *idle)
        present = share.present or 1.0
        table.add_row(share.node, str(share.visits), *(f"{part / present:.1%}" for part in seconds))
    ended = ", ".join(f"{count} {status}" for status, count in _configs(result).items() if count)
    took = f"{clock_text(result.simulation.seconds)} ({result.simulation.seconds:.1f} s)"
    console.print(
        f"{took} for {counted(_visits(result), 'unit')}; nodes idle {result.idle:.1%}; "
        f"configs: {ended or 'none'}",
        soft_wrap=True,
    )
    console.print(table)
    if report is not None:
        console.print(f"report: {report}", soft_wrap=True)


def _visits(result: SimulatedRun) -> int:
    return sum(isinstance(event, UnitCommitted) for event in result.simulation.events)


def _configs(result: SimulatedRun) -> dict[str, int]:
    """The number of configs of each status."""
    known = statuses(result.simulation.state.configs.values())
    return {status.value: known[status.value] for status in Status}
