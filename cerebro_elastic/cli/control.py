"""Commands that change the configs of a live run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from cerebro_elastic.cli.options import Config, Etcd, Home, Run, echo, store_of
from cerebro_elastic.recipes.source import read_yaml
from cerebro_elastic.reporting.tables import hparams_text

Reason = Annotated[str, typer.Option(help="The reason, for the record.")]


def stop(
    run: Run,
    config: Config,
    reason: Reason = "stopped by hand",
    home: Home = None,
    etcd: Etcd = None,
) -> None:
    """Stop a config of a live run: it gets no more units, and its present unit does not count.

    Example: cerebro stop digits c0003 --reason "diverges"
    """
    from cerebro_elastic.runs.control.configs import stop as ask

    stopped = ask(run, config, reason=reason, home=home, store=store_of(etcd))
    echo(f"{config} is stopped in epoch {stopped.epoch + 1}; to go on: cerebro resume {run} {config}")


def resume(
    run: Run,
    config: Config,
    reason: Reason = "resumed by hand",
    home: Home = None,
    etcd: Etcd = None,
) -> None:
    """Train a stopped config of a live run to its end, also one that the search stopped.

    Example: cerebro resume digits c0003
    """
    from cerebro_elastic.runs.control.configs import resume as ask

    resumed = ask(run, config, reason=reason, home=home, store=store_of(etcd))
    echo(f"{config} goes on in epoch {resumed.epoch + 1}")


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
    home: Home = None,
    etcd: Etcd = None,
) -> None:
    """Add a config to a live run: a copy of another with some hyper-parameters changed, warm-started from it.

    Example: cerebro clone digits c0003 lr=0.01 --from best
    """
    from cerebro_elastic.runs.control.configs import clone as ask

    new = ask(run, config, dict(map(_pair, changes or [])), start=start, home=home, store=store_of(etcd))
    begins = "anew" if new.parent is None else f"in epoch {new.epoch + 1} with the state of {config}"
    if new.parent is None and start == "here":
        begins = f"anew, as {config} has no state yet"
    echo(f"{new.id} begins {begins}: {hparams_text(new.hparams)}")


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE, such as lr=0.01")
    return name, read_yaml(f"{name}: {value}", text).values.get(name)
