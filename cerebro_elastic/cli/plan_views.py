"""The output of ``cerebro plan``: tables for people, objects for programs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from rich.console import Console
from rich.table import Column, Table

from cerebro_elastic.cli.shapes import (
    MeasuredJson,
    OptionJson,
    PlannedJson,
    PlannedRecipeJson,
    SimulatedJson,
    filled,
)
from cerebro_elastic.core.history.members import statuses
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import UnitCommitted
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.reporting.tables import brief, bytes_text, clock_text, money_text
from cerebro_elastic.reporting.terminal import plain_table, terminal
from cerebro_elastic.runs.forecast.live import LiveForecast
from cerebro_elastic.runs.forecast.plan import RunForecast, data_share
from cerebro_elastic.runs.forecast.plan_candidates import Option, PlanCandidate
from cerebro_elastic.runs.forecast.simulate import SimulatedRun
from cerebro_elastic.system.words import counted
from cerebro_elastic.training.unit_runner import StrategyCost

_WAITS = 0.05
"""The share of a unit's time from which on its wait for data is reported."""
_NO_CACHE_LIMIT = (
    "A forecast takes caches as large as needed: with `node.cache_bytes` a host may read a partition again, "
    "which takes longer."
)


def show_planned(console: Console, recipe: Recipe, forecasts: RunForecast, price: float | None) -> None:
    """Show the forecast of a recipe."""

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
    if recipe.choice is not None:
        say(f"\nThe run would have {recipe.choice}")
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
    if recipe.node.cache_bytes is not None:
        say(f"\n{_NO_CACHE_LIMIT}")
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
    """A line for each reason for leaving options out."""
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
    """The candidate as lines of the recipe."""
    keys = [f"nodes: {candidate.nodes}"]
    chosen = recipe.choice is not None and recipe.choice.partitions == candidate.partitions
    if recipe.data.url is None and not chosen:
        keys.append(f"data: {{partitions: {candidate.partitions}}}")
    if candidate.strategy != Strategy():
        keys.append(f"parallelism: [{candidate.strategy.parallelism}] ({candidate.strategy})")
    return ", ".join(keys)


def planned_json(forecasts: RunForecast, price: float | None) -> PlannedRecipeJson:
    """The forecast of a recipe, for programs."""

    def option(option: Option) -> OptionJson:
        memory = forecasts.memory[option.candidate.strategy]
        cost = None if price is None else price * option.hours
        others = {**_candidate(option.candidate), "node_hours": option.hours, "cost": cost, "memory": memory}
        return filled(OptionJson, option, **others)

    return filled(
        PlannedRecipeJson,
        forecasts,
        rows=forecasts.measurement.rows,
        bytes=forecasts.measurement.bytes,
        options=list(map(option, forecasts.options)),
        best=option(forecasts.best),
        left_out=[{**_candidate(candidate), "why": why} for candidate, why in forecasts.left_out.items()],
        profiles=list(map(_profile, forecasts.measurement.profiles)),
        traffic={cost.name: cost.bytes for cost in forecasts.communication},
    )


def _profile(profile: StrategyCost) -> MeasuredJson:
    return filled(
        MeasuredJson,
        profile,
        strategy=str(profile.strategy),
        beside=profile.concurrent_units,
        batch=profile.batch_seconds,
        data=profile.data_seconds,
        fixed=profile.fixed_seconds,
        hop=profile.hop_seconds,
        saving=profile.save_seconds,
        bytes=profile.peak_bytes,
        state=profile.state_bytes,
    )


def _candidate(candidate: PlanCandidate) -> PlannedJson:
    strategy = candidate.strategy
    return filled(PlannedJson, candidate, strategy=str(strategy), ranks=strategy.ranks)


def simulated_json(result: SimulatedRun) -> SimulatedJson:
    """A simulated run for programs."""
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


def show_simulated(recipe: Recipe, result: SimulatedRun) -> None:
    """Show a simulated run."""
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
    if recipe.node.cache_bytes is not None:
        console.print(_NO_CACHE_LIMIT, soft_wrap=True)


def _visits(result: SimulatedRun) -> int:
    return sum(isinstance(event, UnitCommitted) for event in result.simulation.events)


def _configs(result: SimulatedRun) -> dict[str, int]:
    """The number of configs of each status."""
    known = statuses(result.simulation.state.configs.values())
    return {status.value: known[status.value] for status in Status}


def show_live(answer: LiveForecast) -> None:
    """Show when a live run ends."""
    costs = ["cost"] if answer.as_it_is.cost is not None else []
    names = ("", "ends in", "at", "nodes", "node h", *costs, "units", "finished")
    table = plain_table(
        *(Column(name, justify="right" if name else "left", overflow="fold") for name in names)
    )
    changed = [answer.changed] if answer.changed is not None else []
    for outlook in (answer.as_it_is, *changed, *answer.remedies):
        table.add_row(
            str(outlook.change),
            "stands still" if outlook.ends is None else clock_text(outlook.ends - answer.now),
            "" if outlook.ends is None else _moment(outlook.ends),
            str(outlook.nodes),
            "" if outlook.node_hours is None else f"{outlook.node_hours:.3g}",
            *(["" if outlook.cost is None else money_text(outlook.cost)] if costs else []),
            str(outlook.units),
            str(outlook.finished),
        )
    console = terminal()
    console.print(table)
    if answer.deadline is not None:
        console.print(_verdict(answer, answer.deadline), soft_wrap=True)


def _verdict(answer: LiveForecast, deadline: float) -> str:
    when, ends = _moment(deadline), (answer.changed or answer.as_it_is).ends
    if ends is None:
        return f"The deadline, {when}, is missed: no node is left that could go on."
    if ends <= deadline:
        return f"The deadline, {when}, holds with {clock_text(deadline - ends)} to spare."
    ways = " or ".join(str(outlook.change) for outlook in answer.remedies)
    return f"The deadline, {when}, is missed by {clock_text(ends - deadline)}. " + (
        f"It would hold {ways}."
        if ways
        else "Neither more nodes nor fewer configs would meet it: give it more time, or fewer epochs."
    )


def _moment(wall: float) -> str:
    return datetime.fromtimestamp(wall).strftime("%Y-%m-%d %H:%M")
