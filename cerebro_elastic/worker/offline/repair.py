"""Repair: a checkpoint that was damaged at rest is restored by replaying its visit.

A visit's result is a function of its input, and retention keeps a config's last checkpoint and the one before
it. If the input is damaged, too, its own visit is replayed first, and so on, back to the config's beginning
if necessary. Each restored state must have the recorded digest (purity), so that the history does not change;
the log gets a warning. The next commit collects the states needed only on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from typing import Any

from cerebro_elastic.core.history.lineage import history
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.origin import Origin, basis_of, origin_of
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.units import CheckpointRef, Phase
from cerebro_elastic.errors import CheckpointError, DamagedCheckpoint, StorageError
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.devices import kind_of
from cerebro_elastic.system.files import exists, locate
from cerebro_elastic.system.logs import EventLog
from cerebro_elastic.training.task import nothing
from cerebro_elastic.training.unit_runner import UnitRunner
from cerebro_elastic.worker.group_rendezvous import needs_group
from cerebro_elastic.worker.offline.visit_replayer import VisitReplayer

_BEAT_SECONDS = 1.0


class CheckpointRepair:
    """Repairs the checkpoints of a run; it calls ``beat`` at least once a batch."""

    def __init__(
        self,
        record: Record,
        spec: Spec,
        unit_runner: UnitRunner,
        log: EventLog,
        beat: Callable[[], None] = nothing,
    ) -> None:
        self._record = record
        self._spec = spec
        self._unit_runner = unit_runner
        self._log = log
        self._beat = beat

    def repair(self, ref: CheckpointRef, damage: DamagedCheckpoint) -> Any:
        """Restore the checkpoint ``ref`` in its place.

        Returns:
            Its state.

        Raises:
            CheckpointError: It cannot be restored; the error explains why.
            StorageError: The whole folder of checkpoints is missing: a disk that is not mounted is no damage.
        """
        self._check_storage()
        source, lost = self._way_back(self._steps_to(ref, damage), damage)
        self._log.warning("repairing a damaged checkpoint", url=ref.url, why=str(damage), visits=len(lost))
        state = checkpoint.load(source) if source else None
        for at, visit in lost:
            state = self._replay(at, visit, state, damage)
        self._log.warning("repaired a damaged checkpoint", url=ref.url, digest=ref.digest)
        return state

    def _check_storage(self) -> None:
        folder = locate(f"{self._spec.storage}/checkpoints")
        if not exists(folder):
            raise StorageError(
                f"{folder} is not there, with all checkpoints of the run: look whether its disk is mounted "
                "on this machine, or restore it"
            )

    def _steps_to(self, ref: CheckpointRef, damage: DamagedCheckpoint) -> list[tuple[Config, Visit]]:
        """All training visits that led to ``ref``, each with the config as it stood before it."""
        visits: dict[str, list[Visit]] = {}
        author = None
        for visit in self._record.visits():
            visits.setdefault(visit.unit.config, []).append(visit)
            if visit.output == ref and visit.unit.phase is Phase.TRAIN:
                author = author or visit.unit.config
        if author is None:
            raise CheckpointError(f"{damage}; and no visit is recorded that wrote it") from damage
        steps = history(author, self._record.state().configs, visits, self._spec.plan, ref)
        return [(at, visit) for at, visit in steps if visit.unit.phase is Phase.TRAIN]

    def _way_back(
        self, steps: Sequence[tuple[Config, Visit]], damage: DamagedCheckpoint
    ) -> tuple[CheckpointRef | None, list[tuple[Config, Visit]]]:
        """The last readable checkpoint before the damage (``None``: the config's beginning), and the visits
        to replay from there, in order."""
        for place, (_, visit) in reversed(list(enumerate(steps))):
            if visit.input is None or _readable(visit.input):
                return visit.input, list(steps[place:])
        raise CheckpointError(
            f"{damage}; and no readable state is left from which it could be made again"
        ) from damage

    def _replay(self, at: Config, visit: Visit, state: Any, damage: DamagedCheckpoint) -> Any:
        """Replay ``visit`` and put its state back in its place; returns the state."""
        if needs_group(visit.strategy):
            return self._replay_on_ranks(at, visit, damage)
        end = visit.skip + visit.batches
        stop = (lambda _done: False) if visit.whole else (lambda done: done >= end)
        job = self._unit_runner.job(at, visit.unit, state, beat=self._beat, stop=stop)
        result = self._unit_runner.perform(job)
        try:
            checkpoint.restore(result.state, visit.output, self._origin(at, visit))
        except CheckpointError as error:
            raise _in_vain(visit, damage, str(error)) from error
        # As every other unit gets its input: from the storage, read and checked.
        return checkpoint.load(visit.output)

    def _replay_on_ranks(self, at: Config, visit: Visit, damage: DamagedCheckpoint) -> Any:
        """As ``_replay``, in as many processes of this machine as the visit had ranks. They write beside the
        damaged checkpoint, because parts of it may be whole. The collector deletes a remaining name there
        together with the visit's own (``worker/checkpoint_collector.py``)."""
        beside = replace(visit.output, url=f"{visit.output.url}-again")
        checkpoint.remove(beside)
        with (
            VisitReplayer(
                self._spec, self._unit_runner.cache.root, kind_of(self._unit_runner.device)
            ) as replayer,
            ThreadPoolExecutor(1) as thread,
        ):
            replay = thread.submit(replayer, at, visit, visit.input, beside.url)
            while not wait([replay], timeout=_BEAT_SECONDS).done:
                self._beat()
            restored = replay.result().visit.output
        try:
            checkpoint.put_back(restored, visit.output, self._origin(at, visit))
        except CheckpointError as error:
            checkpoint.remove(restored)
            raise _in_vain(visit, damage, str(error)) from error
        return checkpoint.load(visit.output)

    def _origin(self, at: Config, visit: Visit) -> Origin:
        """The origin as it was, if the manifest is whole; else without the head of the record."""
        record = None
        with suppress(CheckpointError):
            before = checkpoint.origin(visit.output)
            record = before.record if before is not None else None
        return origin_of(basis_of(self._spec), at.hparams, visit, record)


def _in_vain(visit: Visit, damage: DamagedCheckpoint, why: str) -> CheckpointError:
    return CheckpointError(
        f"{damage}; doing epoch {visit.unit.epoch}, partition {visit.unit.partition} of "
        f"{visit.unit.config} again did not help: {why}. The machine, its number of threads or the code is "
        "not what it was"
    )


def _readable(ref: CheckpointRef) -> bool:
    try:
        checkpoint.verify(ref)
    except DamagedCheckpoint:
        return False
    return True
