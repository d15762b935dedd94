"""Commands that change a live run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cerebro_elastic.cli.options import Config, echo, on_run
from cerebro_elastic.config import A_DAY
from cerebro_elastic.recipes.source import read_yaml
from cerebro_elastic.reporting.tables import hparams_text

if TYPE_CHECKING:
    from cerebro_elastic.runs.run import Run

Reason = Annotated[str, typer.Option(help="The reason, for the record.")]


@on_run
def stop(run: Run, config: Config, reason: Reason = "stopped by hand") -> None:
    """Stop a config of a live run: it gets no more units, and its present unit does not count.

    Example: cerebro stop digits c0003 --reason "diverges"
    """
    stopped = run.stop(config, reason=reason)
    echo(f"{config} is stopped in epoch {stopped.epoch + 1}; to go on: cerebro resume {run.id} {config}")


@on_run
def resume(run: Run, config: Config, reason: Reason = "resumed by hand") -> None:
    """Train a stopped config of a live run to its end, also one that the search stopped.

    Example: cerebro resume digits c0003
    """
    echo(f"{config} goes on in epoch {run.resume(config, reason=reason).epoch + 1}")


@on_run
def clone(
    run: Run,
    config: Config,
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Hyper-parameters that differ, e.g. lr=0.01."),
    ] = None,
    start: Annotated[
        Literal["here", "best", "scratch"],
        typer.Option(
            "--from",
            help="Begin with the config's present state, with that of its best epoch, or from scratch.",
        ),
    ] = "here",
) -> None:
    """Add a config to a live run: a copy of another with some hyper-parameters changed, warm-started from it.

    Example: cerebro clone digits c0003 lr=0.01 --from best
    """
    new = run.clone(config, dict(map(_pair, changes or [])), start=start)
    begins = "anew" if new.parent is None else f"in epoch {new.epoch + 1} with the state of {config}"
    if new.parent is None and start == "here":
        begins = f"anew, as {config} has no state yet"
    echo(f"{new.id} begins {begins}: {hparams_text(new.hparams)}")


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


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE, such as lr=0.01")
    return name, read_yaml(f"{name}: {value}", text).values.get(name)
