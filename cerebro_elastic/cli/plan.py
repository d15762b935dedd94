"""``cerebro plan``: the time, cost and memory of a recipe's run before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from cerebro_elastic.cli.options import NO_CACHE_LIMIT, Epochs, Home, Json, RecipeFile, echo_json, overrides
from cerebro_elastic.cli.shapes import MeasuredJson, OptionJson, PlanJson, PlannedJson
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.reporting.tables import brief, bytes_text, clock_text
from cerebro_elastic.reporting.terminal import plain_table, terminal
from cerebro_elastic.runs.forecast.plan import RunForecast, data_share
from cerebro_elastic.runs.forecast.plan import plan as forecast
from cerebro_elastic.runs.forecast.plan_candidates import Option, PlanCandidate
from cerebro_elastic.system.words import counted
from cerebro_elastic.training.unit_runner import StrategyCost


def plan(
    recipe: RecipeFile,
    nodes: Annotated[
        str | None, typer.Option(help="Numbers of nodes to compare.", show_default="1,2,4,8 and the recipe's")
    ] = None,
    partitions: Annotated[
        str | None,
        typer.Option(
            help="Numbers of partitions to compare.", show_default="the recipe's, and the numbers of nodes"
        ),
    ] = None,
    epochs: Epochs = None,
    price: Annotated[
        float | None, typer.Option(min=0, help="The price of a node for an hour, in any currency.")
    ] = None,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Forecast a run's time, cost, memory and traffic, and find the best numbers of nodes and partitions.

    The command trains a few batches here by each parallelism of the recipe, and simulates the rest.

    Example: cerebro plan recipes/digits.yaml --nodes 1,2,4 --price 2.50
    """
    checked = load_recipe(recipe, **overrides(epochs=epochs))
    console = terminal(stderr=True)
    forecasts = forecast(
        checked,
        nodes=_numbers(nodes, "--nodes"),
        partitions=_numbers(partitions, "--partitions"),
        home=home,
        say=lambda text: console.print(text, soft_wrap=True, style="dim"),
    )
    if as_json:
        echo_json(_json(forecasts, price))
    else:
        _show(terminal(), checked, forecasts, price)


_WAITS = 0.05
"""From which share of a unit's time on it is said that it waits for data."""
_WORTH_SAYING = 0.005
"""A smaller cost of even progress is noise."""


def _numbers(text: str | None, option: str) -> list[int]:
    """``1,2,4``."""
    numbers = [] if text is None else [part.strip() for part in text.split(",")]
    if not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise RecipeError(f"{option} is {text!r}: give whole numbers above 0, like 1,2,4")
    return [int(number) for number in numbers]


def _show(console: Console, recipe: Recipe, forecasts: RunForecast, price: float | None) -> None:
    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    size = forecasts.measurement.bytes
    shown_size = "they stay in your dataset" if size is None else bytes_text(size)
    profiled = {profile.config for profile in forecasts.measurement.profiles}
    say(
        f"{recipe.name}: {counted(forecasts.configs, 'config')}, up to {counted(recipe.epochs, 'epoch')} of "
        f"{counted(forecasts.measurement.rows, 'row')} ({shown_size}); "
        f"{len(profiled)} profiled here, about a second each\n"
    )
    console.print(_options_table(forecasts, price))
    memory = ", ".join(f"{strategy} {bytes_text(most)}" for strategy, most in forecasts.memory.items())
    share = data_share(recipe, [p for p in forecasts.measurement.profiles if p.refusal is None])
    if share >= _WAITS:
        say(
            f"\nData: a unit waits for batches in {share:.0%} of its time where it is the first to need "
            "them; the other configs on its host take those that it has made."
        )
    say(f"\nMemory of a rank, on top of what its process has anyway: {memory}")
    if forecasts.left_out:
        say("\nLeft out (docs/how-to/forecast.md says by which rules):")
        for line in _left_out(forecasts):
            say(line)
    if forecasts.communication:
        say(f"\nBytes over the network (Table 2 of the Cerebro paper), for {forecasts.best.candidate}:")
        console.print(_communication_table(forecasts))
        if size is None:
            say(
                "Methods that copy the data are left out, and so is what the nodes read: the rows stay in "
                "your dataset, and how many bytes they have is not known."
            )
    else:
        say("\nBytes over the network are not known: the task cannot be left in the middle of a unit.")
    if forecasts.stopped:
        say(
            f"\nThe search stopped {counted(forecasts.stopped, 'config')} by made-up curves: how many it "
            "will stop, and so how long the run takes, is a guess."
        )
    if forecasts.evenness > _WORTH_SAYING:
        say(
            f"\nKeeping configs within an epoch of each other would cost {forecasts.evenness:.1%} of the "
            "time: they are kept so only where it costs nothing, or with `progress: even`."
        )
    if recipe.node.cache_bytes is not None:
        say(f"\n{NO_CACHE_LIMIT}")
    say(f"\nBest in time times cost: {_as_recipe(recipe, forecasts.best.candidate)}")


def _options_table(forecasts: RunForecast, price: float | None) -> Table:
    sizes, cost = ("nodes", "parts"), () if price is None else ("cost",)
    numbers = ("makespan", "node h", *cost, "gap", "idle")
    columns = (*sizes, "parallelism", *numbers, "")
    table = plain_table(*columns, right=sizes + numbers, fixed=columns)
    cheapest = min(forecasts.options, key=lambda option: option.hours)
    marks = {cheapest.candidate: "cheapest", forecasts.options[0].candidate: "fastest"}
    marks[forecasts.best.candidate] = "best"
    for option in forecasts.options:
        table.add_row(
            str(option.candidate.nodes),
            str(option.candidate.partitions),
            str(option.candidate.strategy),
            clock_text(option.seconds) if option.seconds >= 60 else f"{option.seconds:.1f} s",
            f"{option.hours:.3g}",
            *([] if price is None else [f"{price * option.hours:.3g}"]),
            f"{option.gap:.0%}",
            f"{option.idle:.0%}",
            marks.get(option.candidate, ""),
        )
    return table


def _left_out(forecasts: RunForecast) -> Iterator[str]:
    """A line for each reason."""
    reasons: dict[str, list[PlanCandidate]] = {}
    for candidate, why in forecasts.left_out.items():
        reasons.setdefault(why, []).append(candidate)
    for why, candidates in reasons.items():
        more = f" and {len(candidates) - 1} more" if len(candidates) > 1 else ""
        yield f"  {candidates[0]}{more}: {brief(why, 300)}"


def _communication_table(forecasts: RunForecast) -> Table:
    columns = ("  trained by", "formula", "bytes", "ratio")
    table = plain_table(*columns, right=("bytes", "ratio"), fixed=columns)
    own = forecasts.communication[0].bytes
    for cost in forecasts.communication:
        table.add_row(f"  {cost.name}", cost.formula, bytes_text(cost.bytes), f"{cost.bytes / own:.3g}")
    return table


def _as_recipe(recipe: Recipe, candidate: PlanCandidate) -> str:
    """The lines for the recipe."""
    keys = [f"nodes: {candidate.nodes}"]
    if recipe.data.url is None:
        keys.append(f"data: {{partitions: {candidate.partitions}}}")
    if candidate.strategy != Strategy():
        keys.append(f"parallelism: [{candidate.strategy.parallelism}] ({candidate.strategy})")
    return ", ".join(keys)


def _json(forecasts: RunForecast, price: float | None) -> PlanJson:
    return {
        "configs": forecasts.configs,
        "rows": forecasts.measurement.rows,
        "bytes": forecasts.measurement.bytes,
        "options": [_option(forecasts, option, price) for option in forecasts.options],
        "best": _option(forecasts, forecasts.best, price),
        "left_out": [{**_candidate(candidate), "why": why} for candidate, why in forecasts.left_out.items()],
        "profiles": [_profile(profile) for profile in forecasts.measurement.profiles],
        "evenness": forecasts.evenness,
        "traffic": {cost.name: cost.bytes for cost in forecasts.communication},
    }


def _profile(profile: StrategyCost) -> MeasuredJson:
    return {
        "config": profile.config,
        "strategy": str(profile.strategy),
        "beside": profile.concurrent_units,
        "batch": profile.batch_seconds,
        "data": profile.data_seconds,
        "fixed": profile.fixed_seconds,
        "hop": profile.hop_seconds,
        "saving": profile.save_seconds,
        "bytes": profile.peak_bytes,
        "state": profile.state_bytes,
        "refusal": profile.refusal,
    }


def _option(forecasts: RunForecast, option: Option, price: float | None) -> OptionJson:
    return {
        **_candidate(option.candidate),
        "seconds": option.seconds,
        "node_hours": option.hours,
        "cost": None if price is None else price * option.hours,
        "gap": option.gap,
        "idle": option.idle,
        "memory": forecasts.memory[option.candidate.strategy],
    }


def _candidate(candidate: PlanCandidate) -> PlannedJson:
    return {
        "nodes": candidate.nodes,
        "partitions": candidate.partitions,
        "strategy": str(candidate.strategy),
        "ranks": candidate.strategy.ranks,
    }
