"""``cerebro what-if``: what would become of a live run."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table

from cerebro_elastic.cli.options import Json, config_ids, echo_json, on_run
from cerebro_elastic.reporting.tables import clock_text, money_text
from cerebro_elastic.reporting.terminal import plain_table, terminal

if TYPE_CHECKING:
    from cerebro_elastic.cli.shapes import OutlookJson, WhatIfJson
    from cerebro_elastic.runs.forecast.spot import SpotPlan
    from cerebro_elastic.runs.forecast.what_if import Outlook, WhatIf
    from cerebro_elastic.runs.run import Run


@on_run
def what_if(
    run: Run,
    lose: Annotated[
        list[str] | None, typer.Option(metavar="NODE", help="A node that is lost; also several times.")
    ] = None,
    add: Annotated[int, typer.Option(min=0, help="How many nodes join.")] = 0,
    stop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONFIG", help="A config that is stopped; also several times.", autocompletion=config_ids
        ),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Say whether it holds: 2h30m, or a date and time with T between."),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Prices of spot machines (CSV: time,price): say when nodes join and leave.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Forecast when a live run ends, as it is and if nodes are lost or join, or configs are stopped.

    The rest of the run is simulated from its present state, with the seconds that its units took. Nothing is
    changed. If a deadline is missed, the answer has how many more nodes, or which fewer configs, meet it.
    With prices it says when to have how many nodes, so that the deadline is met and the run costs least.

    Example: cerebro what-if digits --lose digits-node-1 --deadline 2h
    """
    answer = run.what_if(lose=lose or (), add=add, stop=stop or (), deadline=deadline, prices=prices)
    if as_json:
        echo_json(_json(answer))
    else:
        _show(answer)


def _show(answer: WhatIf) -> None:
    costs = ["cost"] if answer.as_it_is.cost is not None else []
    names = ("", "ends in", "at", "nodes", "node h", *costs, "units", "finished")
    table = plain_table(
        *(Column(name, justify="right" if name else "left", overflow="fold") for name in names)
    )
    changed = [answer.changed] if answer.changed is not None else []
    for outlook in (answer.as_it_is, *changed, *answer.remedies):
        hours = outlook.node_hours(answer.now)
        table.add_row(
            str(outlook.change),
            "stands still" if outlook.ends is None else clock_text(outlook.ends - answer.now),
            "" if outlook.ends is None else _moment(outlook.ends),
            str(outlook.nodes),
            "" if hours is None else f"{hours:.3g}",
            *(["" if outlook.cost is None else money_text(outlook.cost)] if costs else []),
            str(outlook.units),
            str(outlook.finished),
        )
    console = terminal()
    console.print(table)
    if answer.deadline is not None:
        console.print(_verdict(answer, answer.deadline), soft_wrap=True)
    if answer.plan is not None:
        console.print(_plan_table(answer.plan))
        text = (
            f"The cheapest plan that was found costs {money_text(answer.plan.cost)} and ends at "
            f"{_moment(answer.plan.ends)}. Ask again when a price or the run differs from this."
        )
        console.print(text, soft_wrap=True)


def _plan_table(plan: SpotPlan) -> Table:
    """When how many nodes join, or are asked to leave."""
    table = plain_table("at", "nodes", "price", "what to do", right=("nodes", "price"))
    for count in plan.counts:
        more = count.change
        what = f"add {more}" if more > 0 else f"let {-more} leave" if more else "leave it so"
        table.add_row(_moment(count.begins), str(count.nodes), f"{count.price:.3g}", what)
    return table


def _verdict(answer: WhatIf, deadline: float) -> str:
    if answer.prices and answer.plan is None:
        return (
            f"The deadline, {_moment(deadline)}, cannot be met, with all nodes that the run may use all the "
            "time. Give it more time, more `nodes` in the recipe, or fewer configs."
        )
    if answer.plan is not None:
        return f"The deadline is {_moment(deadline)}."
    when, ends = _moment(deadline), answer.answer.ends
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


def _json(answer: WhatIf) -> WhatIfJson:
    return {
        "run": answer.run,
        "now": answer.now,
        "deadline": answer.deadline,
        "holds": None if answer.deadline is None else answer.answer.meets(answer.deadline),
        "as_it_is": _outlook(answer.as_it_is, answer.now),
        "changed": None if answer.changed is None else _outlook(answer.changed, answer.now),
        "remedies": [_outlook(outlook, answer.now) for outlook in answer.remedies],
        "plan": answer.plan,
    }


def _outlook(outlook: Outlook, now: float) -> OutlookJson:
    return {
        "lose": list(outlook.change.lose),
        "add": outlook.change.add,
        "stop": list(outlook.change.stop),
        "ends": outlook.ends,
        "nodes": outlook.nodes,
        "node_hours": outlook.node_hours(now),
        "cost": outlook.cost,
        "units": outlook.units,
        "finished": outlook.finished,
    }
