"""Ours: two configs of one unit for each iteration, while ranks are killed.

python faults_ours.py ITERATIONS
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from faults import SECONDS, same
from our_recipes import sleeping
from ours import started, visits
from striking import children, struck

from cerebro_elastic import Run

RANK = "cerebro_elastic.worker"


def main() -> None:
    recipe = sleeping(2, int(sys.argv[1]))
    with tempfile.TemporaryDirectory(prefix="ours-") as name:
        home, calm = Path(name, "struck"), Path(name, "calm")
        home.mkdir()
        calm.mkdir()
        ready = time.time()
        with struck(lambda: ranks() if has_begun(home) else []) as killed:
            if code := started(recipe, home, SLEEP=str(SECONDS)).wait():
                raise SystemExit(code)
        done = time.time()
        if code := started(recipe, calm, SLEEP="0").wait():
            raise SystemExit(code)
        equal = sum(map(same, weights(home), weights(calm)))
        began = min(visit["started"] for visit in visits(home))
    said = {"ready": ready, "done": done, "began": began, "kills": len(killed), "equal": equal}
    print(json.dumps(said))


def has_begun(home: Path) -> bool:
    """Whether a visit was committed."""
    history = home / "recipe" / "history.jsonl"
    return history.exists() and '"visit"' in history.read_text()


def ranks() -> list[psutil.Process]:
    """The processes that train; their agents' commands name them, too."""
    return children(RANK, but="distributed.run")


def weights(home: Path) -> list[dict[str, Any]]:
    """Those that each config ended with."""
    result = Run.open("recipe", home=home).result
    return [result.state(name, best=False)["model"] for name in result.configs]


if __name__ == "__main__":
    main()
