"""Commands that change a live run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cerebro_elastic.cli.options import By, Config, Json, config_ids, echo, echo_json, on_run, overrides
from cerebro_elastic.config import A_DAY
from cerebro_elastic.core.model.configs import ConfigStart
from cerebro_elastic.errors import RunError
from cerebro_elastic.system.words import counted

if TYPE_CHECKING:
    from cerebro_elastic.runs.run import Run

Reason = Annotated[str | None, typer.Option(help="The reason, for the record.")]


@on_run
def stop(
    run: Run,
    config: Annotated[
        str | None,
        typer.Argument(help="The config, as `cerebro status` names it.", autocompletion=config_ids),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="End the run: stop all its configs.")] = False,
    reason: Reason = None,
    by: By = "",
) -> None:
    """Stop a config of a live run, or end the run early.

    A config that is stopped gets no more units, and its present unit does not count. With --all the search
    adds no config either, and the run ends. What was committed stays. To pause a run instead, stop the
    command that runs it: the same command continues it.

    Example: cerebro stop digits c0003 --reason "diverges"
    """
    why = overrides(reason=reason)
    if everything == (config is not None):
        raise RunError(f"name a config of run {run.id}, or give --all to end the whole run")
    if config is not None:
        stopped = run.stop(config, by=by, **why)
        again = f"cerebro resume {run.id} {config}"
        echo(f"{config} is stopped in epoch {stopped.epoch + 1}; to continue: {again}")
    else:
        count = counted(run.end(by=by, **why), "config")
        echo(f"run {run.id} has ended; {count} stopped; to continue later: cerebro extend {run.id}")


@on_run
def resume(run: Run, config: Config, reason: Reason = None, by: By = "") -> None:
    """Train a stopped config of a live run to its end.

    The config may have been stopped by you or by the search, which does not stop it again.

    Example: cerebro resume digits c0003
    """
    resumed = run.resume(config, by=by, **overrides(reason=reason))
    echo(f"{config} continues in epoch {resumed.epoch + 1}")


@on_run
def add(
    run: Run,
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Its hyper-parameters, e.g. lr=0.01."),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            metavar="CONFIG",
            help="The config that has the others.",
            autocompletion=config_ids,
            show_default="all are given",
        ),
    ] = None,
    start: Annotated[
        ConfigStart,
        typer.Option(
            "--from",
            help="Begin from scratch, with the present state of that config (here), or with that of its best "
            "epoch.",
        ),
    ] = "scratch",
    reason: Reason = None,
    by: By = "",
    as_json: Json = False,
) -> None:
    """Add a config to a live run: your own point, or a changed copy.

    With --like it has the hyper-parameters of another config, except those that you name, and with --from it
    continues from a state of that config.

    Example: cerebro add digits lr=0.003 --like c0003 --from best
    """
    new = run.add(dict(map(_pair, values or [])), like=like, start=start, reason=reason or "", by=by)
    if as_json:
        from cerebro_elastic.cli.shapes import AddedJson

        echo_json(AddedJson(run=run.id, config=new.seen_as, hparams=new.hparams, epoch=new.epoch))
    else:
        from cerebro_elastic.reporting.tables import added_text

        echo(added_text(new, like, start))


@on_run
def drain(
    run: Run,
    node: Annotated[str, typer.Argument(help="The node, as `cerebro status` names it.")],
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds for the present unit; a longer one is handed on part-way.")
    ] = A_DAY,
) -> None:
    """Ask a node to leave a live run.

    It gets no more units, finishes its present unit, and ends.

    Example: cerebro drain digits node-1 --grace 60
    """
    run.drain(node, grace=grace)
    given = "" if grace >= A_DAY else f", or part-way through it after {grace:g} s"
    echo(f"{node} leaves run {run.id} when its unit is done{given}")


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE, such as lr=0.01")
    from cerebro_elastic.recipes.source import read_value

    return name, read_value(name, value)
