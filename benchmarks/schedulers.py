"""The schedulers against their lower bounds: the papers' figures again, and what lies beyond them.

    python benchmarks/schedulers.py [--seeds 5] [--seconds 1] [fig5 fig6 hard noise replicas deaths
    halving thesis exact scale]

Prints, for each setting, the mean and the largest ratio of the makespan to the lower bound over fresh seeds,
the target that it is judged by, and the CPU seconds of one schedule. ``scale`` takes a minute, ``exact``
minutes for each seed and ortools; they are left out unless named."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, hstack

from cerebro_planner import (
    Disturbances,
    Instance,
    Outage,
    Rungs,
    instance,
    joint,
    lower_bound,
    schedule,
)

CNNS = {
    "alexnet": 727, "caffenet": 724, "squeezenet1-0": 837, "squeezenet1-1": 360, "vgg-f": 727, "vgg-m": 2000,
    "vgg-s": 3000, "vgg-m-2048": 2000, "vgg-m-1024": 2000, "vgg-m-128": 2000, "vgg-vd-16-atrous": 16000,
    "vgg-vd-16": 16000, "vgg-vd-19": 20000, "googlenet": 2000, "resnet18": 2000, "resnet34": 4000,
    "resnet-50": 4000, "resnet-101": 8000, "resnet-152": 11000, "resnext-50-32x4d": 4000,
    "resnext-101-32x4d": 8000, "resnext-101-64x4d": 16000, "inception-v3": 6000, "SE-ResNet-50": 4000,
    "SE-ResNet-101": 8000, "SE-ResNet-152": 11000, "SE-ResNeXt-50-32x4d": 4000, "SE-ResNeXt-101-32x4d": 8000,
    "SENet": 21000, "SE-BN-Inception": 2000, "densenet121": 3000, "densenet161": 8000, "densenet169": 3000,
    "densenet201": 4000, "mcn-mobilenet": 579,
}  # fmt: skip
"""MFLOPs for one image, from the first table of github.com/albanie/convnet-burden's README at 9c7f31b: the
paper's reference [3]. Their mean is 5942, their standard deviation 5670 (paper, section 5.4: 5939 and
5671)."""
GPUS = {"Titan Xp": 12.1, "K80": 5.6, "GTX 1080": 11.3, "P100": 18.7}
"""TFLOPS (paper, section 5.4)."""

Row = tuple[str, list[float], str, float]
"""A setting, its ratios, its target, CPU seconds of one schedule."""


def durations(configs: int, nodes: int, seed: int, mixed_nodes: bool = True) -> NDArray[np.float64]:
    """As in the paper's Fig 6: drawn with replacement."""
    rng = np.random.default_rng(seed)
    cost = rng.choice(np.array(list(CNNS.values()), float), configs)
    speed = rng.choice(np.array(list(GPUS.values())), nodes) if mixed_nodes else np.full(nodes, 11.3)
    return cost[:, None] / speed


def ring(nodes: int, replicas: int) -> NDArray[np.bool_]:
    """Each partition on so many nodes, each node with as many partitions."""
    return sum(np.roll(np.eye(nodes), k, axis=0) for k in range(replicas)) > 0


def measured(name: str, target: str, seeds: int, ratio: Callable[[int], float]) -> Row:
    """One row."""
    begun = time.process_time()
    ratios = [ratio(seed) for seed in range(seeds)]
    return name, ratios, target, (time.process_time() - begun) / seeds


def fig5(_seeds: int, _seconds: float) -> Iterator[Row]:
    """Fig 5: 9 task-parallel, 9 by a bad order of hops, 7 at best (three configs of 3, two of 6)."""
    units = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [2.0, 2.0, 2.0]])
    yield measured("7 seconds at best", "1", 1, lambda _: schedule(units).makespan / 7.0)


def fig6(seeds: int, seconds: float) -> Iterator[Row]:
    """16 and 256 configs on 8 and 16 nodes."""
    for configs in (16, 256):
        for nodes in (8, 16):
            same = np.ones((configs, nodes))
            yield measured(
                f"{configs} x {nodes} alike",
                "mean 1.001, max 1.005",
                1,
                lambda seed, d=same: 1 + schedule(d, seed=seed, seconds=seconds).gap,
            )
            yield measured(
                f"{configs} x {nodes} mixed",
                "mean 1.001, max 1.005",
                seeds,
                lambda seed, c=configs, n=nodes: 1 + schedule(durations(c, n, seed), seconds=seconds).gap,
            )


HARD = ((28, 8), (64, 16))


def hard(seeds: int, seconds: float) -> Iterator[Row]:
    """Mixed configs on equal nodes: the longest config is about as long as a node's load."""
    for configs, nodes in HARD:
        for policy in ("random", "longest-remaining", "vector-rearrangement", "monte-carlo", "auto"):
            yield measured(
                f"{configs} x {nodes} {policy}",
                "mean 1.005, max 1.01" if policy == "auto" else "",
                seeds,
                lambda seed, c=configs, n=nodes, p=policy: (
                    1 + schedule(durations(c, n, seed, mixed_nodes=False), p, seconds=seconds).gap
                ),
            )


def noise(seeds: int, seconds: float) -> Iterator[Row]:
    """Units that take other times than expected (log-normal)."""

    def ratio(seed: int, configs: int, nodes: int, spread: float) -> float:
        expected = durations(configs, nodes, seed, mixed_nodes=False)
        actual = expected * np.random.default_rng(seed).lognormal(0, spread, expected.shape)
        return 1 + schedule(expected, seconds=seconds, disturbances=Disturbances(actual)).gap

    for configs, nodes in HARD:
        for spread in (0.1, 0.3):
            yield measured(
                f"{configs} x {nodes} noise {spread}",
                "1.015" if spread == 0.3 else "",
                seeds,
                lambda seed, c=configs, n=nodes, s=spread: ratio(seed, c, n, s),
            )


def replicas(seeds: int, seconds: float) -> Iterator[Row]:
    """r = 2 and 3, against the linear program's bound."""
    for configs, nodes in ((16, 8), (32, 8), (16, 16), (32, 16), (256, 8), (256, 16)):
        for r in (2, 3):
            for policy in ("random", "auto") if configs < 256 else ("auto",):
                yield measured(
                    f"{configs} x {nodes} r={r} {policy}",
                    "" if policy == "random" else ("1.003" if configs == 256 else "1.02"),
                    seeds,
                    lambda seed, c=configs, n=nodes, r=r, p=policy: (
                        1 + schedule(instance(durations(c, n, seed), ring(n, r)), p, seconds=seconds).gap
                    ),
                )


def deaths(seeds: int, seconds: float) -> Iterator[Row]:
    """r = 3, and one or two nodes die on the way: against the bound of r = 1 without deaths. Nobody can do
    better than *clairvoyant*: a bound for who knows beforehand which nodes die when."""

    def setting(seed: int, configs: int, nodes: int, count: int) -> tuple[Instance, list[Outage]]:
        times, rng = durations(configs, nodes, seed), np.random.default_rng(seed)
        problem = instance(times, ring(nodes, 3))
        when = rng.uniform(0.1, 0.9, count) * lower_bound(problem)
        dead = rng.choice(nodes, count, replace=False)
        return problem, [Outage(int(n), float(t)) for n, t in zip(dead, when, strict=True)]

    def ratio(seed: int, *shape: int) -> float:
        problem, outages = setting(seed, *shape)
        found = schedule(problem, seconds=seconds, disturbances=Disturbances(outages=outages))
        return found.makespan / lower_bound(instance(problem.durations))

    def bound(seed: int, *shape: int) -> float:
        problem, outages = setting(seed, *shape)
        return clairvoyant(problem, outages) / lower_bound(instance(problem.durations))

    for (configs, nodes), target in (((16, 8), "0.76"), ((32, 8), "0.61"), ((32, 16), "0.74")):
        for count in (1, 2):
            for name, found, aim in (("", ratio, target), (", clairvoyant", bound, "")):
                yield measured(
                    f"{configs} x {nodes} r=3, {count} dead{name}",
                    aim,
                    seeds,
                    lambda seed, c=configs, n=nodes, k=count, f=found: f(seed, c, n, k),
                )


def clairvoyant(problem: Instance, outages: list[Outage]) -> float:
    """The linear program of ``bounds`` for nodes that do nothing after they have died: no node that lives
    and no config needs longer, and none that dies longer than it has."""
    partition, node = np.nonzero(problem.availability.T)
    configs, pairs, nodes = problem.configs, len(partition), problem.nodes
    seconds = problem.seconds()[:, partition, node]
    columns = np.arange(configs * pairs)
    unit = (np.arange(configs)[:, None] * problem.partitions + partition).ravel()
    row = np.concatenate([np.repeat(np.arange(configs), pairs), configs + np.tile(node, configs)])
    ends = np.zeros(configs + nodes)
    for outage in outages:
        ends[configs + outage.node] = outage.start
    spent = csr_matrix((np.tile(seconds.ravel(), 2), (row, np.tile(columns, 2))))
    solved = linprog(
        np.append(np.zeros(len(columns)), 1.0),
        A_ub=hstack([spent, csr_matrix(-(ends == 0.0).astype(float)[:, None])]),
        b_ub=ends,
        A_eq=hstack([csr_matrix((np.ones(len(columns)), (unit, columns))), csr_matrix((unit.max() + 1, 1))]),
        b_eq=np.ones(unit.max() + 1),
    )
    return float(solved.fun)


RUNGS = ((16, 8, (1, 2, 4, 8), 2), (32, 8, (1, 2, 4, 8), 2), (64, 8, (1, 2, 4, 8), 2), (81, 16, (1, 3, 9), 3))
"""Configs, nodes, rungs (epochs) and reduction factor."""


def halving(seeds: int, _seconds: float) -> Iterator[Row]:
    """Who survives is told when it is decided; against the pipelined bound: no schedule that knows all
    survivors from the start, and lets them go on without a barrier, is shorter."""

    def ratio(seed: int, rung: tuple[int, int, tuple[int, ...], int], policy: str, rule: str) -> float:
        configs, nodes, rungs, factor = rung
        losses = np.random.default_rng(seed + 1000).random(configs)
        survivors = Disturbances(halving=Rungs(rungs, losses, factor, rule))
        return 1 + schedule(durations(configs, nodes, seed), policy, seed, disturbances=survivors).gap

    def barrier(seed: int, rung: tuple[int, int, tuple[int, ...], int]) -> float:
        configs, nodes, rungs, factor = rung
        best = np.argsort(np.random.default_rng(seed + 1000).random(configs))
        times, epochs, makespan = durations(configs, nodes, seed), np.zeros(configs, int), 0.0
        for low, high in pairwise((0, *rungs)):
            makespan += schedule(instance(times[best], epochs=high - low), seed=seed).makespan
            epochs[best] = high
            best = best[: len(best) // factor]
        return makespan / lower_bound(instance(times, epochs=epochs))

    for rung in RUNGS:
        name = f"{rung[0]} x {rung[1]}, {'-'.join(map(str, rung[2]))}"
        yield measured(f"{name} with a barrier", "", seeds, lambda seed, r=rung: barrier(seed, r))
        for policy, rule in (
            ("random", "each"),
            ("auto", "each"),
            ("auto", "asynchronous"),
            ("auto", "synchronous"),
        ):
            yield measured(
                f"{name} {policy}, {rule}",
                "1.10" if (policy, rule) == ("auto", "each") else "",
                seeds,
                lambda seed, a=rung, p=policy, k=rule: ratio(seed, a, p, k),
            )


FIGURES = (("4.1", 6, [2] * 8), ("4.2", 6, [4, 2, 2]), ("4.3", 10, [4, 2, 2]))
"""Configs, and the nodes' GPUs."""


def sped_up(seed: int, configs: int, gpus: list[int], exponent: float) -> NDArray[np.float64]:
    """Data sharded by the nodes' GPUs, and a unit may take any number of its node's."""
    work = np.random.default_rng(seed).uniform(200, 4000, configs)
    return work[:, None, None] * np.array(gpus)[None, :, None] / np.arange(1, max(gpus) + 1) ** exponent


def thesis(seeds: int, seconds: float) -> Iterator[Row]:
    """Figs 4.1 to 4.3."""

    def ratio(seed: int, configs: int, gpus: list[int], exponent: float) -> float:
        times = sped_up(seed, configs, gpus, exponent)
        found = joint(times, gpus, seed, 0.1 if exponent == 1 else seconds)
        return found.makespan / found.bound

    for name, configs, gpus in FIGURES:
        for exponent, target in ((1.0, "1"), (0.9, ""), (0.7, "")):
            yield measured(
                f"Fig {name} speed-up g^{exponent}",
                target,
                seeds,
                lambda seed, c=configs, g=gpus, e=exponent: ratio(seed, c, g, e),
            )


def exact(seeds: int, seconds: float) -> Iterator[Row]:
    """Figs 4.1 to 4.3 where speed-up is not linear, against what CP-SAT finds in 60 s."""

    def ratio(seed: int, configs: int, gpus: list[int], exponent: float) -> float:
        times = sped_up(seed, configs, gpus, exponent)
        best = joint(times, gpus, seed, 60.0, policy="exact")
        return joint(times, gpus, seed, seconds).makespan / best.makespan

    for name, configs, gpus in FIGURES:
        for exponent in (0.9, 0.7):
            yield measured(
                f"Fig {name} speed-up g^{exponent}",
                "1.03",
                seeds,
                lambda seed, c=configs, g=gpus, e=exponent: ratio(seed, c, g, e),
            )


def scale(_seeds: int, _seconds: float) -> Iterator[Row]:
    """10,000 configs on 1,000 nodes: the CPU seconds are 50 at most (200,000 decisions a second)."""
    for mixed in (True, False):
        times = durations(10_000, 1_000, 0, mixed)
        yield measured(
            f"10^7 units, {'mixed' if mixed else 'equal'} nodes",
            "1.002 in 50 s",
            1,
            lambda _, d=times: 1 + schedule(d).gap,
        )


PARTS = {
    part.__name__: part for part in (fig5, fig6, hard, noise, replicas, deaths, halving, thesis, exact, scale)
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", default=[name for name in PARTS if name not in ("exact", "scale")]
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    asked = parser.parse_args()
    for part in asked.parts:
        print(f"\n{part}: {PARTS[part].__doc__}")
        for name, ratios, target, cpu in PARTS[part](asked.seeds, asked.seconds):
            print(
                f"  {name:38} mean {np.mean(ratios):.4f}  max {max(ratios):.4f}  {target:22} {cpu:6.2f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
