"""Task parallelism on hosts: a host's share of the configs, each trained on all rows.

    python benchmarks/evidence/peers/tasks.py {copied,streamed,held} FOLDER --number 0 [--hosts 2]

A process runs on each host. ``copied`` first copies all rows to the host's disk, ``held`` reads them into
memory. ``streamed`` keeps no rows but those for validation: for each epoch of each config it reads the
partitions, each while the one before is trained.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from training import PROCESSES, Job, Outcome, Rows, Training, arguments, read_job, report, train


def streamed(job: Job, config: Mapping[str, Any], valid: Rows) -> Outcome:
    """One config, without rows in memory but those of two partitions."""
    training, began, best = Training(job.workload, config), time.time(), 0
    for _ in range(job.epochs):
        for rows in read_ahead(job):
            training.epoch(rows)
        best = max(best, training.correct(valid))
    return Outcome(began, best / len(valid[-1]))


def read_ahead(job: Job) -> Iterator[Rows]:
    """The partitions; the next one is read meanwhile."""
    with ThreadPoolExecutor(1) as reader:
        following = reader.submit(job.partition, 0)
        for number in range(len(job.partitions)):
            rows = following.result()
            if number + 1 < len(job.partitions):
                following = reader.submit(job.partition, number + 1)
            yield rows


def copied(job: Job, folder: Path) -> Job:
    """The job with its rows on the host's own disk."""
    from fsspec.core import url_to_fs

    files, path = url_to_fs(job.url)
    files.get(f"{path}/", f"{folder}/", recursive=True)
    return replace(job, url=str(folder))


def main() -> None:
    parser = arguments(__doc__, "copied", "streamed", "held")
    parser.add_argument("--number", type=int, required=True, help="of this host, from 0")
    parser.add_argument("--hosts", type=int, default=PROCESSES)
    asked = parser.parse_args()
    job = read_job(asked.folder)
    configs = job.configs[asked.number :: asked.hosts]
    if asked.way == "streamed":
        valid = job.validation()
        report(streamed(job, config, valid) for config in configs)
        return
    if asked.way == "copied":
        job = copied(job, Path(tempfile.mkdtemp(prefix="rows-")))
    rows, valid = job.load()
    report(train(job, config, rows, valid) for config in configs)


if __name__ == "__main__":
    main()
