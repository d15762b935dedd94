"""Optuna's `pytorch_simple` on rows in memory: a search of small perceptrons, in two processes.

python simple_optuna.py TRIALS
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from functions import BATCH, perceptron, pictures, suggest
from optuna_pair import pair
from torch.nn.functional import nll_loss

EPOCHS = 10


def main() -> None:
    import optuna

    torch.set_num_threads(1)
    (images, labels), valid = (
        [torch.from_numpy(column) for column in split.values()] for split in pictures().values()
    )

    def objective(trial: Any) -> float:
        net, optimizer = perceptron(**suggest(trial))
        accuracy = 0.0
        for epoch in range(EPOCHS):
            net.train()
            for batch in torch.randperm(len(labels)).split(BATCH):
                optimizer.zero_grad()
                nll_loss(net(images[batch]), labels[batch]).backward()
                optimizer.step()
            net.eval()
            with torch.no_grad():
                pieces = zip(*(column.split(BATCH) for column in valid), strict=True)
                right = sum(int((net(image).argmax(1) == label).sum()) for image, label in pieces)
            accuracy = right / len(valid[1])
            trial.report(accuracy, epoch)
            if trial.should_prune():
                raise optuna.TrialPruned
        return accuracy

    pair(objective, int(sys.argv[1]))


if __name__ == "__main__":
    main()
