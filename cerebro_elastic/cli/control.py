"""Commands that change a live run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cerebro_elastic.cli.options import By, Config, Json, config_ids, echo, echo_json, on_run
from cerebro_elastic.config import A_DAY
from cerebro_elastic.system.words import counted, hparams_text, with_name

if TYPE_CHECKING:
    from cerebro_elastic.core.model.configs import Config as AddedConfig
    from cerebro_elastic.runs.run import Run

Changes = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Hyper-parameters that differ, e.g. lr=0.01."),
]
Reason = Annotated[str, typer.Option(help="The reason, for the record.")]


@on_run
def stop(run: Run, config: Config, reason: Reason = "stopped by hand", by: By = "") -> None:
    """Stop a config of a live run: it gets no more units, and its present unit does not count.

    Example: cerebro stop digits c0003 --reason "diverges"
    """
    stopped = run.stop(config, reason=with_name(reason, by))
    echo(f"{config} is stopped in epoch {stopped.epoch + 1}; to go on: cerebro resume {run.id} {config}")


@on_run
def resume(run: Run, config: Config, reason: Reason = "resumed by hand", by: By = "") -> None:
    """Train a stopped config of a live run to its end, also one that the search stopped.

    Example: cerebro resume digits c0003
    """
    resumed = run.resume(config, reason=with_name(reason, by))
    echo(f"{config} goes on in epoch {resumed.epoch + 1}")


@on_run
def clone(
    run: Run,
    config: Config,
    changes: Changes = None,
    start: Annotated[
        Literal["here", "best", "scratch"],
        typer.Option(
            "--from",
            help="Begin with the config's present state, with that of its best epoch, or from scratch.",
        ),
    ] = "here",
    by: By = "",
    as_json: Json = False,
) -> None:
    """Add a config to a live run: a copy of another with some hyper-parameters changed, warm-started from it.

    Example: cerebro clone digits c0003 lr=0.01 --from best
    """
    reason = with_name(f"cloned from {config}", by)
    new = run.clone(config, dict(map(_pair, changes or [])), start=start, reason=reason)
    if as_json:
        _print_added(run, new)
        return
    from cerebro_elastic.reporting.tables import cloned_text

    echo(cloned_text(new, config, start))


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
    reason: Reason = "added by hand",
    by: By = "",
    as_json: Json = False,
) -> None:
    """Add a config to a live run: a point of your own beside those of the search, trained from scratch.

    Example: cerebro add digits lr=0.003 --like c0003
    """
    new = run.add(dict(map(_pair, values or [])), like=like, reason=with_name(reason, by))
    if as_json:
        _print_added(run, new)
    else:
        echo(f"{new.seen_as} is added: {hparams_text(new.hparams)}")


@on_run
def end(run: Run, reason: Reason = "the run was ended by hand", by: By = "") -> None:
    """End a live run early: all its live configs are stopped, and the search adds none.

    What was committed stays. To pause a run instead, stop the command that runs it: the same command goes on.

    Example: cerebro end digits --reason "good enough"
    """
    count = run.end(reason=with_name(reason, by))
    echo(
        f"run {run.id} has ended; {counted(count, 'config')} stopped; to go on later: cerebro extend {run.id}"
    )


@on_run
def drain(
    run: Run,
    node: Annotated[str, typer.Argument(help="The node, as `cerebro status` names it.")],
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds for the present unit; a longer one is handed on part-way.")
    ] = A_DAY,
) -> None:
    """Ask a node to leave: it gets no more units, finishes its present unit, and ends.

    Example: cerebro drain digits node-1 --grace 60
    """
    run.drain(node, grace=grace)
    given = "" if grace >= A_DAY else f", or part-way through it after {grace:g} s"
    echo(f"{node} leaves run {run.id} when its unit is done{given}")


def _print_added(run: Run, new: AddedConfig) -> None:
    from cerebro_elastic.cli.shapes import AddedJson

    echo_json(AddedJson(run=run.id, config=new.seen_as, hparams=new.hparams, epoch=new.epoch))


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE, such as lr=0.01")
    from cerebro_elastic.recipes.source import read_value

    return name, read_value(name, value)
