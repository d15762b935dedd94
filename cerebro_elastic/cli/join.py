"""Commands by which a machine joins a live run, and a node leaves it."""

from __future__ import annotations

from typing import Annotated

import typer

from cerebro_elastic.cli.options import Etcd, Grace, Home, Run, echo, stopped_as_by_ctrl_c, store_of
from cerebro_elastic.config import GRACE
from cerebro_elastic.reporting.terminal import terminal
from cerebro_elastic.runs.control.drain import A_DAY
from cerebro_elastic.runs.live import LiveView


def join(
    run: Run,
    name: Annotated[
        str | None, typer.Option(help="The node's name.", show_default="the host's with a suffix")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes on this machine; they share its GPUs.")] = 1,
    home: Home = None,
    etcd: Etcd = None,
    grace: Grace = GRACE,
) -> None:
    """Make this machine a node of a live run, and a candidate for its lead.

    The command ends with the run. On Ctrl-C or SIGTERM the node leaves: it finishes its unit, or hands it on
    part-way.

    Example: cerebro join digits --etcd etcd.example.org:2379
    """
    from cerebro_elastic.runs.start.join import join as take_part

    view = LiveView(None, terminal(), moving=False)
    try:
        with stopped_as_by_ctrl_c(grace), view:
            result = take_part(
                run,
                name=name,
                nodes=nodes,
                home=home,
                store=store_of(etcd),
                grace=grace,
                watcher=view.watcher,
            )
    except KeyboardInterrupt:
        echo("left the run; nothing that was committed is lost, and others go on.")
        return
    echo(f"a record of the run is at {result.folder.path}")


def drain(
    run: Run,
    node: Annotated[str, typer.Argument(help="The node, as `cerebro status` names it.")],
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds for the present unit; a longer one is handed on part-way.")
    ] = A_DAY,
    home: Home = None,
    etcd: Etcd = None,
) -> None:
    """Ask a node to leave: it gets no more units, finishes its present unit, and ends.

    Example: cerebro drain digits node-1 --grace 60
    """
    from cerebro_elastic.runs.control.drain import drain as ask

    ask(run, node, grace=grace, home=home, store=store_of(etcd))
    given = "" if grace >= A_DAY else f", or part-way through it after {grace:g} s"
    echo(f"{node} leaves run {run} when its unit is done{given}")
