"""The packed job of facebookresearch/neuroai: a pool of spawned processes, an experiment at a time in each.

python packing.py EXPERIMENTS SECONDS
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor

WORKERS = 2


def experiment(seconds: float) -> float:
    """When it began. It needs torch, as any experiment would."""
    import torch  # noqa: F401

    began = time.time()
    time.sleep(seconds)
    return began


def main() -> None:
    experiments, seconds = int(sys.argv[1]), float(sys.argv[2])
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WORKERS, mp_context=spawn) as pool:
        began = list(pool.map(experiment, [seconds] * experiments))
    print(json.dumps({"began": min(began), "units": experiments}))


if __name__ == "__main__":
    main()
