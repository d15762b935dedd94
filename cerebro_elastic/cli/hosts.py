"""Commands for job schedulers (Slurm, Kubernetes, torchx, ...): each machine of a run starts the same one.
Heavy modules are imported where they are used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cerebro_elastic.cli.options import (
    Checkpoints,
    Epochs,
    Grace,
    Home,
    RunId,
    SubmittedBy,
    Verbose,
    echo,
    overrides,
    parent,
    stopped_as_by_ctrl_c,
    store_of,
    watch,
)
from cerebro_elastic.config import GRACE
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.start.imports import SharedImports

if TYPE_CHECKING:
    from cerebro_elastic.recipes.fields import NodeRange


def host(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file: the same on all machines.")],
    run_id: RunId = None,
    hosts: Annotated[
        str | None, typer.Option(help="Machines, MIN:MAX; with --nodes it replaces the recipe's `nodes`.")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes on this machine; they share its GPUs.")] = 1,
    epochs: Epochs = None,
    checkpoints: Checkpoints = None,
    home: Home = None,
    etcd: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of an etcd, by default the recipe's; @NAME:PORT reads the host from $NAME."
        ),
    ] = None,
    grace: Grace = GRACE,
    verbose: Verbose = False,
    submitted_by: SubmittedBy = None,
) -> None:
    """Take part in a recipe's run with other machines that run the same command.

    The first machine opens the run, the others join; each may lead it. The command ends with the run. On
    SIGTERM the machine's nodes leave: they finish their units, or hand them on part-way.

    Example: cerebro host recipes/digits.yaml --etcd etcd.example.org:2379 --hosts 2:8
    """
    try:
        with stopped_as_by_ctrl_c(grace), SharedImports() as imports:  # they go on beside our own below
            watch(submitted_by)
            from cerebro_elastic.cli.output import in_vain, show_outcome
            from cerebro_elastic.recipes import load_recipe
            from cerebro_elastic.reporting.terminal import terminal
            from cerebro_elastic.runs.live import LiveView
            from cerebro_elastic.runs.start.host import host as take_part
            from cerebro_elastic.runs.start.prepare_run import has_ended

            machines = _range(hosts)
            size = None if machines is None else machines.times(nodes)  # the recipe's gangs may need as many
            checked = load_recipe(recipe, **overrides(nodes=size, epochs=epochs, checkpoints=checkpoints))
            with LiveView(checked.objective, terminal(), moving=False, verbose=verbose) as view:
                result = take_part(
                    checked,
                    run_id=run_id,
                    hosts=machines,
                    nodes=nodes,
                    home=home,
                    store=store_of(host_resolved(etcd, os.environ)),
                    grace=grace,
                    watcher=view.watcher,
                    imports=imports,
                )
    except KeyboardInterrupt:
        echo("left the run; nothing that was committed is lost, and others go on.")
        return
    show_outcome(result)
    if has_ended(result.view.state, result.spec) and in_vain(result):
        raise typer.Exit(1)


def etcd(
    run: Annotated[str, typer.Argument(help="The id of the run that the etcd serves.")],
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port for clients.")] = 2379,
    listen: Annotated[
        str, typer.Option(help="This machine's address or name for clients; 0.0.0.0 for all its addresses.")
    ] = "127.0.0.1",
    home: Home = None,
    submitted_by: SubmittedBy = None,
) -> None:
    """Serve an etcd for the hosts of one run, until they have ended.

    The command makes the run's key. Clients need it, and connections are encrypted. To survive the loss of a
    machine, use an etcd of three members.

    Example: cerebro etcd digits --listen 0.0.0.0
    """
    from cerebro_elastic.reporting.terminal import terminal
    from cerebro_elastic.runs.live import LiveView
    from cerebro_elastic.runs.start.etcd_server import serve

    view = LiveView(None, terminal(), moving=False)
    try:
        with stopped_as_by_ctrl_c(), view:
            watch(submitted_by)
            # A job on the submitting machine serves no other machine.
            listen = "127.0.0.1" if submitted_by == parent() else listen
            serve(run, port=port, listen=listen, home=home, watcher=view.watcher)
    except KeyboardInterrupt:
        echo("etcd stopped; the same command goes on with its data.")


def host_resolved(address: str | None, env: Mapping[str, str]) -> str | None:
    """Replace NAME in ``@NAME:PORT`` by the variable's value; return any other address as it is.

    Each scheduler of torchx has a variable of its own for the host. Where it is not set, the host is this
    machine.
    """
    if address is None or not address.startswith("@"):
        return address
    name, colon, port = address[1:].partition(":")
    return f"{env.get(name) or 'localhost'}{colon}{port}"


def _range(hosts: str | None) -> NodeRange | None:
    from cerebro_elastic.recipes.fields import node_range

    try:
        return None if hosts is None else node_range(hosts)
    except ValueError:
        raise RunError(f"--hosts is {hosts!r}: give a number, or a range MIN:MAX such as 2:8") from None
