"""What is read from remote storage: each partition once, or all data in each epoch of each config.

    python benchmarks/evidence/remote_storage.py [--size full]

An S3 server on loopback counts what it serves. Hopping runs on two hosts with caches of their own; a reader
stands for task parallelism that reads all rows for each config and epoch, another one for a copy on each
machine. The measuring is that of ``benchmarks/s3_bytes.py``, at several sizes of the data. There is one
repetition, for bytes are counted. (Cerebro, VLDB 2020, section 6.2, Figure 10.)
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import measuring
from pages import OURS, PEER, Pages

REPOSITORY = measuring.HERE.parents[1]
CONFIGS, EPOCHS = 4, 3
ROWS = {"full": (5_000, 10_000, 20_000), "reduced": (1_000, 2_000)}
WAYS = {
    "hopping": "model hopping",
    "task-parallel, all data in each epoch": "task parallel: each config",
    "task-parallel, a copy on each machine": "task parallel: each machine",
}
"""What the other benchmark's lines begin with."""


def main() -> None:
    asked = measuring.options(__doc__, "remote_storage").parse_args()
    for rows in ROWS[asked.size]:
        command = [sys.executable, "benchmarks/s3_bytes.py", "--rows", str(rows)]
        command += ["--configs", str(CONFIGS), "--epochs", str(EPOCHS)]
        environment = {**measuring.PEER, "PYTHONPATH": "tests"}
        ended = subprocess.run(
            command,
            cwd=REPOSITORY,
            env={**os.environ, **environment},
            capture_output=True,  # the server's log of requests, too
            text=True,
            check=False,
        )
        if ended.returncode:
            raise SystemExit(ended.stdout + ended.stderr)
        print(ended.stdout, flush=True)
        found = {"dataset": bytes_behind("dataset: ", ended.stdout)}
        found |= {way: bytes_behind(f"{begin}.*: ", ended.stdout) for way, begin in WAYS.items()}
        measuring.write(asked.to, asked.size, {str(rows): found})


def bytes_behind(words: str, text: str) -> int:
    """The number of bytes that follows ``words``."""
    found = re.search(words + r"(\d+) bytes", text)
    assert found is not None, text
    return int(found[1])


def show(pages: Pages) -> None:
    """Megabytes that the storage served, by the size of the data."""
    found = pages.read("remote_storage")
    sizes = [each["dataset"] / 1e6 for each in found.values()]
    with pages.figure("remote_storage", size=(5.0, 3.0)) as (axes,):
        for way, colour, line in zip(WAYS, (OURS, PEER, PEER), ("-", "-", "--"), strict=True):
            served = [each[way] / 1e6 for each in found.values()]
            axes.plot(sizes, served, line, marker="o", color=colour, label=way)
        axes.set(xlabel="MB of training data", ylabel="MB read from the storage")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False)
    rows = [
        [f"{each['dataset'] / 1e6:.1f}", *(f"{each[way] / 1e6:.1f}" for way in WAYS)]
        for each in found.values()
    ]
    pages.fill("drill_down.md", "remote storage", measuring.table(["MB of training data", *WAYS], rows))


if __name__ == "__main__":
    main()
