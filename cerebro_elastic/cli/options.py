"""What several commands have in common."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.process import watch_parent
from cerebro_elastic.words import visible

Home = Annotated[Path | None, typer.Option(help="Folder of runs.", show_default="$CEREBRO_HOME, else ./runs")]
Epochs = Annotated[int | None, typer.Option(help="Epochs, instead of the recipe's.")]
Checkpoints = Annotated[
    str | None, typer.Option(help="URL for checkpoints and logs, instead of the recipe's: s3://...")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Every epoch of every config, and the optimality gap.")
]
Etcd = Annotated[
    str | None, typer.Option(help="HOST:PORT of an etcd; login and TLS come from CEREBRO_ETCD_*.")
]
Grace = Annotated[float, typer.Option(min=0, help="Seconds for nodes to leave in, when they are stopped.")]
SubmittedBy = Annotated[
    str | None,
    typer.Option(
        hidden=True,
        help="PID@HOST of who made this part of a job: it stops with the process that started it.",
    ),
]


def overrides(**given: Any) -> dict[str, Any]:
    """Those values of a recipe that were given."""
    return {key: value for key, value in given.items() if value is not None}


def store_of(etcd: str | None) -> StoreSettings | None:
    """An external etcd, if one is named."""
    from cerebro_elastic.runs.attach import store_at

    return store_at(etcd) if etcd else None


def echo(text: str, *, err: bool = False) -> None:
    """A line of text that may have others' words in it."""
    typer.echo(visible(text), err=err)


@contextmanager
def stopped_as_by_ctrl_c() -> Iterator[None]:
    """SIGTERM, as batch systems send it, does what Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def parent() -> str:
    """Who started this process, as ``SubmittedBy`` has it."""
    return f"{os.getppid()}@{socket.gethostname()}"


def watch(submitted_by: str | None) -> None:
    """Stop this process, which is part of a job, when the one that started it has ended."""
    if submitted_by is not None:
        watch_parent(os.getppid(), lambda: os.kill(os.getpid(), signal.SIGTERM))
