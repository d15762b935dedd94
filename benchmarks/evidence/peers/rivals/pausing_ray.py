"""Ray Tune's `frequent_pausing`: two trials of 80 MB that pause at each report, until the time is over.

python pausing_ray.py SECONDS
"""

from __future__ import annotations

import json
import pickle
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from growing import growth, watched
from ray_head import storage


def main() -> None:
    seconds = float(sys.argv[1])
    from ray import tune
    from ray.tune.schedulers import FIFOScheduler, TrialScheduler

    def train(_: dict[str, Any]) -> None:
        epoch, checkpoint = 0, tune.get_checkpoint()
        if checkpoint:
            with checkpoint.as_directory() as folder:
                epoch = pickle.loads(Path(folder, "state").read_bytes())["epoch"] + 1
        while True:
            state = {"epoch": epoch, "large": np.zeros(10_000_000)}
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "state").write_bytes(pickle.dumps(state))
                tune.report({"at": time.time()}, checkpoint=tune.Checkpoint.from_directory(folder))
            epoch += 1

    class Pausing(FIFOScheduler):  # type: ignore[misc]
        def on_trial_result(self, *_: Any) -> str:
            paused: str = TrialScheduler.PAUSE
            return paused

    def is_over(_: str, result: dict[str, Any]) -> bool:
        times.append(result["at"])
        return times[-1] > times[0] + seconds

    times: list[float] = []
    with storage() as folder, watched() as seen:
        tune.Tuner(
            train,
            tune_config=tune.TuneConfig(num_samples=2, scheduler=Pausing()),
            run_config=tune.RunConfig(storage_path=folder, verbose=0, stop=is_over),
        ).fit()
    minutes = (times[-1] - times[0]) / 60
    said = {
        "began": times[0],
        "pauses": len(times) / minutes,
        "growth_bytes": growth(seen, times[0], times[-1]),
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
