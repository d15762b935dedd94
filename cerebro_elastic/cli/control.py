"""Operators' commands for the configs of a live run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from cerebro_elastic.cli.options import Etcd, Home, echo, store_of
from cerebro_elastic.recipes.source import read_yaml
from cerebro_elastic.reporting.tables import hparams_text

Run = Annotated[str, typer.Argument(help="Run id, or the run's folder.")]
Config = Annotated[str, typer.Argument(help="The config, as `cerebro status` names it.")]


def stop(
    run: Run,
    config: Config,
    reason: Annotated[str, typer.Option(help="Why, for the record.")] = "stopped by hand",
    home: Home = None,
    etcd: Etcd = None,
) -> None:
    """Stop a config of a live run. The unit that it is in does not count; all it has committed stays."""
    from cerebro_elastic.runs.control.configs import stop as ask

    stopped = ask(run, config, reason=reason, home=home, store=store_of(etcd))
    echo(f"{config} is stopped in epoch {stopped.epoch + 1}; to go on: cerebro resume {run} {config}")


def resume(
    run: Run,
    config: Config,
    reason: Annotated[str, typer.Option(help="Why, for the record.")] = "resumed by hand",
    home: Home = None,
    etcd: Etcd = None,
) -> None:
    """Let a stopped config of a live run go on to its end, whoever stopped it."""
    from cerebro_elastic.runs.control.configs import resume as ask

    resumed = ask(run, config, reason=reason, home=home, store=store_of(etcd))
    echo(f"{config} goes on in epoch {resumed.epoch + 1}")


def clone(
    run: Run,
    config: Config,
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Hyper-parameters that differ.")
    ] = None,
    start: Annotated[
        Literal["here", "best", "scratch"],
        typer.Option("--from", help="From where the config stands, from its best epoch's end, or anew."),
    ] = "here",
    home: Home = None,
    etcd: Etcd = None,
) -> None:
    """Add a config to a live run: like another, but for some hyper-parameters, and warm-started from it."""
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
