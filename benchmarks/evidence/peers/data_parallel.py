"""One config after the other on two ranks, each of which has its share of the rows.

    python benchmarks/evidence/peers/data_parallel.py {ddp,fsdp,averaging} FOLDER [--ranks 2]
    python benchmarks/evidence/peers/data_parallel.py {ddp,fsdp,averaging} FOLDER --rank 0 --first HOST:PORT

``ddp`` and ``fsdp`` (``fully_shard``) add up gradients after each batch; a rank's batch is the config's, so
the model sees one of twice the rows, as in the paper. ``averaging`` trains each half alone, and averages the
weights after each epoch. Each rank evaluates half of the rows for validation. The ranks talk by gloo. With
``--rank`` the process is one of them; the others may be on other hosts, and the first one listens.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from training import PROCESSES, Job, Outcome, Rows, Training, arguments, forked, read_job, report


class Ddp(Training):
    """Gradients are added up while they are computed."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.model = nn.parallel.DistributedDataParallel(self.model, gradient_as_bucket_view=True)


class Fsdp(Training):
    """Weights, gradients and the optimizer's state are halved."""

    def optimizer_of(self, config: Mapping[str, Any]) -> torch.optim.Optimizer:
        from torch.distributed.fsdp import fully_shard

        fully_shard(self.model)
        return super().optimizer_of(config)


class Averaging(Training):
    """An epoch of its own rows, then the mean of the weights."""

    def epoch(self, rows: Rows) -> None:
        super().epoch(rows)
        with torch.no_grad():
            flat = nn.utils.parameters_to_vector(self.model.parameters())
            dist.all_reduce(flat)
            nn.utils.vector_to_parameters(flat / dist.get_world_size(), self.model.parameters())


WAYS: Mapping[str, type[Training]] = {"ddp": Ddp, "fsdp": Fsdp, "averaging": Averaging}


def train(job: Job, way: type[Training], config: Mapping[str, Any], rows: Rows, valid: Rows) -> Outcome:
    """One config on both ranks."""
    training, began, best = way(job.workload, config), time.time(), 0.0
    for _ in range(job.epochs):
        training.epoch(rows)
        counted = torch.tensor([training.correct(valid), len(valid[-1])])
        dist.all_reduce(counted)
        best = max(best, float(counted[0] / counted[1]))
    return Outcome(began, best)


def rank(job: Job, way: type[Training], ranks: int, meeting: str, number: int) -> list[Outcome]:
    """The work of one rank; ``meeting`` is the URL where all meet."""
    dist.init_process_group("gloo", init_method=meeting, rank=number, world_size=ranks)
    rows, valid = job.part(number, ranks)
    outcomes = [train(job, way, config, rows, valid) for config in job.configs]
    dist.destroy_process_group()
    return outcomes


def main() -> None:
    parser = arguments(__doc__, *WAYS)
    parser.add_argument("--ranks", type=int, default=PROCESSES)
    parser.add_argument("--rank", type=int, help="only this rank, in this process")
    parser.add_argument("--first", metavar="HOST:PORT", help="where the first rank listens")
    asked = parser.parse_args()
    job, way = read_job(asked.folder), WAYS[asked.way]
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if asked.rank is not None:
        report(rank(job, way, asked.ranks, f"tcp://{asked.first}", asked.rank))
    else:
        meeting = f"file://{job.folder.resolve()}/ranks-{os.getpid()}"
        report(forked(partial(rank, job, way, asked.ranks, meeting), asked.ranks))


if __name__ == "__main__":
    main()
