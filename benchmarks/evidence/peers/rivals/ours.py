"""Ours: `cerebro run` of a recipe of ``our_recipes.py``.

    python ours.py RECIPE ARGUMENTS

ARGUMENTS is JSON, those of the recipe's function.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from our_recipes import RECIPES

HERE = Path(__file__).parent
CEREBRO = (sys.executable, "-m", "cerebro_elastic.cli")


def started(recipe: Mapping[str, Any], home: Path, **environment: str) -> subprocess.Popen[bytes]:
    """The run ``recipe`` of a home."""
    file = home / "recipe.yaml"
    file.write_text(json.dumps(recipe))  # JSON is YAML, too
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [*CEREBRO, "run", "--fresh", str(file), "--home", str(home)],
        env={**os.environ, **environment, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
    )


def visits(home: Path) -> list[dict[str, Any]]:
    """All that were committed."""
    lines = (home / "recipe" / "history.jsonl").read_text().splitlines()
    return [event["visit"] for event in map(json.loads, lines) if "visit" in event]


def said(home: Path) -> dict[str, float]:
    """When the run ended, when its first unit began, how many there were, and the best accuracy, of folds the
    mean."""
    done = time.time()
    from cerebro_elastic import Run

    found, result = visits(home), Run.open("recipe", home=home).result
    accuracy = result.best.best if "accuracy" in result.recipe.objective.metric else 0.0
    began = min(visit["started"] for visit in found)
    return {"done": done, "began": began, "units": len(found), "accuracy": accuracy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("recipe", choices=list(RECIPES))
    parser.add_argument("arguments", type=json.loads)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ours-") as name:
        home = Path(name)
        if code := started(RECIPES[asked.recipe](**asked.arguments), home).wait():
            raise SystemExit(code)
        print(json.dumps(said(home)))


if __name__ == "__main__":
    main()
