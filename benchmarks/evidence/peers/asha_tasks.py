"""optuna's ASHA on plain processes: each trains a trial at a time on all data. For ``searches.py``.

    python asha_tasks.py FOLDER SPEC

SPEC is JSON: ``seed``, ``workers``, ``epochs`` (of a trial at most), ``seconds`` (from the first batch, after
which no epoch begins), and the reduction ``factor``. Prints a JSON line for each epoch: the time, trial,
epoch, and accuracy.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pictures import BATCH, load_few, model, to_input

WIDTH = 8


def work(folder: Path, spec: dict[str, Any], worker: int) -> None:
    """Train trials until the time is over."""
    import optuna
    import torch
    from torch.nn.functional import cross_entropy

    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    data = load_few()
    images, labels = (torch.from_numpy(column.copy()) for column in data["train"].values())
    valid = [torch.from_numpy(column.copy()) for column in data["valid"].values()]
    study = optuna.create_study(
        study_name="asha",
        direction="maximize",
        storage=optuna.storages.JournalStorage(
            optuna.storages.journal.JournalFileBackend(str(folder / "study.log"))
        ),
        sampler=optuna.samplers.RandomSampler(seed=1000 * spec["seed"] + worker),
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=spec["factor"]),
        load_if_exists=True,
    )
    began = folder / "began"

    def over() -> bool:
        with suppress(FileExistsError), began.open("x") as file:  # whose first batch is the first of all
            file.write(f"{time.time():.4f}")
        return time.time() - float(began.read_text() or "inf") > spec["seconds"]

    def objective(trial: Any) -> float:
        torch.manual_seed(trial.number)
        lr = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
        decay = trial.suggest_float("weight_decay", 1e-5, 1e-1, log=True)
        net = model(WIDTH, trial.suggest_float("dropout", 0.0, 0.5))
        optimizer = torch.optim.AdamW(net.parameters(), lr, weight_decay=decay)
        accuracy = 0.0
        for epoch in range(spec["epochs"]):
            if over():
                study.stop()
                raise optuna.TrialPruned
            net.train()
            for batch in torch.randperm(len(labels)).split(BATCH):
                image, label = to_input((images[batch], labels[batch]))
                optimizer.zero_grad()
                cross_entropy(net(image), label).backward()
                optimizer.step()
            net.eval()
            with torch.no_grad():
                pieces = zip(*(column.split(500) for column in valid), strict=True)
                right = sum(net(to_input(piece)[0]).argmax(1).eq(piece[1]).sum() for piece in pieces)
            accuracy = float(right) / len(valid[1])
            line = {"time": time.time(), "trial": trial.number, "epoch": epoch, "accuracy": accuracy}
            print(json.dumps(line) + "\n", end="", flush=True)  # in one piece: workers share the output
            trial.report(accuracy, epoch + 1)
            if trial.should_prune():
                raise optuna.TrialPruned
        return accuracy

    study.optimize(objective)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("spec", type=json.loads)
    parser.add_argument("--worker", type=int, help="be this one of the workers")
    asked = parser.parse_args()
    if asked.worker is not None:
        work(asked.folder, asked.spec, asked.worker)
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    workers = [
        subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--worker", str(number)])
        for number in range(asked.spec["workers"])
    ]
    codes = [worker.wait() for worker in workers]
    if any(codes):
        raise SystemExit("a worker has failed")


if __name__ == "__main__":
    main()
