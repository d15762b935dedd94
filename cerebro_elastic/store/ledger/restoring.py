"""Writes a run's record, as its history has it, to an etcd that has none: the one before was lost with its
disk.

Attempts, nodes and leaders belonged to the lost etcd: none of them is written, so units under way are trained
again. The new etcd begins behind all revisions that the old one can have had, and has no earlier history. So
an attempt of the old one finds no key under its token, its checkpoints have other names, and every process
that had followed the old one reads the state afresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from typing import Protocol

from cerebro_elastic.core.history.keys import KINDS, ROOT, Keys
from cerebro_elastic.core.history.machine import TABLE, fold
from cerebro_elastic.core.model.events import Event, StateRead
from cerebro_elastic.core.model.state import State
from cerebro_elastic.store.client.base import Delete, Put, Store, absent
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.store.ledger.transactions import put, value_of

MARGIN = 10_000
"""The revisions that the lost etcd may have had behind the last event of the history: far more than a run
makes in the seconds between two copies of its record."""
_AT_ONCE, _THREADS = 32, 8
_COUNTED = f"{ROOT}restoring"
"""A key that is written once for each revision."""


class NewStore(Store, Protocol):
    """A store that nobody else uses yet."""

    def compact(self, revision: int) -> None:
        """Forget the history up to ``revision``."""


def restore(
    store: NewStore, record: Record, history: Sequence[Event], spec: bytes, margin: int = MARGIN
) -> None:
    """Write the record as it is after ``history`` and with the ``spec``, as the run's folder has it.

    Args:
        store: That of the ``record``.
        margin: The revisions between the last event and the new ones.
    """
    state = reduce(fold, history, State())
    begin = max(event.revision for event in history) + margin
    with ThreadPoolExecutor(_THREADS) as pool:
        missing = range(begin - record.now())
        list(pool.map(lambda _: store.txn([], [Put(_COUNTED, b"")]), missing))
        written = [*_held(state, record.keys), *_reported(history, record.keys)]
        batches = [written[at : at + _AT_ONCE] for at in range(0, len(written), _AT_ONCE)]
        list(pool.map(lambda batch: record.store.txn([], batch), batches))
    # The spec comes last: without it no run exists.
    done = record.store.txn([absent(record.keys.spec)], [Put(record.keys.spec, spec)])
    store.txn([], [Delete(_COUNTED)])
    store.compact(done.revision)


def _held(state: State, keys: Keys) -> Iterator[Put]:
    """The values in the state of all keys that outlast the nodes."""
    edges = [(config.parent, config.id) for config in state.configs.values()]
    names: Mapping[str, Iterable[str]] = {
        **{kind: [""] for kind in ("homes", "order", "outcome", "extended")},
        "configs": state.configs,
        "children": [f"{edge.owner}/{name}" for edge, name in edges if edge is not None and edge.config],
        "measured": [f"{found.number:05d}" for found in state.measured],
        "quarantined_for": state.quarantined_for,
        "stays": state.stays,
    }
    for kind, of_kind in names.items():
        for name in of_kind:
            if (value := KINDS[kind].held(state, name)) is not None:
                yield put(kind, f"{keys.prefix}{kind}/{name}".removesuffix("/"), value)
    if state.asked:
        yield Put(keys.control, b"{}")


def _reported(history: Iterable[Event], keys: Keys) -> Iterator[Put]:
    for key, value in reported(history, keys).items():
        yield Put(key, value_of(value))


def reported(history: Iterable[Event], keys: Keys) -> dict[str, object]:
    """By key, the value according to the events, for the kinds of keys whose values are not in states."""
    values: dict[str, object] = {}
    for event in history:
        if isinstance(event, StateRead):
            values, before = {}, 0
            for visit in event.visits:  # their order is known, not their times
                before = max(before, visit.attempt) + 1
                values[keys.visit(visit.unit, visit.index_in_epoch)] = replace(visit, revision=before)
        for kind in TABLE[type(event)].keys:
            if (value_in := KINDS[kind].reported) is not None:
                concerned = keys.concerned(kind, State(), event)
                values |= {key: value_in(event, name) for key, name in concerned.items()}
    return values
