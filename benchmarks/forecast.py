"""The simulator's forecast against what a live run takes.

    python benchmarks/forecast.py [recipe.yaml] [--nodes 2] [--epochs 5] [--runs 2]

Runs the recipe live, so many times, and prints for each run its seconds (from the first visit's begin to
the last one's end) and the ratio of the forecast to them: *fed* with what was measured in that very run,
*ahead* with what was measured in the run before it, *planned* with what `cerebro plan` measures just before,
and *at 1/4, 1/2, 3/4* what `cerebro plan RUN` forecasts from the record as it was at these shares of its
time.
All but the first hold only on a machine that does nothing else meanwhile (`uptime` near 0): whatever else
runs changes what units take. Take a recipe whose units last a second or more.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import cerebro_elastic
from cerebro_elastic import RunResult
from cerebro_elastic.core.model.events import UnitCommitted
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.reporting.timeline import timeline
from cerebro_elastic.runs.forecast.plan import plan
from cerebro_elastic.runs.forecast.rest import AS_IT_IS, RestOfRun
from cerebro_elastic.runs.forecast.simulate import simulate

HERE = Path(__file__).parent


def at_share(live: RunResult, share: float) -> float:
    """What was forecast when this share of the run's time was over, as a share of what it took."""
    ends = [event.visit.ended for event in live.events if isinstance(event, UnitCommitted)]
    began, ended = live.view.state.usage.began or 0.0, max(ends)
    now = began + share * (ended - began)
    later = (n for n, e in enumerate(live.events) if isinstance(e, UnitCommitted) and e.visit.ended > now)
    outlook = RestOfRun(live.events[: next(later)], live.recipe, now).outlook(AS_IT_IS)
    return ((outlook.ends or float("inf")) - began) / (ended - began)


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
    print("run | live | fed | ahead | planned | at 1/4 | at 1/2 | at 3/4")
    with tempfile.TemporaryDirectory(prefix="cerebro-forecast-") as home:
        for number in range(asked.runs):
            before_it = plan(recipe, nodes=[asked.nodes], partitions=partitions)
            live = cerebro_elastic.run(recipe, run_id=f"live-{number}", home=home, reuse=False)
            seconds = timeline(live.view).seconds
            fed = simulate(recipe, like=live).seconds / seconds
            ahead = f"{simulate(recipe, like=before).seconds / seconds:.3f}" if before else "-"
            planned = before_it.best.seconds / seconds
            within = " | ".join(f"{at_share(live, share):.3f}" for share in (0.25, 0.5, 0.75))
            print(f"{number} | {seconds:.1f} s | {fed:.3f} | {ahead} | {planned:.3f} | {within}", flush=True)
            before = live


if __name__ == "__main__":
    main()
