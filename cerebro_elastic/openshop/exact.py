"""The exact tool: CP-SAT of ortools, started from the best schedule that the dry runs found.

The model is the paper's problem (section 5.1) with replicas (5.5): an interval for each unit on each node
that holds its partition, one of them present; a node's intervals do not overlap, nor do a config's; the last
end is minimised. It is good for up to about 1000 units.

ortools runs in a process of its own: it brings its own HiGHS, which must not meet scipy's in one process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from cerebro_elastic.errors import MissingExtra, ScheduleError
from cerebro_elastic.openshop.dispatch import ScheduledUnit
from cerebro_elastic.openshop.instances import Instance

if TYPE_CHECKING:
    from cerebro_elastic.openshop.planner import ScheduledUnits

TICKS = 1_000_000
"""CP-SAT counts in integers: the makespan of the start is so many of them. Durations are rounded up."""
UNITS = 2000
"""More are refused: the model would not get anywhere."""


def exact(
    problem: Instance, start: Callable[[], ScheduledUnits], seed: int, seconds: float
) -> list[ScheduledUnit]:
    """The best schedule found in ``seconds``, at least as good as ``start``."""
    if problem.units > UNITS or (problem.epochs > 1).any():
        raise ScheduleError(
            f"the policy exact is for one epoch of up to {UNITS} units; these are {problem.units}, in up to "
            f"{problem.epochs.max()} epochs: take auto"
        )
    if problem.hop.any() or np.isfinite(problem.fetch).any():
        raise ScheduleError("the policy exact knows no costs of hops and fetches: take auto")
    hint = start()
    known = [ScheduledUnit(*values) for values in zip(*(_column(c) for c in _columns(hint)), strict=True)]
    length = max((v.end for v in known), default=0.0)
    if not length:
        return known
    tick = length / TICKS
    question = {
        "problem": "open shop",
        "seconds": seconds,
        "seed": seed,
        "length": TICKS,
        "units": [(v.config, 0, _takers(problem, v, tick)) for v in known],
        "node_ready": np.ceil(problem.node_ready / tick).astype(int).tolist(),
        "config_ready": np.ceil(problem.config_ready / tick).astype(int).tolist(),
        "node_tail": [0] * problem.nodes,
        "config_tail": [0] * problem.configs,
        "hint": [v.node for v in known],
    }
    answer = ask(question)
    if answer is None:
        return known
    found = _left_shifted(problem, [(known[at], n) for at, n in by_start(question, answer)])
    return min(known, found, key=lambda visits: max(v.end for v in visits))


def _columns(visits: ScheduledUnits) -> tuple[Any, ...]:
    return visits.config, visits.epoch, visits.partition, visits.node, visits.start, visits.end


def _column(values: Any) -> list[Any]:
    listed: list[Any] = values.tolist()
    return listed


def _takers(problem: Instance, visit: ScheduledUnit, tick: float) -> dict[int, int]:
    """Who may do the unit, and in how many ticks."""
    ticks = np.ceil(problem.seconds()[visit.config, visit.partition] / tick).astype(int).tolist()
    return {n: ticks[n] for n in np.flatnonzero(problem.availability[:, visit.partition]).tolist()}


def by_start(question: Mapping[str, Any], answer: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The answer to ``question`` as the numbers of its units and their nodes, by planned start."""
    starts = sorted((start, question["units"][at][2][n], at, n) for at, (n, start) in enumerate(answer))
    return [(at, n) for _, _, at, n in starts]


def _left_shifted(problem: Instance, units: list[tuple[ScheduledUnit, int]]) -> list[ScheduledUnit]:
    """The units in their order, each as early as its config and its node allow: without the rounding."""
    nodes, configs = problem.node_ready.tolist(), problem.config_ready.tolist()
    seconds, visits = problem.seconds(), []
    for unit, n in units:
        i, j = unit.config, unit.partition
        begin = max(nodes[n], configs[i])
        nodes[n] = configs[i] = begin + float(seconds[i, j, n])
        visits.append(ScheduledUnit(i, 0, j, n, begin, nodes[n]))
    return visits


def ask(question: dict[str, Any]) -> Any:
    """What CP-SAT, in a process of its own, answers (see ``cp_sat``)."""
    done = subprocess.run(
        [sys.executable, "-m", "cerebro_elastic.openshop.cp_sat"],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == MISSING:
        raise MissingExtra(
            "the policy exact needs ortools: pip install 'cerebro-elastic[exact]', or take auto"
        )
    if done.returncode:
        raise ScheduleError(f"CP-SAT ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


MISSING = 3
"""The exit code that says that ortools is not installed."""
