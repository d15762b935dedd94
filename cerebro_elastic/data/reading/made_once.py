"""Batches that were made are kept for the other configs, and rows that were opened for the other epochs.

A worker process's batches follow from the run's seed, the epoch, the partition, the loader and the rank, not
from the config: so the configs that come to a partition in an epoch would make equal batches. A host makes
each of them once. (CoorDL, VLDB 2021, does so for jobs that run side by side.) Rows are kept for the run
where the user declares that they are always the same. A batch or row that was not kept for want of room, or
is damaged, is made again: a result never depends on it.

Several ranks may need the same batches. Each claims those that it makes next; the others take the finished
ones. A claim is a lock on a byte of a file, so that it ends with its process.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from cerebro_elastic.data.reading.shared_records import MISSING, Records
from cerebro_elastic.system.cache_space import CacheSpace, use
from cerebro_elastic.system.files import private_folder
from cerebro_elastic.system.process_settings import changed

_LOOK_SECONDS = 0.002
"""The interval at which a rank checks for a batch that another rank makes."""
_PATIENCE_SECONDS = 10.0
"""A rank that has waited this long for another one's batch makes the rest itself."""


class Made(NamedTuple):
    """A batch that was made."""

    batch: Any
    """The batch; ``MISSING`` if it is in the records."""
    kept: bool
    """Whether it is among the records."""


Make: TypeAlias = Callable[[Iterator[int], Records | None], Generator[Made, None, None]]
"""Makes the batches of these numbers; it takes each number when it begins the batch. It puts the batches into
the records, if it has records and the batches may be kept."""


@dataclass(slots=True)
class DataUse:
    """Counts of a unit's batches and rows; they grow during the unit."""

    made: int = 0
    """Batches that were made for it."""
    taken: int = 0
    """Batches that had been made for others."""
    waited_seconds: float = 0.0
    """Seconds for which training waited for a batch."""
    differing: str = ""
    """The name of a function that has made another row than the kept one; "" if none has."""

    def timed(self, batches: Generator[Any, None, None]) -> Generator[Any, None, None]:
        """The batches; the time until each comes is counted."""
        with closing(batches):
            while True:
                began = time.perf_counter()
                batch = next(batches, MISSING)
                self.waited_seconds += time.perf_counter() - began
                if batch is MISSING:
                    return
                yield batch


@dataclass(frozen=True, slots=True)
class MadeBatches:
    """A run's batches and opened rows that the processes of a host keep."""

    root: Path
    """The folder for all runs of this user that share the host's cache."""
    limit_bytes: int
    run: str
    """64 hexadecimal digits that identify the run, its data and its users' code."""

    def forget(self) -> None:
        """Remove the records of the run, which has ended."""
        shutil.rmtree(self.root / self.run, ignore_errors=True)

    @contextmanager
    def shared(self, key: object, count: int, epoch: int | None = None) -> Iterator[Shared | None]:
        """Within the block: the ``count`` records of a pass or of a column, equal for all that ask with this
        ``key``. Those of an ``epoch`` give way to those of later epochs; others stay while the run does.
        ``None`` if the disk has no room even for their index. The settings of the process that the unit has
        changed are part of the key: functions that make batches may read them.

        Raises ``RunError`` if the folder is open to other users, since records are unpickled.
        """
        what = (key, changed())
        name = hashlib.sha256(repr(what).encode()).hexdigest()[:32]
        folder = self.root / self.run / f"{'all' if epoch is None else f'{epoch:05d}'}-{name}"
        space = CacheSpace(self.root, self.limit_bytes, partial(_gives_way, epoch=epoch, run=self.run))
        with ExitStack() as opened:
            try:
                private_folder(self.root)
                opened.callback(os.close, use(folder))
                claims = os.open(folder / "claims", os.O_RDWR | os.O_CREAT, 0o600)
                opened.callback(os.close, claims)
                shared = Shared(Records(folder, count, space), claims)
                opened.enter_context(closing(shared.records))
            except OSError:
                yield None
                return
            yield shared


def _gives_way(folder: Path, *, epoch: int | None, run: str) -> bool:
    """Whether the records in ``folder`` may be dropped for those of ``epoch`` in ``run``."""
    theirs = folder.name.partition("-")[0]
    return folder.parent.name != run or (epoch is not None and theirs.isdigit() and int(theirs) < epoch)


@dataclass(frozen=True, slots=True)
class Shared:
    """Records that this process has in use."""

    records: Records
    claims: int
    """The descriptor of the file whose bytes are locked by the processes that make the next records."""

    def claim(self, number: int) -> bool:
        """Claim that this process makes a record next; whether no other one does."""
        try:
            fcntl.lockf(self.claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except OSError:
            return False
        return True

    def release(self, number: int) -> None:
        """Give a claim up: the record could not be kept."""
        fcntl.lockf(self.claims, fcntl.LOCK_UN, 1, number)


class Batches:
    """The batches of ``numbers``, in order: from the records, or made by ``make``.

    Args:
        numbers: The numbers of the batches.
        make: Makes those that are missing.
        shared: The records; ``None``: all are made, and none is kept.
        use: Counts them.
    """

    def __init__(self, numbers: range, make: Make, shared: Shared | None, use: DataUse) -> None:
        self._numbers = numbers
        self._make = make
        self._shared = shared
        self._use = use
        self._stream: Generator[Made, None, None] | None = None
        self._begun: deque[int] = deque()
        """The batches that ``_stream`` has begun and not returned yet."""
        self._keeping = shared is not None
        self._waits = True

    def __iter__(self) -> Generator[Any, None, None]:
        try:
            for number in self._numbers:
                batch = self._next(number)
                if number == self._numbers[-1]:
                    self._end()  # now: validation may follow the last batch, with the same processes
                yield batch
        finally:
            self._end()

    def _next(self, number: int) -> Any:
        if not self._begun or self._begun[0] != number:
            if (batch := self._from_others(number)) is not MISSING:
                self._use.taken += 1
                return batch
            self._begin(number)
        self._use.made += 1
        made = self._made()
        if made.batch is not MISSING:
            return made.batch
        if (batch := self._taken(number)) is MISSING:  # the disk has damaged it: keep nothing there
            self._keeping = False
            self._begin(number)
            batch = self._made().batch
        return batch

    def _taken(self, number: int) -> Any:
        return self._shared.records.get(number) if self._shared is not None else MISSING

    def _from_others(self, number: int) -> Any:
        """The batch that another process has made or is making; ``MISSING`` if this one must make it."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while (batch := self._taken(number)) is MISSING and not self._claim(number):
            if time.monotonic() > until:
                self._waits = False
            time.sleep(_LOOK_SECONDS)
        return batch

    def _claim(self, number: int) -> bool:
        return not self._keeping or self._shared is None or self._shared.claim(number) or not self._waits

    def _begin(self, number: int) -> None:
        """Begin to make the batches from ``number`` on that no other process has made or makes."""
        self._end()
        records = self._shared.records if self._shared is not None and self._keeping else None
        self._stream = self._make(self._to_make(number, records), records)

    def _to_make(self, start: int, records: Records | None) -> Iterator[int]:
        """The first one in any case: another process may have put it there since it was looked for."""
        for number in range(start, self._numbers.stop):
            if number == start or records is None or (number not in records and self._claim(number)):
                self._begun.append(number)
                yield number

    def _made(self) -> Made:
        assert self._stream is not None
        made = next(self._stream)
        number = self._begun.popleft()
        if not made.kept and self._keeping and self._shared is not None:
            self._shared.release(number)
        return made

    def _end(self) -> None:
        """Stop making; the processes that make batches are free for other ones."""
        if self._stream is not None:
            self._stream.close()
        self._stream = None
        self._begun.clear()
