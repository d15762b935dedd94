"""Jobs that several machines do together without talking to each other: who has done one leaves a record.

Each machine does its own share first, and then what the others have not done yet, from their shares' ends:
none waits for one that is slow or dead, and a job that two machines do comes out the same. What was killed
goes on from the records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from typing import Any, TypeAlias

from cerebro_elastic.files import Place, exists, read, sizes

Record: TypeAlias = Mapping[str, Any]
_WAITING = 2


@dataclass(frozen=True, slots=True)
class Job:
    """A job by its name; ``perform(*arguments)`` does it in another process and writes its record."""

    name: str
    perform: Callable[..., Record]
    arguments: Callable[[], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Share:
    """This machine's share of all jobs: each ``of``-th, from ``index`` on."""

    index: int = 0
    of: int = 1

    def order(self, jobs: Sequence[Job]) -> list[Job]:
        """Its own jobs, then the others' from their end."""
        own = jobs[self.index :: self.of]
        names = {job.name for job in own}
        return [*own, *(job for job in reversed(jobs) if job.name not in names)]


def record_of(folder: Place, name: str) -> Place:
    """Where the record of a job that has been done is."""
    return folder / f"{name}.json"


def do_all(
    jobs: Sequence[Job], folder: Place, share: Share, pool: Executor, workers: int
) -> Iterator[tuple[str, Record, bool]]:
    """Do what has not been done, until all has: of each job, as they come, its name, its record, and whether
    it was done here and now."""
    done = {path.rpartition("/")[2] for path in sizes(folder)}
    running: dict[Future[Record], str] = {}
    try:
        for job in share.order(jobs):
            place = record_of(folder, job.name)
            if f"{job.name}.json" in done or (share.of > 1 and exists(place)):
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


def _finished(running: dict[Future[Record], str]) -> Iterator[tuple[str, Record, bool]]:
    for future in wait(running, return_when=FIRST_COMPLETED).done:
        yield running.pop(future), future.result(), True
