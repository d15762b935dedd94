"""`torch.multiprocessing` by hand: two processes share all rows in memory, and take configs by turns.

python benchmarks/evidence/peers/by_hand.py FOLDER
"""

from __future__ import annotations

from training import ConfigQueue, Outcome, arguments, forked, read_job, report, train


def main() -> None:
    job = read_job(arguments(__doc__).parse_args().folder)
    rows, valid = job.load()
    for column in (*rows, *valid):
        column.share_memory_()
    queue = ConfigQueue(job.configs)

    def work(_: int) -> list[Outcome]:
        return [train(job, config, rows, valid) for config in queue]

    report(forked(work))


if __name__ == "__main__":
    main()
