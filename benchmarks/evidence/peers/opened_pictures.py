"""Trains some configs on pictures that take long to open, by one of several systems.

    python benchmarks/evidence/peers/opened_pictures.py SYSTEM [--nodes 2] [--configs 8] [--epochs 3]

ROWS, WIDTH and OPENED are set by ``data_once.py``, which runs this. The last line says when training began
and ended.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import opening
import torch
from torch.nn.functional import cross_entropy
from training import ConfigQueue, forked

PARTITIONS = 4
ONE = {"decode": {"image": "opening:opened_and_cropped"}}
TWO = {"decode": {"image": "opening:opened"}, "augment": {"image": "opening:cropped"}}


class Fit(NamedTuple):
    """When a config's training began and ended."""

    began: float
    ended: float


def hop(asked: argparse.Namespace, functions: Mapping[str, Any], shared: bool = True) -> dict[str, float]:
    """A run of ours; one that shares batches must train as its replay, which makes them anew."""
    import cerebro_elastic

    recipe = {
        "name": "pictures",
        "epochs": asked.epochs,
        "nodes": asked.nodes,
        "task": {"kind": "torch", "model_fn": "opening:make", "loss": "cross_entropy"},
        "data": {
            "source": "opening:load",
            "partitions": PARTITIONS,
            "valid": opening.VALID,
            "batch_size": opening.BATCH,
            "workers": 1,
            **functions,
        },
        "search": {"space": {"lr": opening.rates(asked.configs)}},
        "objective": {"metric": "val_loss", "mode": "min"},
        **({} if shared else {"node": {"batch_cache_bytes": 0}}),
    }
    os.environ["CEREBRO_CHECK"] = "off"
    opened = Path(os.environ["OPENED"])
    with tempfile.TemporaryDirectory(prefix="data-once-") as home:
        result = cerebro_elastic.run(
            cerebro_elastic.load_recipe(recipe, root=Path(__file__).parent), home=home
        )
        said = {"opened": opened.stat().st_size}
        if shared and not all(visit.same for visit in cerebro_elastic.Run(result.folder).replay()):
            raise SystemExit("made anew, batches lead to other weights")
    visits = [visit for row in result.leaderboard for visit in row.visits]
    return {
        "ready": min(visit.started for visit in visits),
        "done": max(visit.ended for visit in visits),
        "made": sum(visit.batches_made for visit in visits),
        "shared": sum(visit.batches_shared for visit in visits),
        **said,
    }


def fit_plainly(loaders: tuple[Any, Any], epochs: int, lr: float) -> Fit:
    """A plain loop."""
    began = time.time()
    model, optimizer = opening.make(lr)
    for _ in range(epochs):
        for x, y in loaders[0]:
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            for x, y in loaders[1]:
                cross_entropy(model(x), y)
    return Fit(began, time.time())


def fit_by_lightning(loaders: tuple[Any, Any], epochs: int, lr: float) -> Fit:
    """One ordinary fit."""
    import lightning as L

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self._optimizer = opening.make(lr)

        def training_step(self, batch: Any) -> Any:
            return cross_entropy(self.net(batch[0]), batch[1])

        def validation_step(self, batch: Any) -> None:
            self.log("val_loss", cross_entropy(self.net(batch[0]), batch[1]), batch_size=len(batch[1]))

        def configure_optimizers(self) -> Any:
            return self._optimizer

    began = time.time()
    names = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    quiet: dict[str, Any] = dict.fromkeys(names, False)
    trainer = L.Trainer(max_epochs=epochs, accelerator="cpu", num_sanity_val_steps=0, **quiet)
    trainer.fit(Module(), *loaders)
    return Fit(began, time.time())


def by_processes(
    asked: argparse.Namespace, fit: Callable[..., Fit], memory: bool = False
) -> dict[str, float]:
    """As many processes as nodes, each with loaders of its own, take configs by turns."""
    queue = ConfigQueue([{"lr": rate} for rate in opening.rates(asked.configs)])

    def work(_: int) -> list[Any]:
        loaders = opening.loaders(memory)
        return [fit(loaders, asked.epochs, config["lr"]) for config in queue]

    return _times(forked(work, asked.nodes))


def by_ray(asked: argparse.Namespace) -> dict[str, float]:
    """Ray Tune: a trial for each config, as many at a time as nodes. Actors are kept for the next trial."""
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
    }
    import ray
    from ray import tune

    class Trial(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            torch.set_num_threads(1)
            self._loaders = opening.loaders(memory=False)
            self._config = config

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self._config = new_config
            return True

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            """Nothing: who takes over trains anew."""

        def step(self) -> dict[str, float]:
            done = fit_plainly(self._loaders, asked.epochs, self._config["lr"])
            return done._asdict()

    with tempfile.TemporaryDirectory(prefix="rt-") as folder:
        ray.init(
            log_to_driver=False, num_cpus=asked.nodes, include_dashboard=False, _temp_dir=f"{folder}/ray"
        )
        tuned = tune.Tuner(
            tune.with_resources(Trial, {"cpu": 1}),
            param_space={"lr": tune.grid_search(opening.rates(asked.configs))},
            tune_config=tune.TuneConfig(metric="ended", mode="max", reuse_actors=True),
            run_config=tune.RunConfig(
                stop={"training_iteration": 1}, storage_path=f"{folder}/tune", verbose=0
            ),
        ).fit()
        if tuned.errors:
            raise SystemExit(str(tuned.errors[0]))
        fits = [Fit(result.metrics["began"], result.metrics["ended"]) for result in tuned]
        ray.shutdown()
    return _times(fits)


def _times(fits: Sequence[Fit]) -> dict[str, float]:
    return {"ready": min(fit.began for fit in fits), "done": max(fit.ended for fit in fits)}


SYSTEMS: Mapping[str, Callable[[argparse.Namespace], dict[str, float]]] = {
    "hopping, nothing shared": partial(hop, functions=ONE, shared=False),
    "hopping": partial(hop, functions=ONE),
    "hopping, decode and augment": partial(hop, functions=TWO),
    "processes with loaders": partial(by_processes, fit=fit_plainly),
    "processes, opened rows in memory": partial(by_processes, fit=fit_plainly, memory=True),
    "Lightning": partial(by_processes, fit=fit_by_lightning),
    "Ray Tune": by_ray,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("system", choices=list(SYSTEMS))
    for name, default in (("nodes", 2), ("configs", 8), ("epochs", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    with tempfile.NamedTemporaryFile(prefix="opened-") as notes:
        os.environ["OPENED"] = notes.name
        torch.set_num_threads(1)
        said = SYSTEMS[asked.system](asked)
        print(json.dumps({"opened": os.path.getsize(notes.name)} | said))


if __name__ == "__main__":
    main()
