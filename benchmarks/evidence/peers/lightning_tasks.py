"""Task-parallel Lightning: two processes with a copy of all rows each, which take configs by turns.

    python benchmarks/evidence/peers/lightning_tasks.py FOLDER

A process stands for a machine of a cluster. Loaders index whole batches in memory, and the trainer has
nothing that slows it: no logger, progress bar, checkpoint or sanity check.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch
from training import ConfigQueue, Job, Outcome, Rows, arguments, forked, read_job, report, seed_of


def fit(job: Job, config: Mapping[str, Any], rows: Rows, valid: Rows) -> Outcome:
    """One ordinary fit."""
    import lightning as L
    from lightning_module import Module
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset

    def loader(columns: Rows, sampler: Any) -> DataLoader[Any]:
        data = TensorDataset(*columns)
        batches = BatchSampler(sampler(data), config["batch_size"], drop_last=False)
        return DataLoader(data, sampler=batches, batch_size=None)

    scores: list[float] = []
    began: list[float] = []
    watch = L.pytorch.callbacks.LambdaCallback(
        on_train_start=lambda *_: began.append(time.time()),
        on_validation_end=lambda trainer, _: scores.append(float(trainer.callback_metrics["val_acc"])),
    )
    torch.manual_seed(seed_of(config))
    module = Module(job.workload, **{name: value for name, value in config.items() if name != "batch_size"})
    quiet: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    trainer = L.Trainer(
        max_epochs=job.epochs, accelerator="cpu", callbacks=[watch], num_sanity_val_steps=0, **quiet
    )
    trainer.fit(module, loader(rows, RandomSampler), loader(valid, SequentialSampler))
    return Outcome(began[0], max(scores))


def main() -> None:
    job = read_job(arguments(__doc__).parse_args().folder)
    import lightning_module  # noqa: F401 - before the fork

    queue = ConfigQueue(job.configs)

    def work(_: int) -> list[Outcome]:
        rows, valid = job.load()
        return [fit(job, config, rows, valid) for config in queue]

    report(forked(work))


if __name__ == "__main__":
    main()
