"""Commands for schedulers (Slurm, Kubernetes, torchx, ...): the same on each machine of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from cerebro_elastic.cli.options import (
    Checkpoints,
    Epochs,
    Grace,
    Home,
    SubmittedBy,
    Verbose,
    echo,
    overrides,
    parent,
    stopped_as_by_ctrl_c,
    store_of,
    watch,
)
from cerebro_elastic.cli.output import in_vain, show_outcome
from cerebro_elastic.config import GRACE
from cerebro_elastic.errors import RunError
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.recipes.fields import NodeRange, node_range
from cerebro_elastic.reporting.terminal import terminal
from cerebro_elastic.runs.live import LiveView
from cerebro_elastic.runs.start.prepare_run import has_ended


def host(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file: the same on all hosts.")],
    run_id: Annotated[
        str | None, typer.Option(help="The run's id.", show_default="the recipe's name")
    ] = None,
    hosts: Annotated[
        str | None, typer.Option(help="MIN:MAX hosts, which with --nodes go before the recipe's `nodes`.")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of this machine, which share its GPUs.")] = 1,
    epochs: Epochs = None,
    checkpoints: Checkpoints = None,
    home: Home = None,
    etcd: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of an etcd, by default the recipe's; @NAME:PORT if a variable NAME has its host."
        ),
    ] = None,
    grace: Grace = GRACE,
    verbose: Verbose = False,
    submitted_by: SubmittedBy = None,
) -> None:
    """Take part in a recipe's run with other machines that run the same command.

    The first one opens the run, the others join; all may lead it. It ends with the run. SIGTERM lets the
    machine's nodes leave: they finish their units or hand them on part-way.
    """
    from cerebro_elastic.runs.start.host import host as take_part

    checked = load_recipe(recipe, **overrides(epochs=epochs, checkpoints=checkpoints))
    view = LiveView(checked.objective, terminal(), moving=False, verbose=verbose)
    try:
        with stopped_as_by_ctrl_c(), view:
            watch(submitted_by)
            result = take_part(
                checked,
                run_id=run_id,
                hosts=_range(hosts),
                nodes=nodes,
                home=home,
                store=store_of(host_resolved(etcd, os.environ)),
                grace=grace,
                watcher=view.watcher,
            )
    except KeyboardInterrupt:
        echo("left the run; nothing that was committed is lost, and others go on.")
        return
    show_outcome(result)
    if has_ended(result.events) and in_vain(result):
        raise typer.Exit(1)


def etcd(
    run: Annotated[str, typer.Argument(help="The id of the run that it is for.")],
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port for clients.")] = 2379,
    listen: Annotated[
        str, typer.Option(help="This machine's address for clients; 0.0.0.0 for those of other machines.")
    ] = "127.0.0.1",
    home: Home = None,
    submitted_by: SubmittedBy = None,
) -> None:
    """Serve an etcd for the hosts of one run, until they have ended.

    It asks for the run's key, which it makes, and does not encrypt: for one machine, or a network in which
    nobody listens who should not. What must outlive a machine needs an etcd of three members.
    """
    from cerebro_elastic.runs.start.etcd_server import serve

    view = LiveView(None, terminal(), moving=False)
    try:
        with stopped_as_by_ctrl_c(), view:
            watch(submitted_by)
            # A job on the machine of who submits it serves nobody else.
            listen = "127.0.0.1" if submitted_by == parent() else listen
            serve(run, port=port, listen=listen, home=home, watcher=view.watcher)
    except KeyboardInterrupt:
        echo("etcd stopped; the same command goes on with its data.")


def host_resolved(address: str | None, env: Mapping[str, str]) -> str | None:
    """``@NAME:PORT`` with what the variable NAME holds: torchx names the variable, each of its schedulers
    another, and not where it would be the machine itself. Anything else as it is."""
    if address is None or not address.startswith("@"):
        return address
    name, colon, port = address[1:].partition(":")
    return f"{env.get(name) or 'localhost'}{colon}{port}"


def _range(hosts: str | None) -> NodeRange | None:
    try:
        return None if hosts is None else node_range(hosts)
    except ValueError:
        raise RunError(f"--hosts is {hosts!r}: give a number, or a range MIN:MAX such as 2:8") from None
