"""The present state of a run: from its store if it is live, else from its history."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import RecordHead
from cerebro_elastic.errors import StoreUnavailable
from cerebro_elastic.runs.attach import known_spec, store_of, with_key
from cerebro_elastic.runs.folder import RunFolder, find_run
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.ledger.journal import read_journal
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.ownership import distrust_folder

_PATIENCE = 2.0


def status(
    run: str | Path, *, home: str | Path | None = None, store: StoreSettings | None = None
) -> tuple[Spec, State, bool]:
    """The run's spec, its state, and whether it is live. With ``store`` any machine can ask for a run on a
    shared etcd."""
    if store is not None:
        return _from_store(with_key(store, str(run), home), str(run))
    folder = find_run(run, Path(home) if home is not None else None)
    if folder.endpoint.exists() and not distrust_folder(folder.path):  # of others', the record is enough
        settings = replace(store_of(folder), patience=_PATIENCE)
        try:
            return _from_store(settings, folder.read_spec().plan.run)
        except StoreUnavailable:
            if folder.is_locked():
                raise
            # The process that took part here was killed.
    return _from_history(folder)


def head_now(
    run: str | Path, state: State, *, home: str | Path | None = None, store: StoreSettings | None = None
) -> RecordHead | None:
    """Where the leader's record ended when it last assigned a unit that is still under way; if none is, where
    it ends by the record on this machine. ``None`` if that is not known."""
    heads = [attempt.record for attempt in state.underway() if attempt.record is not None]
    if heads or store is not None:
        return max(heads, key=lambda head: head.revision, default=None)
    return RunResult(find_run(run, Path(home) if home is not None else None)).head


def _from_history(folder: RunFolder) -> tuple[Spec, State, bool]:
    state = RunView(read_journal(folder.history)).state
    # Nodes that were killed are still in the record.
    return folder.read_spec(), replace(state, nodes={}, attempts={}, queued={}, leader=None), False


def _from_store(settings: StoreSettings, run: str) -> tuple[Spec, State, bool]:
    with closing(EtcdStore(settings)) as store:
        record = Record(store, run, settings.run_key)
        spec = known_spec(record, settings)
        state = record.state()
        return spec, state, state.outcome is None
