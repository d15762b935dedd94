"""Ray Tune: a trial for each config, two at a time.

    python benchmarks/evidence/peers/ray_tune.py FOLDER

The rows lie in Ray's object store once, and its actors, which are kept for the next trial, map them. A
trial saves its model at its end only, and results go to no logger. Where RAY_ADDRESS names a head it is used;
RESULTS_URL names a storage for results where that head has several hosts.
"""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from typing import Any

import torch
from training import PROCESSES, Outcome, Training, arguments, read_job, report


def main() -> None:
    job = read_job(arguments(__doc__).parse_args().folder)
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
        "TUNE_GLOBAL_CHECKPOINT_S": "1000000",
        "PYTHONPATH": os.pathsep.join(
            [os.path.dirname(os.path.abspath(__file__)), os.environ.get("PYTHONPATH", "")]
        ),
    }
    import ray
    from ray import tune

    class Trial(tune.Trainable):
        """An epoch is a step."""

        def setup(self, config: dict[str, Any], columns: Any = None) -> None:
            torch.set_num_threads(1)
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            self._rows, self._valid = (tuple(map(torch.from_numpy, split)) for split in columns)
            self.reset_config(config)

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self._training = Training(read_job(job_folder).workload, new_config["config"])
            self._began, self._best = time.time(), 0.0
            return True

        def step(self) -> dict[str, float]:
            self._training.epoch(self._rows)
            self._best = max(self._best, self._training.correct(self._valid) / len(self._valid[-1]))
            return {"accuracy": self._best, "began": self._began}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            torch.save(self._training.model.state_dict(), f"{checkpoint_dir}/model.pt")

    job_folder = job.folder.resolve()
    columns = [[column.numpy() for column in split] for split in job.load()]
    with tempfile.TemporaryDirectory(prefix="rt-") as folder:
        head = {"num_cpus": PROCESSES, "include_dashboard": False, "_temp_dir": f"{folder}/ray"}
        ray.init(log_to_driver=False, **({} if "RAY_ADDRESS" in os.environ else head))
        tuner = tune.Tuner(
            tune.with_resources(tune.with_parameters(Trial, columns=columns), {"cpu": 1}),
            param_space={"config": tune.grid_search(list(job.configs))},
            tune_config=tune.TuneConfig(metric="accuracy", mode="max", reuse_actors=True),
            run_config=tune.RunConfig(
                stop={"training_iteration": job.epochs},
                storage_path=os.environ.get("RESULTS_URL", f"{folder}/tune"),
                verbose=0,
            ),
        )
        tuned = tuner.fit()
        if tuned.errors:
            raise SystemExit(str(tuned.errors[0]))
        outcomes = [Outcome(result.metrics["began"], result.metrics["accuracy"]) for result in tuned]
        ray.shutdown()
    report(outcomes)


if __name__ == "__main__":
    main()
