"""The joint problem as CP-SAT solves it: the thesis' model (section 4.3), equation by equation.

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
                      are never more than there are, each start finds as many that are free
``O_tns``             always 1: every config visits every node
``I_tng`` (4.5, 4.6)  one start for a config on a node, whichever devices it takes
``A_nttg``            intervals on a node demand their widths, and are cumulative within its devices
                      (4.7, 4.8, and 4.9, which is both in one)
``X_tnn``             intervals of a config do not overlap (4.10, 4.11, and 4.12, which is both in one);
                      so any two of its nodes have one order (4.14)
``I_tng >= 0`` (4.13) the starts' domain
``U``                 not needed: an absent interval demands nothing
====================  ==================================================================================

It starts from the heuristic's schedule. What it proves raises the bound.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.scheduling.openshop.checks import Array
from cerebro_elastic.scheduling.openshop.exact import TICKS, ask

Unit = tuple[int, int, int, float]
"""Config, node, width, start."""


def exact_joint(
    seconds: Array, devices: NDArray[np.int64], known: list[Unit], makespan: float, seed: int, budget: float
) -> tuple[list[Unit], float]:
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
