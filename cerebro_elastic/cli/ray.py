"""``cerebro ray``: a run on the machines of a Ray cluster. The extra ``ray`` has what it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cerebro_elastic.cli.options import (
    Checkpoints,
    Epochs,
    Etcd,
    Grace,
    Home,
    RecipeFile,
    RunId,
    Verbose,
    echo,
    stopped_as_by_ctrl_c,
)
from cerebro_elastic.cli.output import in_vain, show_outcome
from cerebro_elastic.config import GRACE
from cerebro_elastic.registry import load
from cerebro_elastic.runs.live import Watcher


def ray(
    recipe: RecipeFile,
    run_id: RunId = None,
    hosts: Annotated[
        str | None, typer.Option(help="Hosts, MIN:MAX; each is an actor of Ray.", show_default="its nodes")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Nodes of each host.", show_default="one per GPU")
    ] = None,
    cpus: Annotated[
        int | None, typer.Option(min=1, help="CPUs of each host.", show_default="those of its nodes")
    ] = None,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of each host.")] = 0,
    address: Annotated[str, typer.Option(help="HOST:PORT of the cluster's head.")] = "auto",
    working_dir: Annotated[
        Path | None, typer.Option(help="The project's folder, which Ray copies to the machines.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for larger machines, which the autoscaler is to bring.")
    ] = False,
    epochs: Epochs = None,
    checkpoints: Checkpoints = None,
    home: Home = None,
    etcd: Etcd = None,
    grace: Grace = GRACE,
    verbose: Verbose = False,
) -> None:
    """Run a recipe on a Ray cluster, or continue an unfinished run of it there.

    Ray places the hosts, and replaces those that it loses. Ctrl-C or SIGTERM stops the run cleanly; the same
    command continues it, also after a kill.

    Example: cerebro ray recipes/digits.yaml --hosts 2:8 --cpus 4 --working-dir .
    """
    launch = load("cerebro.launchers", "ray")
    try:
        with stopped_as_by_ctrl_c():
            result = launch(
                recipe,
                run_id=run_id,
                hosts=hosts,
                nodes=nodes,
                cpus=cpus,
                gpus=gpus,
                address=address,
                working_dir=working_dir,
                wait=wait,
                home=home,
                etcd=etcd,
                epochs=epochs,
                checkpoints=checkpoints,
                grace=grace,
                verbose=verbose,
                watcher=Watcher(say=echo),
            )
    except KeyboardInterrupt:
        echo("stopped; what was committed is safe. The same command goes on from there.", err=True)
        raise typer.Exit(130) from None
    show_outcome(result)
    if in_vain(result):
        raise typer.Exit(1)
