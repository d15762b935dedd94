"""``cerebro plan``: what a recipe's run will take, before there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from cerebro_elastic.cli.options import Home, Json, echo
from cerebro_elastic.cli.output import json_text
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.reporting.tables import brief, bytes_text, clock_text
from cerebro_elastic.reporting.terminal import terminal
from cerebro_elastic.runs.forecast.candidates import Option, PlanCandidate
from cerebro_elastic.runs.forecast.plan import Forecasts
from cerebro_elastic.runs.forecast.plan import plan as forecast
from cerebro_elastic.words import counted


def plan(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file.")],
    nodes: Annotated[
        str | None, typer.Option(help="Numbers of nodes to compare.", show_default="1,2,4,8 and the recipe's")
    ] = None,
    partitions: Annotated[
        str | None,
        typer.Option(
            help="Numbers of partitions to compare.", show_default="the recipe's, and the numbers of nodes"
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs, instead of the recipe's.")] = None,
    price: Annotated[float | None, typer.Option(min=0, help="What an hour of a node costs.")] = None,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Forecast what a run takes, and on which nodes and partitions it is best: time, cost, memory, bytes.

    A few batches are trained on this machine for each parallelism of the recipe; the rest is simulated.
    """
    checked = load_recipe(recipe) if epochs is None else load_recipe(recipe, epochs=epochs)
    console = terminal(stderr=True)
    found = forecast(
        checked,
        nodes=_numbers(nodes, "--nodes"),
        partitions=_numbers(partitions, "--partitions"),
        home=home,
        say=lambda text: console.print(text, soft_wrap=True, style="dim"),
    )
    if as_json:
        echo(json_text(_json(found, price)))
    else:
        _show(terminal(), checked, found, price)


_WORTH_SAYING = 0.005
"""A cost of even progress below this is that of chance."""


def _numbers(text: str | None, option: str) -> list[int]:
    """``1,2,4``."""
    numbers = [] if text is None else [part.strip() for part in text.split(",")]
    if not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise RecipeError(f"{option} is {text!r}: give whole numbers above 0, like 1,2,4")
    return [int(number) for number in numbers]


def _show(console: Console, recipe: Recipe, found: Forecasts, price: float | None) -> None:
    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    tried = {profile.config for profile in found.measured.profiles}
    say(
        f"{recipe.name}: {counted(found.configs, 'config')}, up to {counted(recipe.epochs, 'epoch')} of "
        f"{counted(found.measured.rows, 'row')} ({bytes_text(found.measured.bytes)}); {len(tried)} tried "
        "here, about a second each\n"
    )
    console.print(_options_table(found, price))
    memory = ", ".join(f"{strategy} {bytes_text(most)}" for strategy, most in found.memory.items())
    say(f"\nMemory of a rank, on top of what its process has anyway: {memory}")
    if found.left_out:
        say("\nLeft out (docs/how-to/forecast.md says by which rules):")
        for line in _left_out(found):
            say(line)
    if found.ways:
        say(f"\nBytes over the network (Table 2 of the Cerebro paper), for {found.best.candidate}:")
        console.print(_ways_table(found))
    else:
        say("\nBytes over the network are not known: the task cannot be left in the middle of a unit.")
    if found.stopped:
        say(
            f"\nThe search stopped {counted(found.stopped, 'config')} by curves that were made up: how many "
            "it will stop, and so how long the run takes, is a guess."
        )
    if found.evenness > _WORTH_SAYING:
        say(
            f"\nKeeping configs within an epoch of each other would cost {found.evenness:.1%} of the time: "
            "they are kept so only where it costs nothing, or with `progress: even`."
        )
    say(f"\nBest in time times cost: {_as_recipe(recipe, found.best.candidate)}")


def _options_table(found: Forecasts, price: float | None) -> Table:
    cost = [] if price is None else ["cost"]
    table = _table("nodes", "parts", "parallelism", "makespan", "node h", *cost, "gap", "idle", "")
    cheapest = min(found.options, key=lambda option: option.hours)
    marks = {cheapest.candidate: "cheapest", found.options[0].candidate: "fastest"}
    marks[found.best.candidate] = "best"
    for option in found.options:
        table.add_row(
            str(option.candidate.nodes),
            str(option.candidate.partitions),
            option.candidate.strategy.label,
            clock_text(option.seconds) if option.seconds >= 60 else f"{option.seconds:.1f} s",
            f"{option.hours:.3g}",
            *([] if price is None else [f"{price * option.hours:.3g}"]),
            f"{option.gap:.0%}",
            f"{option.idle:.0%}",
            marks.get(option.candidate, ""),
        )
    return table


def _left_out(found: Forecasts) -> Iterator[str]:
    """A line for each reason."""
    reasons: dict[str, list[PlanCandidate]] = {}
    for candidate, why in found.left_out.items():
        reasons.setdefault(why, []).append(candidate)
    for why, candidates in reasons.items():
        more = f" and {len(candidates) - 1} more" if len(candidates) > 1 else ""
        yield f"  {candidates[0]}{more}: {brief(why, 300)}"


def _ways_table(found: Forecasts) -> Table:
    table = _table("  trained by", "formula", "bytes", "ratio")
    own = found.ways[0].bytes
    for way in found.ways:
        table.add_row(f"  {way.name}", way.formula, bytes_text(way.bytes), f"{way.bytes / own:.3g}")
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in columns:
        words = name in ("parallelism", "  trained by", "formula", "")
        table.add_column(name, justify="left" if words else "right", no_wrap=True)
    return table


def _as_recipe(recipe: Recipe, candidate: PlanCandidate) -> str:
    """What to write into the recipe."""
    told = [f"nodes: {candidate.nodes}"]
    if recipe.data.url is None:
        told.append(f"data: {{partitions: {candidate.partitions}}}")
    if candidate.strategy != Strategy():
        told.append(f"parallelism: [{candidate.strategy.parallelism}] ({candidate.strategy})")
    return ", ".join(told)


def _json(found: Forecasts, price: float | None) -> dict[str, Any]:
    return {
        "configs": found.configs,
        "rows": found.measured.rows,
        "bytes": found.measured.bytes,
        "options": [_option(found, option, price) for option in found.options],
        "best": _option(found, found.best, price),
        "left_out": [{**_candidate(candidate), "why": why} for candidate, why in found.left_out.items()],
        "trials": [
            {
                "config": profile.config,
                "choice": profile.strategy.label,
                "beside": profile.beside,
                "batch": profile.batch,
                "fixed": profile.fixed,
                "hop": profile.hop,
                "saving": profile.saving,
                "bytes": profile.bytes,
                "state": profile.state,
                "refusal": profile.refusal,
            }
            for profile in found.measured.profiles
        ],
        "evenness": found.evenness,
        "traffic": {way.name: way.bytes for way in found.ways},
    }


def _option(found: Forecasts, option: Option, price: float | None) -> dict[str, Any]:
    return {
        **_candidate(option.candidate),
        "seconds": option.seconds,
        "node_hours": option.hours,
        "cost": None if price is None else price * option.hours,
        "gap": option.gap,
        "idle": option.idle,
        "memory": found.memory[option.candidate.strategy],
    }


def _candidate(candidate: PlanCandidate) -> dict[str, Any]:
    return {
        "nodes": candidate.nodes,
        "partitions": candidate.partitions,
        "choice": candidate.strategy.label,
        "ranks": candidate.strategy.ranks,
    }
