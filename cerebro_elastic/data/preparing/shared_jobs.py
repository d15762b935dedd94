"""Jobs that several machines share without talking to each other: each job that is done leaves a record.

A machine does its own share first, and then the open jobs of others, from the ends of their shares. So none
waits for one that is slow or dead; a job that two machines do has the same result. A machine that was killed
continues from the records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from typing import Any, TypeAlias

from cerebro_elastic.system.files import Place, exists, read, sizes

JobRecord: TypeAlias = Mapping[str, Any]
_WAITING = 2
"""Jobs submitted for each worker process."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job that a worker process does by ``perform(*arguments())``, which writes the job's record."""

    name: str
    perform: Callable[..., JobRecord]
    """A function that can be pickled."""
    arguments: Callable[[], tuple[Any, ...]]
    """Makes the arguments, when the job is submitted."""


@dataclass(frozen=True, slots=True)
class MachineShare:
    """This machine's share of all jobs: each ``of``-th, from ``index`` on."""

    index: int = 0
    """This machine's number, from 0."""
    of: int = 1
    """How many machines share the jobs."""

    def order(self, jobs: Sequence[Job]) -> list[Job]:
        """Its own jobs, then the others' from their end."""
        own = jobs[self.index :: self.of]
        names = {job.name for job in own}
        return [*own, *(job for job in reversed(jobs) if job.name not in names)]


def record_of(folder: Place, name: str) -> Place:
    """The place of the record of a job that is done."""
    return folder / f"{name}.json"


def do_all(
    jobs: Sequence[Job], folder: Place, share: MachineShare, pool: Executor, workers: int
) -> Iterator[tuple[str, JobRecord, bool]]:
    """Do the jobs that have no record in ``folder``, until all have one.

    Yields:
        Each job's name, its record, and whether it was done here and now; in the order in which they end.
    """
    finished = {path.rpartition("/")[2] for path in sizes(folder)}
    running: dict[Future[JobRecord], str] = {}
    try:
        for job in share.order(jobs):
            place = record_of(folder, job.name)
            if f"{job.name}.json" in finished or (share.of > 1 and exists(place)):
                yield job.name, json.loads(read(place)), False
                continue
            running[pool.submit(job.perform, *job.arguments())] = job.name
            if len(running) >= _WAITING * workers:
                yield from _finished(running)
        while running:
            yield from _finished(running)
    finally:
        for future in running:
            future.cancel()


def _finished(running: dict[Future[JobRecord], str]) -> Iterator[tuple[str, JobRecord, bool]]:
    for future in wait(running, return_when=FIRST_COMPLETED).done:
        yield running.pop(future), future.result(), True
