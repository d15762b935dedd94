"""Lower bounds on the makespan.

Open shop (Gonzalez and Sahni 1976): no schedule is shorter than the load of a node, or than the length of a
config. With replicas a unit may be on several nodes: the bound is then the optimum of the linear program that
may split units between nodes,

    minimise C  subject to  sum_n x[i,j,n] = e[i],
                            node_ready[n] + sum_ij t[i,j,n] x[i,j,n] <= C,
                            config_ready[i] + sum_jn t[i,j,n] x[i,j,n] <= C,  x >= 0,

whose solution also suggests a node for each unit (see ``owners``). HiGHS (in scipy) solves it: 0.5 s for 256
configs x 16 partitions x 3 replicas. Hops and fetches only lengthen schedules; the bounds leave them out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.errors import ScheduleError
from cerebro_elastic.scheduling.openshop.checks import Array
from cerebro_elastic.scheduling.openshop.instances import Instance

LARGEST = 100_000
"""With more variables the linear program is not solved: it would take more than half a minute."""

TOLERANCE = 1e-6
"""The share by which the second program's solution may exceed the bound."""
ROOM = (0.9, 0.98)
"""Shares of the bound that a config's length and a node's load should rather not exceed."""
PRICE = (5.0, 1.0)
"""The weight of a second beyond that, in seconds of work."""


@dataclass(frozen=True, slots=True, eq=False)
class Fractions:
    """The linear program's answer."""

    bound: float
    """Its optimum: a lower bound on the makespan, in seconds."""
    share: Array
    """``[C, K]``: how many passes of config ``i`` over partition ``partition[k]`` go to node ``node[k]``."""
    partition: NDArray[np.int64]
    """``[K]``: the partition of each pair of a partition and a node that can do its units."""
    node: NDArray[np.int64]
    """``[K]``: the node of each pair."""


def lower_bound(instance: Instance) -> float:
    """A lower bound, in seconds, on the makespan of any schedule of ``instance``."""
    if not isinstance(instance, Instance):
        raise ScheduleError(
            f"a lower bound is that of an instance, and not of {type(instance).__name__}: make one by "
            "`instance`"
        )
    if not instance.units:
        return 0.0
    if instance.replicated:
        fractions = relaxed(instance)
        return fractions.bound if fractions is not None else _with_replicas(instance)
    return _open_shop(instance)


def relaxed(instance: Instance, passes: NDArray[np.int64] | None = None) -> Fractions | None:
    """The linear program's solution; ``None`` if the program is too large. ``passes`` are the remaining ones
    (``[C, P]``), by default all."""
    if passes is None:
        passes = np.repeat(instance.epochs[:, None], instance.partitions, axis=1)
    idle = replace(instance, config_ready=np.where(passes.any(axis=1), instance.config_ready, 0.0))
    solution = _solved(idle, passes)
    late = instance.node_ready.max()
    if solution is None or late == 0 or solution.bound > late * (1 + TOLERANCE):
        return solution
    # The bound is the time at which a node comes back: it may be better not to wait for that node.
    early = instance.node_ready < late
    if not idle.takers[:, early].any(axis=1).all():
        return solution
    fewer = replace(
        idle,
        durations=idle.durations[..., early],
        availability=idle.availability[early],
        node_ready=idle.node_ready[early],
    )
    without = relaxed(fewer, passes)
    if without is None or without.bound >= solution.bound:
        return solution
    return replace(without, node=np.flatnonzero(early)[without.node])


def _solved(instance: Instance, passes: NDArray[np.int64]) -> Fractions | None:
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix, hstack, identity, vstack

    partition, node = np.nonzero(instance.takers)
    configs, pairs, nodes = instance.configs, len(partition), instance.nodes
    if configs * pairs > LARGEST:
        return None
    seconds = instance.seconds()[:, partition, node]
    columns, rows = np.arange(configs * pairs), configs + nodes
    unit = (np.arange(configs)[:, None] * instance.partitions + partition[None]).ravel()
    once = csr_matrix((np.ones(len(columns)), (unit, columns)), (configs * instance.partitions, len(columns)))
    row = np.concatenate([np.repeat(np.arange(configs), pairs), configs + np.tile(node, configs)])
    times = csr_matrix((np.tile(seconds.ravel(), 2), (row, np.tile(columns, 2))), (rows, len(columns)))
    ready = np.concatenate([instance.config_ready, instance.node_ready])
    shortest = linprog(
        np.append(np.zeros(len(columns)), 1.0),
        A_ub=hstack([times, csr_matrix(np.full((rows, 1), -1.0))]),
        b_ub=-ready,
        A_eq=hstack([once, csr_matrix((once.shape[0], 1))]),
        b_eq=passes.ravel(),
        method="highs",
    )
    if shortest.x is None:
        raise ScheduleError(f"the bound's linear program has no solution: {shortest.message}")
    bound = float(shortest.fun)
    # Of all solutions that reach the bound, take one with little work, and with room where possible: a
    # schedule without any wait is easier to find where few nodes and configs are critical.
    room = np.repeat(ROOM, (configs, nodes)) * bound
    roomy = linprog(
        np.concatenate([seconds.ravel(), np.repeat(PRICE, (configs, nodes))]),
        A_ub=vstack([hstack([times, csr_matrix((rows, rows))]), hstack([times, -identity(rows)])]),
        b_ub=np.concatenate([bound * (1 + TOLERANCE) - ready, room - ready]),
        A_eq=hstack([once, csr_matrix((once.shape[0], rows))]),
        b_eq=passes.ravel(),
        method="highs",
    )
    x = (shortest if roomy.x is None else roomy).x[: len(columns)]
    return Fractions(bound, x.reshape(configs, pairs), partition, node)


def _open_shop(instance: Instance) -> float:
    """Every unit has one node: the largest of the nodes' loads and the configs' lengths."""
    holder = instance.availability.argmax(axis=0)
    if instance.durations.ndim == 2:
        share = np.zeros(instance.nodes)
        np.add.at(share, holder, instance.sizes)
        load = (instance.epochs @ instance.durations) * share
        length = (instance.durations @ share) * instance.epochs
    else:
        seconds = instance.durations[:, np.arange(instance.partitions), holder] * instance.epochs[:, None]
        load = np.zeros(instance.nodes)
        np.add.at(load, holder, seconds.sum(axis=0))
        length = seconds.sum(axis=1)
    return float(max(_latest(load, instance.node_ready), _latest(length, instance.config_ready)))


def _latest(seconds: Array, ready: Array) -> float:
    """When the last node or config that has anything to do is done."""
    return float(np.where(seconds > 0, seconds + ready, 0.0).max())


def _with_replicas(instance: Instance) -> float:
    """A weaker bound for problems that are too large for the program: each config always on its fastest
    nodes, and the units' least seconds spread over all nodes."""
    length = np.zeros(instance.configs)
    for j, nodes in enumerate(instance.takers):
        times = instance.durations[:, j, :] if instance.durations.ndim == 3 else instance.durations
        length += times[:, nodes].min(axis=1) * (1.0 if instance.durations.ndim == 3 else instance.sizes[j])
    length *= instance.epochs
    return float(max(_latest(length, instance.config_ready), length.sum() / instance.nodes))
