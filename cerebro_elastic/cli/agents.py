"""``cerebro mcp``: a run for agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cerebro_elastic.cli.options import echo, on_run
from cerebro_elastic.errors import RunError
from cerebro_elastic.system.words import one_line

if TYPE_CHECKING:
    from cerebro_elastic.runs.run import Run

_LONGEST_NAME = 80


@on_run
def mcp(
    run: Run,
    configs: Annotated[int, typer.Option(min=0, help="How many configs the agent may add.")] = 0,
    units: Annotated[
        int | None,
        typer.Option(min=1, help="How many units these may train in all.", show_default="any number"),
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="The agent may stop configs.")] = False,
    by: Annotated[str, typer.Option(help="The agent's name, for the record.")] = "agent",
) -> None:
    """Serve a run to an agent by the Model Context Protocol, over standard input and output.

    The agent reads the run and, if you allow it, adds and stops configs: each time with a reason, which the
    record keeps with the agent's name. By default it may only read.

    Example: cerebro mcp digits --configs 5
    """
    from cerebro_elastic.registry import load
    from cerebro_elastic.store.ledger.operators import Allowance

    name = one_line(by.strip())
    if not 0 < len(name) <= _LONGEST_NAME:
        raise RunError(f"--by has {len(name)} characters: give the agent a name of 1 to {_LONGEST_NAME}")
    if units is not None and not configs:
        raise RunError(f"--units is {units}, but no config may be added: also give --configs")
    serve = load("cerebro.servers", "mcp")
    may = "may change it" if configs or stop else "may only read it"
    echo(f"serving run {run.spec.plan.run}; the agent {may}", err=True)
    serve(run, Allowance(name, configs, units), may_stop=stop)
