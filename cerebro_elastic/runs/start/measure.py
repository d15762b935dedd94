"""``cerebro test``: measures configs of a run that has ended on its test set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from cerebro_elastic.core.model.units import Measurement
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.attach import record_in
from cerebro_elastic.runs.results.report import write_results
from cerebro_elastic.runs.results.result import RunResult, check_here
from cerebro_elastic.runs.results.test_set import check_test_set, measure, note, winners
from cerebro_elastic.runs.start.going_on import shared_store
from cerebro_elastic.runs.start.prepare_run import has_ended
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.ledger.journal import Journal
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.run_key import RunKey


def measure_best(result: RunResult, top: int, by: str) -> list[Measurement]:
    """``Run.test``, of a ``result``."""
    if not has_ended(result.view.state, result.spec):
        raise RunError(
            f"run {result.run!r} has not ended, and nobody looks at its test set before: wait for its end; "
            "if nobody runs it, the command that started it goes on with it"
        )
    check_test_set(result)
    if all(row.test is not None for row in winners(result, top)):
        return _known(result, top)
    check_here(result, modules=result.spec.root, data=result.spec.data, checkpoints=result.spec.storage)
    with _ended_record(result) as (record, journal):
        note(record, journal, ())  # what another machine has measured, or a process that was killed
        result = result.now()
        if new := [row for row in winners(result, top) if row.test is None]:
            note(record, journal, measure(result, new, by))
    return _known(write_results(result.folder) if result.store is None else result.now(), top)


def _known(result: RunResult, top: int) -> list[Measurement]:
    return [row.test for row in winners(result, top) if row.test is not None]


@contextmanager
def _ended_record(result: RunResult) -> Iterator[tuple[Record, Journal | None]]:
    """The record of a run that has ended, in its store, and its journal if this machine has one."""
    folder, shared = result.folder, shared_store(result)
    here = folder.spec.exists()
    with folder.locked() if here else nullcontext():
        if shared is not None:
            with record_in(shared, result.run) as record:
                yield record, Journal(folder.history) if here else None
            return
        with (
            EmbeddedEtcd(folder.etcd, key=RunKey.kept(folder.key)) as etcd,
            record_in(etcd.settings, result.run) as record,
        ):
            yield record, Journal(folder.history)
