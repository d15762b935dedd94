"""The simulator's forecast against what a live run takes.

    python benchmarks/forecast.py [recipe.yaml] [--nodes 2] [--epochs 5] [--runs 2]

Runs the recipe live, so many times, and prints for each run its seconds (from the first visit's begin to
the last one's end) and the ratio of the forecast to them: *fed* with what was measured in that very run,
*ahead* with what was measured in the run before it, and *planned* with what `cerebro plan` measures just
before. The latter two hold only on a machine that does nothing else meanwhile (`uptime` near 0): whatever
else runs changes what units take from one run to the next. Take a recipe whose units last a second or more.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import cerebro_elastic
from cerebro_elastic import RunResult
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.reporting.timeline import timeline
from cerebro_elastic.runs.forecast.plan import plan
from cerebro_elastic.runs.forecast.simulate import simulate

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", nargs="?", type=Path, default=HERE.parent / "recipes" / "digits_torch.yaml")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--runs", type=int, default=2)
    asked = parser.parse_args()
    recipe = load_recipe(asked.recipe, nodes=asked.nodes, epochs=asked.epochs)
    partitions = [recipe.data.partitions] if recipe.data.url is None else []
    before: RunResult | None = None
    print("run | live | fed | ahead | planned")
    with tempfile.TemporaryDirectory(prefix="cerebro-forecast-") as home:
        for number in range(asked.runs):
            before_it = plan(recipe, nodes=[asked.nodes], partitions=partitions)
            live = cerebro_elastic.run(recipe, run_id=f"live-{number}", home=home, reuse=False)
            seconds = timeline(live.view).seconds
            fed = simulate(recipe, like=live).seconds / seconds
            ahead = f"{simulate(recipe, like=before).seconds / seconds:.3f}" if before else "-"
            planned = before_it.best.seconds / seconds
            print(f"{number} | {seconds:.1f} s | {fed:.3f} | {ahead} | {planned:.3f}", flush=True)
            before = live


if __name__ == "__main__":
    main()
