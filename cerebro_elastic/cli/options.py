"""What several commands have in common."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cerebro_elastic.config import StoreSettings

Home = Annotated[Path | None, typer.Option(help="Folder of runs.", show_default="$CEREBRO_HOME, else ./runs")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]
Etcd = Annotated[
    str | None, typer.Option(help="HOST:PORT of an etcd; login and TLS come from CEREBRO_ETCD_*.")
]
Grace = Annotated[float, typer.Option(min=0, help="Seconds for nodes to leave in, when they are stopped.")]


def store_of(etcd: str | None) -> StoreSettings | None:
    """An external etcd, if one is named."""
    from cerebro_elastic.runs.attach import store_at

    return store_at(etcd) if etcd else None


@contextmanager
def stopped_as_by_ctrl_c() -> Iterator[None]:
    """SIGTERM, as batch systems send it, does what Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
