"""An independent judge of schedules, which does not know how they were made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from cerebro_elastic.scheduling.openshop.checks import Array
from cerebro_elastic.scheduling.openshop.instances import Instance
from cerebro_planner.joint_problem import JointSchedule
from cerebro_planner.planner import Schedule


def judge(problem: Instance, schedule: Schedule, actual: Array | None = None) -> None:
    """Fails unless each unit is done once, on an allowed node, for its full duration, no config or node does
    two at a time, and epochs follow one another."""
    durations = problem.durations if actual is None else actual
    visits = schedule.visits
    # Seconds of great problems are no more exact than this.
    slack = 1e-6 * max(1.0, schedule.makespan)
    done = sorted(zip(visits.config.tolist(), visits.epoch.tolist(), visits.partition.tolist(), strict=True))
    assert done == [
        (i, e, j)
        for i in range(problem.configs)
        for e in range(problem.epochs[i])
        for j in range(problem.partitions)
    ], "completeness"
    by_config, by_node = defaultdict(list), defaultdict(list)
    epochs: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for place in range(len(visits)):
        i, e, j, n = (int(a[place]) for a in (visits.config, visits.epoch, visits.partition, visits.node))
        start, end = float(visits.start[place]), float(visits.end[place])
        seconds = durations[i, n] * problem.sizes[j] if durations.ndim == 2 else durations[i, j, n]
        extra = problem.hop[i] + (0 if problem.availability[n, j] else problem.fetch[j])
        assert problem.availability[n, j] or np.isfinite(problem.fetch[j]), "a node that has the partition"
        assert seconds - slack <= end - start <= seconds + extra + slack, "as long as it takes"
        assert start >= max(problem.node_ready[n], problem.config_ready[i]) - slack, "not before it is there"
        by_config[i].append((start, end))
        by_node[n].append((start, end))
        epochs[i, e].append((start, end))
    for spans in (*by_config.values(), *by_node.values()):
        assert_apart(spans, slack)
    for (i, e), spans in epochs.items():
        if e:
            assert min(spans)[0] >= max(end for _, end in epochs[i, e - 1]) - slack, "epoch after epoch"
    assert schedule.makespan == (visits.end.max() if len(visits) else 0.0)
    assert schedule.makespan >= schedule.bound * (1 - 1e-9), "a lower bound"


def judge_joint(seconds: Array, devices: Sequence[int], schedule: JointSchedule) -> None:
    """Fails unless equations 4.1 to 4.14 of the thesis hold."""
    configs, nodes, _ = seconds.shape
    for i in range(configs):
        for n in range(nodes):
            assert 1 <= schedule.width[i, n] <= devices[n], "4.2 to 4.4"
            took = seconds[i, n, schedule.width[i, n] - 1]
            assert schedule.start[i, n] >= 0, "4.13"
            assert abs(schedule.end[i, n] - schedule.start[i, n] - took) <= 1e-6, "4.1"
        spans = [(schedule.start[i, n], schedule.end[i, n]) for n in range(nodes)]
        assert_apart(span for span in spans if span[1] > span[0])
    for n in range(nodes):
        for now in schedule.start[:, n]:
            on = (schedule.start[:, n] <= now + 1e-9) & (now < schedule.end[:, n] - 1e-9)
            assert schedule.width[on, n].sum() <= devices[n], "4.5 to 4.9: no device has two units"
    assert schedule.makespan == schedule.end.max()
    assert schedule.makespan >= schedule.bound * (1 - 1e-9), "a lower bound"


def assert_apart(spans: Iterable[tuple[float, float]], slack: float = 1e-6) -> None:
    """No two of the spans overlap."""
    ordered = sorted(spans)
    for (_, end), (start, _) in pairwise(ordered):
        assert start >= end - slack, "isolation and exclusive access"
