"""Histories: folded, and written as files; and configs that begin with the checkpoint of another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from cerebro_elastic.core.history.lineage import born, edge_from
from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.model.configs import Config, HParams
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.state import State
from cerebro_elastic.store.ledger.journal import chained, with_digest


def folded(events: Iterable[Event]) -> State:
    """The state after these events."""
    return reduce(fold, events, State())


def write_history(path: Path, events: Iterable[Event]) -> None:
    """Write the record of these events, with digests that fit."""
    path.write_text("".join(f"{with_digest(line.body, line.digest)}\n" for line in chained(events)))


def child(parent: Config, name: str, hparams: HParams, origin: Mapping[str, Any]) -> Config:
    """A new config that continues from where ``parent`` stands."""
    return born(Config(name, hparams, parent=edge_from(parent), origin=origin))
