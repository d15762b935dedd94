"""Arguments and options of several commands."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from cerebro_elastic.cli.completion import config_ids, run_ids
from cerebro_elastic.config import StoreSettings
from cerebro_elastic.system.departure import leave_within, stay
from cerebro_elastic.system.process import stop_printing, watch_parent
from cerebro_elastic.system.words import visible

Run = Annotated[str, typer.Argument(help="Run id, or the run's folder.", autocompletion=run_ids)]
Config = Annotated[
    str, typer.Argument(help="The config, as `cerebro status` names it.", autocompletion=config_ids)
]
RecipeFile = Annotated[Path, typer.Argument(help="The recipe, a YAML file.")]
RunId = Annotated[str | None, typer.Option(help="The run's id.", show_default="the recipe's name")]
Home = Annotated[Path | None, typer.Option(help="Folder of runs.", show_default="$CEREBRO_HOME, else ./runs")]
Epochs = Annotated[int | None, typer.Option(help="Epochs of each config, instead of the recipe's.")]
Checkpoints = Annotated[
    str | None, typer.Option(help="URL of the checkpoints and logs, instead of the recipe's, e.g. s3://...")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Also show every epoch of every config, and the optimality gap."),
]
Etcd = Annotated[
    str | None, typer.Option(help="HOST:PORT of an etcd; the variables CEREBRO_ETCD_* hold login and TLS.")
]
Grace = Annotated[float, typer.Option(min=0, help="Seconds that nodes have to leave when they are stopped.")]
NO_CACHE_LIMIT = (
    "A forecast takes caches as large as needed: with `node.cache_bytes` a host may read a partition again, "
    "which takes longer."
)
SubmittedBy = Annotated[
    str | None,
    typer.Option(
        hidden=True,
        help="PID@HOST that submitted this job: the command ends with the process that started it.",
    ),
]


def overrides(**given: Any) -> dict[str, Any]:
    """The options that were given, as overrides of a recipe."""
    return {key: value for key, value in given.items() if value is not None}


def store_of(etcd: str | None) -> StoreSettings | None:
    """The settings of the external etcd, if one is named."""

    return StoreSettings.at(etcd) if etcd else None


def echo(text: str, *, err: bool = False) -> None:
    """Print a line; control characters in it become visible."""
    try:
        typer.echo(visible(text), err=err)
    except BrokenPipeError:
        stop_printing(sys.stderr if err else sys.stdout)


@contextmanager
def stopped_as_by_ctrl_c(grace: float = 0.0) -> Iterator[None]:
    """Handle SIGTERM, which batch systems send, like Ctrl-C. From then on the process has ``grace`` seconds
    for all that it still waits for."""

    def leave(number: int, frame: FrameType | None) -> None:
        leave_within(grace)
        signal.default_int_handler(number, frame)

    handled = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a job in the background ignores it
        handled.append(signal.SIGINT)
    before = {number: signal.signal(number, leave) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        stay()


def parent() -> str:
    """The process that started this one, in the form of ``SubmittedBy``."""
    return f"{os.getppid()}@{socket.gethostname()}"


def watch(submitted_by: str | None) -> None:
    """End this process, a part of a job, when the process that started it has ended."""
    if submitted_by is not None:
        watch_parent(os.getppid(), lambda: os.kill(os.getpid(), signal.SIGTERM))
