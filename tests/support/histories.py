"""Run records as files, written from events."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cerebro_elastic.core.model.events import Event
from cerebro_elastic.store.ledger.journal import chained, with_digest


def write_history(path: Path, events: Iterable[Event]) -> None:
    """Write the record of these events, with digests that fit."""
    path.write_text("".join(f"{with_digest(line.body, line.digest)}\n" for line in chained(events)))
