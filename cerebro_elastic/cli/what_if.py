"""``cerebro what-if``: what would become of a live run."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from cerebro_elastic.cli.options import Json, config_ids, echo, on_run
from cerebro_elastic.reporting.tables import clock_text
from cerebro_elastic.reporting.terminal import terminal

if TYPE_CHECKING:
    from cerebro_elastic.cli.shapes import OutlookJson, WhatIfJson
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
    as_json: Json = False,
) -> None:
    """Forecast when a live run ends, as it is and if nodes are lost or join, or configs are stopped.

    The rest of the run is simulated from its present state, with the seconds that its units took. Nothing is
    changed. If a deadline is missed, the answer has how many more nodes, or which fewer configs, meet it.

    Example: cerebro what-if digits --lose digits-node-1 --deadline 2h
    """
    answer = run.what_if(lose=lose or (), add=add, stop=stop or (), deadline=deadline)
    if as_json:
        from cerebro_elastic.cli.output import json_text

        echo(json_text(_json(answer)))
    else:
        _show(answer)


def _show(answer: WhatIf) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("", "ends in", "at", "nodes", "node h", "units", "finished"):
        table.add_column(name, justify="left" if name == "" else "right", overflow="fold")
    changed = [answer.changed] if answer.changed is not None else []
    for outlook in (answer.as_it_is, *changed, *answer.remedies):
        hours = outlook.node_hours(answer.now)
        table.add_row(
            str(outlook.change),
            "stands still" if outlook.ends is None else clock_text(outlook.ends - answer.now),
            "" if outlook.ends is None else _moment(outlook.ends),
            str(outlook.nodes),
            "" if hours is None else f"{hours:.3g}",
            str(outlook.units),
            str(outlook.finished),
        )
    console = terminal()
    console.print(table)
    if answer.deadline is not None:
        console.print(_verdict(answer, answer.deadline), soft_wrap=True)


def _verdict(answer: WhatIf, deadline: float) -> str:
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
    }


def _outlook(outlook: Outlook, now: float) -> OutlookJson:
    return {
        "lose": list(outlook.change.lose),
        "add": outlook.change.add,
        "stop": list(outlook.change.stop),
        "ends": outlook.ends,
        "nodes": outlook.nodes,
        "node_hours": outlook.node_hours(now),
        "units": outlook.units,
        "finished": outlook.finished,
    }
