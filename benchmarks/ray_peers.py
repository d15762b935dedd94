"""What ``on_ray.py`` trains, and how others train it: one config after the other, and as trials of Ray Tune.

    python benchmarks/ray_peers.py {sequential,tune,tune-reuse} FOLDER MODEL EPOCHS

The data are ``data.npz`` in FOLDER. Every config is trained over all rows in random batches, with a
validation after each epoch. Ray Tune's trials have a core each, and its head must run. ``tune-reuse`` keeps
its actors.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

SPACE = {"lr": [0.1, 0.01], "weight_decay": [1e-4, 1e-3]}
"""Two learning rates and two regularisations, as in section 5 of the Ray paper."""
BATCH, VALID = 64, 0.2
STEPS = "steps"
"""The file in the folder of the data to which each epoch adds when it began and ended."""


def model(kind: str) -> nn.Module:
    """A perceptron, or a small convolutional network, for 28 x 28 pixels."""
    if kind == "mlp":
        return nn.Sequential(
            nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
        )
    convolutions = [nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(
        *convolutions, nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 10)
    )


def write_data(folder: Path, rows: int) -> Path:
    """Random pictures, whose class is that of the nearest of ten prototypes."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    prototypes = rng.normal(size=(10, 784)).astype(np.float32)
    y = rng.integers(0, 10, rows)
    x = prototypes[y] + 4 * rng.normal(size=(rows, 784)).astype(np.float32)
    np.savez(folder / "data.npz", x=x, y=y)
    return folder / "data.npz"


class Training:
    """A config's plain loop over all data, epoch by epoch."""

    def __init__(self, folder: Path, kind: str, hparams: Mapping[str, float]) -> None:
        self._steps = folder / STEPS
        torch.manual_seed(0)
        torch.set_num_threads(1)
        columns = np.load(folder / "data.npz")
        x, y = (torch.from_numpy(columns[name]) for name in ("x", "y"))
        split = int(len(x) * (1 - VALID))
        self._train, self._valid = (x[:split], y[:split]), (x[split:], y[split:])
        self.set(kind, hparams)

    def set(self, kind: str, hparams: Mapping[str, float]) -> None:
        """Begin with a fresh model; the data stay."""
        self._model = model(kind)
        self._optimizer = torch.optim.SGD(self._model.parameters(), momentum=0.9, **hparams)

    def epoch(self) -> float:
        """Train one epoch; the accuracy behind it."""
        began = time.time()
        x, y = self._train
        for batch in torch.randperm(len(x)).split(BATCH):
            self._optimizer.zero_grad()
            cross_entropy(self._model(x[batch]), y[batch]).backward()
            self._optimizer.step()
        with torch.no_grad():
            accuracy = self._correct(*self._valid)
        with open(self._steps, "a") as file:
            file.write(f"{began} {time.time()}\n")
        return accuracy

    def _correct(self, x: Tensor, y: Tensor) -> float:
        return float(torch.cat([self._model(part) for part in x.split(BATCH)]).argmax(1).eq(y).float().mean())


def configs() -> Iterator[dict[str, float]]:
    """All points of the space."""
    yield from ({"lr": lr, "weight_decay": decay} for lr in SPACE["lr"] for decay in SPACE["weight_decay"])


def sequential(folder: Path, kind: str, epochs: int) -> float:
    """One config after the other in one process; the best accuracy."""
    training, best = None, 0.0
    for hparams in configs():
        if training is None:
            training = Training(folder, kind, hparams)
        else:
            training.set(kind, hparams)
        best = max(best, *(training.epoch() for _ in range(epochs)))
    return best


def tuned(folder: Path, kind: str, epochs: int, *, reuse: bool) -> float:
    """The configs as trials of Ray Tune; the best accuracy."""
    import ray
    from ray import tune

    class Trial(tune.Trainable):
        """An epoch is a step."""

        def setup(self, config: dict[str, Any]) -> None:
            self._training = Training(folder, kind, config)

        def step(self) -> dict[str, float]:
            return {"accuracy": self._training.epoch()}

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self._training.set(kind, new_config)
            return True

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            torch.save(vars(self._training)["_model"].state_dict(), f"{checkpoint_dir}/model.pt")

    ray.init(address="auto", log_to_driver=False)
    tuner = tune.Tuner(
        tune.with_resources(Trial, {"cpu": 1}),
        param_space={name: tune.grid_search(values) for name, values in SPACE.items()},
        tune_config=tune.TuneConfig(metric="accuracy", mode="max", reuse_actors=reuse),
        run_config=tune.RunConfig(
            stop={"training_iteration": epochs},
            storage_path=str(folder / "tune"),
            verbose=0,
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1, num_to_keep=1),
        ),
    )
    accuracy: float = tuner.fit().get_best_result(scope="all").metrics["accuracy"]
    return accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("way", choices=["sequential", "tune", "tune-reuse"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("model", choices=["mlp", "cnn"])
    parser.add_argument("epochs", type=int)
    asked = parser.parse_args()
    if asked.way == "sequential":
        print(sequential(asked.folder, asked.model, asked.epochs))
    else:
        print(tuned(asked.folder, asked.model, asked.epochs, reuse=asked.way == "tune-reuse"))


if __name__ == "__main__":
    main()
