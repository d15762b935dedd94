"""Commands that take a report or a trained model out of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cerebro_elastic.cli.completion import config_ids
from cerebro_elastic.cli.options import Etcd, Home, Run, echo, store_of


def report(
    run: Run,
    output: Annotated[
        str | None,
        typer.Option(help="A file or URL.", show_default="report.html in the run's folder, else RUN.html"),
    ] = None,
    gantt: Annotated[
        str | None, typer.Option(help="Also write the Gantt chart as a PNG: a file or URL.")
    ] = None,
    home: Home = None,
    etcd: Etcd = None,
) -> None:
    """Write a run's report, one page for a browser: results, curves, nodes, faults, bytes.

    The page needs no network. A run writes it at its end; this command also writes that of a live run.

    Example: cerebro report digits --output digits.html
    """
    from cerebro_elastic.runs.results.report import write_gantt, write_report
    from cerebro_elastic.runs.results.result import open_run

    result = open_run(run, home=home, store=store_of(etcd))
    echo(write_report(result, output))
    if gantt is not None:
        echo(write_gantt(result.events, gantt))


def export(
    run: Run,
    folder: Annotated[Path, typer.Argument(help="Where the model goes: a new or empty folder.")],
    best: Annotated[bool, typer.Option("--best", help="The best config (the default).")] = False,
    config: Annotated[str | None, typer.Option(help="Another config.", autocompletion=config_ids)] = None,
    home: Home = None,
    etcd: Etcd = None,
) -> None:
    """Export a trained model from a run. To use it, this package is not needed.

    The folder gets the config's weights after its best epoch (safetensors), a model card, and for a
    LightningModule a checkpoint for `load_from_checkpoint` and `Trainer.fit(ckpt_path=...)`.

    The checkpoint lacks random generators, accumulated gradients, and plain attributes of the module and its
    callbacks. The command names those that the config has: if training uses them, training on from the
    checkpoint is not bit-identical to the run.

    Example: cerebro export digits model --config c0003
    """
    from cerebro_elastic.runs.results.export import export as write
    from cerebro_elastic.runs.results.result import open_run

    if best and config is not None:
        raise typer.BadParameter("--best and --config name two configs: keep one")
    exported = write(open_run(run, home=home, store=store_of(etcd)), folder, config or "best")
    echo(f"{exported.row.config} after epoch {exported.at.epoch} is in {folder}: see {folder / 'README.md'}")
    if exported.not_carried:
        echo("training on from there goes on without:")
    for name in exported.not_carried:
        echo(f"  {name}")


def track(
    run: Run,
    to: Annotated[str, typer.Option(help="mlflow or wandb.")],
    model: Annotated[
        list[Path] | None,
        typer.Option(help="A folder that `cerebro export` wrote, for MLflow; may be given again."),
    ] = None,
    home: Home = None,
) -> None:
    """Send a run's record to a tracker after the run: MLflow or Weights & Biases.

    MLflow gets what it lacks, such as what a run could not send while the server was away; W&B gets all.

    Example: cerebro track digits --to mlflow
    """
    from cerebro_elastic.runs.logging.loggers import track as send

    send(run, to, home=home, models=model or (), say=echo)
    echo(f"{to} has all of run {run}")
