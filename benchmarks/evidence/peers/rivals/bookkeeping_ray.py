"""Ray Tune's `test_bookkeeping_overhead`: many trials of a second, each with one report.

python bookkeeping_ray.py TRIALS SECONDS
"""

from __future__ import annotations

import json
import os
import sys
import time

from ray_head import storage


def main() -> None:
    trials, seconds = int(sys.argv[1]), float(sys.argv[2])
    os.environ["TUNE_GLOBAL_CHECKPOINT_S"] = "100"  # as theirs
    from ray import tune

    def train(config: dict[str, float]) -> None:
        began = time.time()
        time.sleep(seconds)
        tune.report({"score": config["score"], "began": began})

    with storage() as folder:
        tuner = tune.Tuner(
            train,
            param_space={"score": tune.uniform(0.0, 1.0)},
            tune_config=tune.TuneConfig(num_samples=trials, reuse_actors=True),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        )
        began = [result.metrics["began"] for result in tuner.fit()]
    assert len(began) == trials
    print(json.dumps({"began": min(began), "units": trials}))


if __name__ == "__main__":
    main()
