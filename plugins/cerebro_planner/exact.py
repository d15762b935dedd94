"""The exact tool: CP-SAT of ortools, started from the best schedule that the rollouts found.

The model is the paper's problem (section 5.1) with replicas (5.5): an interval for each unit on each node
that holds its partition, one of them present. A node's intervals do not overlap, nor do a config's; the
last end is minimised. It is good for up to about 1000 units.

The joint problem (``joint``) is the thesis' model (section 4.3), equation by equation:

====================  ==================================================================================
thesis                here
====================  ==================================================================================
``T``, ``N``          configs and nodes
``GPU_n``             ``devices[n]``; they are alike
``S_tn``, ``G_tns``   the widths ``g`` for which ``seconds[i, n, g - 1]`` is finite
``R_tns``             ``seconds[i, n, g - 1]``, in ticks, rounded up
``C`` (4.1)           the makespan: not before any start + seconds, by the width that is taken
``B_tns`` (4.2)       one optional interval for each width, of which exactly one is present
``P_tng`` (4.3, 4.4)  no variable: devices are alike, so those taken need only be counted. As long as they
                      never exceed their number, each start finds as many that are free
``O_tns``             always 1: every config visits every node
``I_tng`` (4.5, 4.6)  one start for a config on a node, whichever devices it takes
``A_nttg``            intervals on a node demand their widths, and are cumulative within its devices
                      (4.7, 4.8, and 4.9, which is both in one)
``X_tnn``             intervals of a config do not overlap (4.10, 4.11, and 4.12, which is both in one);
                      so any two of its nodes have one order (4.14)
``I_tng >= 0`` (4.13) the starts' domain
``U``                 not needed: an absent interval demands nothing
====================  ==================================================================================

CP-SAT's proofs raise the bound.

ortools runs in a separate process (``cp_sat``): it brings its own HiGHS, which must not meet scipy's in one
process."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.extending.errors import RunError, ScheduleError
from cerebro_elastic.extending.planning import NO_FORK, Array, Instance, ScheduledUnit, call, left_shifted

TICKS = 1_000_000
"""CP-SAT counts in integers: the makespan of the start is this many of them. Durations are rounded up."""
UNITS = 2000
"""More are refused: the model would not get anywhere."""
SOLVER = "cerebro_planner.cp_sat"
"""The module that solves."""

JointUnit = tuple[int, int, int, float]
"""Config, node, width, start."""


def exact(
    problem: Instance, known: Sequence[ScheduledUnit], seed: int, seconds: float
) -> Sequence[ScheduledUnit]:
    """The best schedule found in ``seconds``, at least as good as ``known``, whose units are in the order of
    their starts. Raises ``ScheduleError`` for a problem that CP-SAT cannot solve."""
    if problem.units > UNITS or (problem.epochs > 1).any():
        raise ScheduleError(
            f"the policy exact is for one epoch of up to {UNITS} units; these are {problem.units}, in up to "
            f"{problem.epochs.max()} epochs: take auto"
        )
    if problem.hop.any() or np.isfinite(problem.fetch).any():
        raise ScheduleError("the policy exact ignores costs of hops and fetches: take auto")
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
    improved = _in_seconds(problem, [(known[at], n) for at, n in by_start(question, answer)])
    return min(known, improved, key=lambda visits: max(v.end for v in visits))


def _takers(problem: Instance, visit: ScheduledUnit, tick: float) -> dict[int, int]:
    """The nodes that may do the unit, and in how many ticks."""
    ticks = np.ceil(problem.seconds()[visit.config, visit.partition] / tick).astype(int).tolist()
    return {n: ticks[n] for n in np.flatnonzero(problem.availability[:, visit.partition]).tolist()}


def by_start(question: Mapping[str, Any], answer: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The answer to ``question`` as the numbers of its units and their nodes, by planned start."""
    starts = sorted((start, question["units"][at][2][n], at, n) for at, (n, start) in enumerate(answer))
    return [(at, n) for _, _, at, n in starts]


def _in_seconds(problem: Instance, order: Sequence[tuple[ScheduledUnit, int]]) -> list[ScheduledUnit]:
    """The units in this order on their nodes, without the rounding to ticks."""
    seconds = problem.seconds()
    units = [(v.config, n, 1, float(seconds[v.config, v.partition, n])) for v, n in order]
    nodes = [[ready] for ready in problem.node_ready.tolist()]
    starts = left_shifted(units, problem.config_ready.tolist(), nodes)
    return [
        ScheduledUnit(v.config, 0, v.partition, n, start, start + length)
        for (v, n), (_, _, _, length), start in zip(order, units, starts, strict=True)
    ]


def exact_joint(
    seconds: Array,
    devices: NDArray[np.int64],
    known: list[JointUnit],
    makespan: float,
    seed: int,
    budget: float,
) -> tuple[list[JointUnit], float]:
    """The units of the best schedule that CP-SAT found in ``budget`` seconds, by start, and a lower bound
    (seconds). ``known`` is a schedule that takes ``makespan``, with its starts in seconds."""
    units = seconds.shape[0] * seconds.shape[1]
    if not makespan:
        return known, 0.0
    tick = makespan / TICKS
    answer = ask(
        {
            "problem": "joint",
            "seconds": budget,
            "seed": seed,
            # Rounding up may lengthen it by a tick for each unit.
            "length": TICKS + units,
            "devices": devices.tolist(),
            "durations": [
                [[None if math.isinf(s) else math.ceil(s / tick) for s in node] for node in config]
                for config in seconds.tolist()
            ],
            "hint": [(i, n, g, start / tick) for i, n, g, start in known],
        }
    )
    if answer is None:
        return sorted(known, key=lambda unit: unit[3]), 0.0
    return answer["units"], (answer["bound"] - units) * tick


def ask(question: Mapping[str, Any]) -> Any:
    """What CP-SAT answers (see ``cp_sat``)."""
    try:
        return call(SOLVER, f"the solver {SOLVER}", question, NO_FORK)["answer"]
    except RunError as error:
        raise ScheduleError(str(error)) from error
