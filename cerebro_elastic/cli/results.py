"""Commands that take something out of a run: its report, a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cerebro_elastic.cli.options import Etcd, Home, echo, store_of


def report(
    run: Annotated[str, typer.Argument(help="Run id, or the run's folder.")],
    output: Annotated[
        str | None,
        typer.Option(help="A file or URL.", show_default="report.html in the run's folder, else RUN.html"),
    ] = None,
    gantt: Annotated[
        str | None, typer.Option(help="Write its Gantt chart here, too, as a PNG: a file or URL.")
    ] = None,
    home: Home = None,
    etcd: Etcd = None,
) -> None:
    """Write what happened in a run as one page for a browser: results, curves, nodes, faults, bytes.

    It needs no network, and can be sent to anybody. A run writes one at its end; a live run has one so far.
    """
    from cerebro_elastic.runs.results.report import write_gantt, write_report
    from cerebro_elastic.runs.results.result import open_run

    result = open_run(run, home=home, store=store_of(etcd))
    echo(write_report(result, output))
    if gantt is not None:
        echo(write_gantt(result.events, gantt))


def export(
    run: Annotated[str, typer.Argument(help="Run id, or the run's folder.")],
    folder: Annotated[Path, typer.Argument(help="Where the model goes: a new or empty folder.")],
    best: Annotated[bool, typer.Option("--best", help="The best config, which is the default.")] = False,
    config: Annotated[str | None, typer.Option(help="Another config.")] = None,
    home: Home = None,
    etcd: Etcd = None,
) -> None:
    """Take a trained model out of a run, for people who have nothing of this package.

    It is the config's state after its best epoch: weights (safetensors), for a LightningModule a checkpoint
    that `load_from_checkpoint` and `Trainer.fit(ckpt_path=...)` take, and a model card.

    Such a checkpoint has no random generators, no gradients that accumulate, and no plain attributes of the
    module and its callbacks. To go on from it equals the run bit for bit only where training uses none of
    them; those that the config has are named.
    """
    from cerebro_elastic.runs.results.export import export as write
    from cerebro_elastic.runs.results.result import open_run

    if best and config is not None:
        raise typer.BadParameter("--best and --config name two configs: keep one")
    picked = write(open_run(run, home=home, store=store_of(etcd)), folder, config or "best")
    echo(f"{picked.row.config} after epoch {picked.at.epoch} is in {folder}: see {folder / 'README.md'}")
    echo("who goes on training from there goes on without:")
    for name in picked.not_carried:
        echo(f"  {name}")
