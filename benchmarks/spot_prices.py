"""Does a run whose nodes come and go by the plans of ``cerebro plan --prices`` meet its deadline, and what
does it cost? Simulated: nothing is trained.

    python benchmarks/spot_prices.py [--runs 100] [--deadline 8 24] [--seed 0]

Each run has 8 configs of 3 epochs over 4 partitions, units that differ by config and by chance (a log-normal
factor of sigma 0.2), nodes that are ready after two minutes, and at most 4 nodes. It begins on one node. Once
an hour a plan is made anew from the run's record, as ``cerebro plan`` makes it, and followed for an hour.
Prices change every hour: around a third of the price on demand, with a daily cycle, noise that lasts for
hours, and spikes above the price on demand. Two kinds of plans are compared:

- *known*: the trace has the prices that will come, until the deadline;
- *yesterday*: it has the present price, and for the hours to come those of the day before.

The clairvoyant knows all prices, how long each unit will take, and needs no whole units: the work of the run
as it was, in the cheapest times of 4 nodes. Nobody can be cheaper.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from statistics import fmean

from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.runs.forecast.live import answer
from cerebro_elastic.runs.forecast.prices import PriceTrace
from cerebro_elastic.runs.forecast.rest import AS_IT_IS, Rest, RestOfRun
from cerebro_elastic.runs.forecast.simulate import toy_curves
from cerebro_elastic.runs.forecast.spot import NodeCount, cost_of, least_cost
from cerebro_elastic.runs.from_recipe import make_search, plan_of
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from cerebro_elastic.simulation import Times, UnitSizes
from cerebro_elastic.simulation.engine import Conditions

BEGIN, HOUR = 1_000_000_000.0, 3600.0
NODES, ON_DEMAND, STARTUP = 4, 1.0, 120.0
CONFIGS = 8


class Pause(Exception):
    """Ends a stretch of the simulation."""


def recipe() -> Recipe:
    task = {"kind": "torch", "model_fn": "a:b", "loss": "cross_entropy", "optimizer": "SGD"}
    space = {"lr": {"loguniform": [0.01, 1.0]}}
    search = {"method": "random", "num": CONFIGS, "space": space}
    data = {"source": "a:b", "partitions": NODES}
    return load_recipe(
        {
            "nodes": f"1:{NODES}",
            "epochs": 3,
            "scheduler": "longest-remaining",
            "task": task,
            "data": data,
            "search": search,
        }
    )


def prices(rng: random.Random, hours: int) -> list[float]:
    """The price of each hour."""
    trend, spike, phase = 0.0, 0, rng.uniform(0, 24)
    values = []
    for hour in range(hours):
        trend = 0.85 * trend + rng.gauss(0, 0.12)
        spike = max(0, spike - 1) or (rng.randrange(2, 5) if rng.random() < 0.03 else 0)
        level = 0.35 + 0.1 * math.sin((hour + phase) / 24 * 2 * math.pi)
        values.append(round(1.3 if spike else level * math.exp(trend), 4))
    return values


def pause() -> None:
    raise Pause


class LiveRun(Rest):
    """The run as it truly goes."""

    def until(self, moment: float) -> None:
        """Let it go on until this moment, or its end."""
        self.at(moment - self.conditions.start, pause)
        with suppress(Pause):
            self.play()


def begun(of: Recipe, seed: int) -> LiveRun:
    plan = replace(plan_of(of, "spot", NODES, 1), seed=seed)
    rng = random.Random(seed)
    times = Times(
        configs={f"c{number:04d}": rng.uniform(200, 600) for number in range(CONFIGS)},
        hop=4.0,
        saving=3.0,
        dispatch=1.0,
        startup={f"node-{number}": STARTUP for number in range(1000)},
    )
    conditions = Conditions(times, toy_curves(of, plan), UnitSizes(), spread=0.2, lease=5.0, start=BEGIN)
    run = LiveRun(plan, LongestRemaining(), make_search(of), conditions)
    run.open()
    run.at(0.0, partial(run.join, Node("node-0", "node-0")))
    return run


def one(seed: int, hours: int, *, known: bool) -> tuple[bool, float, float]:
    """Whether the deadline was met, what the run has cost, and what it would have cost the clairvoyant."""
    rng = random.Random(seed)
    values = prices(rng, 24 + hours + 2)
    start = BEGIN + HOUR
    run, of = begun(recipe(), seed), recipe()
    run.until(start)
    deadline = start + hours * HOUR
    true = PriceTrace([start + (n - 24) * HOUR for n in range(len(values))], values)
    names = (f"node-{number}" for number in count(1))
    fresh = (Node(name, name) for name in names)
    for hour in range(2 * hours):
        now = start + hour * HOUR
        if run.state.outcome is not None:
            break
        trace = true
        if not known:
            guessed = [
                *values[: 25 + hour],
                *(values[n - 24] if n >= 24 else 0 for n in range(25 + hour, len(values))),
            ]
            trace = PriceTrace(true.times, guessed)
        plan = None
        if now < deadline:
            # The recipe has no budget: what a node costs on demand is in the trace.
            capped = PriceTrace(trace.times, [min(price, ON_DEMAND) for price in trace.prices])
            plan = answer(RestOfRun(run.events, of, now, capped), AS_IT_IS, deadline).plan
        counts = [NodeCount(now, NODES, 0.0)] if plan is None else plan.counts
        for each in counts:
            if each.begins < now + HOUR:
                run.at(each.begins - BEGIN, partial(run.have, each.nodes, fresh))
        run.until(now + HOUR)
    ends = max(visit.ended for visit in run.visits)
    segments = true.segments(start, true.times[-1], ON_DEMAND)
    stays = [(max(joined, start), left) for joined, left in run.stays(ends) if left > start]
    work = sum(
        (visit.freed - max(visit.started, start)) * len(visit.nodes)
        for visit in run.visits
        if visit.freed > start
    )
    least = least_cost(true.segments(start, deadline, ON_DEMAND), NODES, work)
    return ends <= deadline, cost_of(stays, segments), least


def shown(ratios: Sequence[float]) -> str:
    ranked = sorted(ratios)
    return f"{fmean(ranked):.3f} | {ranked[len(ranked) * 9 // 10]:.3f} | {ranked[-1]:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--deadline", type=int, nargs="+", default=[8, 24], help="hours")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    print("hours | plans | met | cost / clairvoyant: mean | 9 of 10 | most")
    for hours in asked.deadline:
        for known in (True, False):
            seeds = range(asked.seed, asked.seed + asked.runs)
            runs = [one(seed, hours, known=known) for seed in seeds]
            met = sum(held for held, _, _ in runs)
            ratios = [paid / least for _, paid, least in runs]
            name = "known" if known else "yesterday"
            print(f"{hours} | {name} | {met} of {len(runs)} | {shown(ratios)}", flush=True)


if __name__ == "__main__":
    main()
