"""Ray Tune's `test_tune_worker_fault_tolerance`: two trials that report a checkpoint at each iteration.

    python faults_ray.py ITERATIONS

A checkpoint has what that of Ray's guide has: the model, the optimizer, and the number of the iteration.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from faults import SECONDS, begun, same, step, undisturbed
from ray_head import SLOTS, storage
from striking import children, struck

FILE, ACTOR = "state.pt", "ray::ImplicitFunc"


def main() -> None:
    iterations = int(sys.argv[1])
    from ray import tune

    def train(_: dict[str, Any]) -> None:
        model, optimizer = begun()
        first, checkpoint = 0, tune.get_checkpoint()
        if checkpoint:
            with checkpoint.as_directory() as folder:
                state = torch.load(Path(folder, FILE))
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            first = state["iteration"] + 1
        for iteration in range(first, iterations):
            time.sleep(SECONDS)
            step(model, optimizer)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iteration": iteration}
            with tempfile.TemporaryDirectory() as folder:
                torch.save(state, Path(folder, FILE))
                tune.report({"iteration": iteration}, checkpoint=tune.Checkpoint.from_directory(folder))

    with storage() as folder:
        began = time.time()
        reported = Path(folder)
        with struck(lambda: children(ACTOR) if any(reported.glob("*/*/checkpoint_*")) else []) as killed:
            results = tune.Tuner(
                train,
                tune_config=tune.TuneConfig(num_samples=SLOTS),
                run_config=tune.RunConfig(
                    storage_path=folder,
                    verbose=0,
                    failure_config=tune.FailureConfig(max_failures=-1),
                    checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
                ),
            ).fit()
        done = time.time()
        states = [torch.load(Path(result.checkpoint.path, FILE)) for result in results]
    assert all(state["iteration"] == iterations - 1 for state in states)
    wanted = undisturbed(iterations)
    equal = sum(same(wanted, state["model"]) for state in states)
    print(json.dumps({"ready": began, "done": done, "kills": len(killed), "equal": equal}))


if __name__ == "__main__":
    main()
