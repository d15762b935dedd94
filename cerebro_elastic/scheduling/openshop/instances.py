"""A checked scheduling problem: how long each unit takes on each node, and where the data are.

All times are seconds. ``C`` configs visit each of ``P`` partitions once in each epoch, on one of ``N`` nodes
that hold the partition. Without replicas, and with partition ``j`` on node ``j``, this is the open shop of
the paper (section 5.1); with an availability map it is the replica-aware problem of section 5.5."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cerebro_elastic.errors import ScheduleError
from cerebro_elastic.scheduling.openshop.checks import LARGEST, MOST_UNITS, Array, numbers


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """A scheduling problem, made and checked by ``instance``."""

    durations: Array
    """``[C, N]``: a unit's seconds by config and node, for a partition of size 1; or ``[C, P, N]``."""
    availability: NDArray[np.bool_]
    """``[N, P]``: whether the node holds the partition."""
    sizes: Array
    """``[P]``: the partitions' sizes, factors on ``durations`` if those are ``[C, N]``."""
    epochs: NDArray[np.int64]
    """``[C]``: how often the config visits every partition."""
    hop: Array
    """``[C]``: the seconds that the config needs to go from one node to another."""
    fetch: Array
    """``[P]``: seconds to fetch the partition to a node that does not hold it; infinite: it cannot be
    fetched."""
    node_ready: Array
    """``[N]``: when the node is free first, in seconds."""
    config_ready: Array
    """``[C]``: when the config is free first, in seconds."""

    @property
    def configs(self) -> int:
        """``C``: the number of configs."""
        return int(self.durations.shape[0])

    @property
    def nodes(self) -> int:
        """``N``: the number of nodes."""
        return int(self.availability.shape[0])

    @property
    def partitions(self) -> int:
        """``P``: the number of partitions."""
        return int(self.availability.shape[1])

    @property
    def units(self) -> int:
        """The number of units over all epochs."""
        return int(self.epochs.sum()) * self.partitions

    @property
    def replicated(self) -> bool:
        """Whether some unit has more than one node that could do it."""
        return bool((self.availability.sum(axis=0) > 1).any() or np.isfinite(self.fetch).any())

    @property
    def takers(self) -> NDArray[np.bool_]:
        """``[P, N]``: whether the node can do units on the partition."""
        takers: NDArray[np.bool_] = self.availability.T | np.isfinite(self.fetch)[:, None]
        return takers

    def seconds(self) -> Array:
        """``[C, P, N]``: each unit's seconds on each node, holder or not (a view where that will do)."""
        if self.durations.ndim == 3:
            return self.durations
        if (self.sizes == 1.0).all():
            shape = (self.configs, self.partitions, self.nodes)
            return np.broadcast_to(self.durations[:, None, :], shape)
        return self.durations[:, None, :] * self.sizes[None, :, None]


def instance(
    durations: ArrayLike,
    availability: ArrayLike | None = None,
    *,
    sizes: ArrayLike | None = None,
    epochs: ArrayLike = 1,
    hop: ArrayLike = 0.0,
    fetch: ArrayLike = np.inf,
    node_ready: ArrayLike = 0.0,
    config_ready: ArrayLike = 0.0,
) -> Instance:
    """Make an ``Instance`` of lists or arrays.

    Args:
        durations: See ``Instance``, as all other arguments. One number stands for all of a list.
        availability: Without it, node ``j`` alone holds partition ``j``.
        sizes: Without them, all partitions have size 1.
        epochs: Whole numbers.
        hop: Not negative, as all seconds.
        fetch: Infinite where nodes cannot fetch.
        node_ready: 0 for nodes that are free from the beginning.
        config_ready: 0 for configs that are free from the beginning.

    Raises:
        ScheduleError: An argument is wrong; the message names it and the rule.
    """
    times = numbers(durations, "durations")
    if times.ndim not in (2, 3) or 0 in times.shape:
        raise ScheduleError(
            f"durations has the shape {times.shape}; it must be [configs, nodes] or "
            "[configs, partitions, nodes], none of them 0"
        )
    nodes = times.shape[-1]
    holds = _holds(availability, nodes)
    partitions = holds.shape[1]
    if times.ndim == 3 and times.shape[1] != partitions:
        raise ScheduleError(
            f"durations is for {times.shape[1]} partitions, availability for {partitions}; make them equal"
        )
    fetches = _each(fetch, partitions, "fetch", infinite=True)
    for j in np.flatnonzero(~holds.any(axis=0) & ~np.isfinite(fetches)):
        raise ScheduleError(
            f"no node holds partition {j}, and it cannot be fetched: give a node a replica, or fetch"
        )
    problem = Instance(
        durations=times,
        availability=holds,
        sizes=_each(1.0 if sizes is None else sizes, partitions, "sizes"),
        epochs=_counts(epochs, times.shape[0]),
        hop=_each(hop, times.shape[0], "hop"),
        fetch=fetches,
        node_ready=_each(node_ready, nodes, "node_ready"),
        config_ready=_each(config_ready, times.shape[0], "config_ready"),
    )
    passes = float(problem.epochs.sum(dtype=np.float64))
    if passes * partitions > MOST_UNITS:
        raise ScheduleError(
            f"epochs come to {passes:g} of all configs, over {partitions} partitions more than {MOST_UNITS} "
            "units; give fewer"
        )
    longest = times.max() * problem.sizes.max() if times.ndim == 2 else times.max()
    if longest > LARGEST:
        raise ScheduleError(f"durations times sizes come to {longest:g} s; give at most {LARGEST:g}")
    return problem


def _holds(availability: ArrayLike | None, nodes: int) -> NDArray[np.bool_]:
    if availability is None:
        return np.eye(nodes, dtype=bool)
    holds = numbers(availability, "availability", truths=True)
    if holds.ndim != 2 or holds.shape[0] != nodes or holds.shape[1] == 0:
        raise ScheduleError(
            f"availability has the shape {holds.shape}; it must be [nodes, partitions], with "
            f"the {nodes} nodes of durations"
        )
    if not np.isin(holds, (0.0, 1.0)).all():
        raise ScheduleError("availability must be true or false (1 or 0) everywhere")
    return holds.astype(bool)


def _each(values: ArrayLike, count: int, name: str, infinite: bool = False) -> Array:
    given = numbers(values, name, infinite)
    if given.shape not in ((), (count,)):
        raise ScheduleError(f"{name} has the shape {given.shape}; it must be one number or {count} of them")
    return np.broadcast_to(given, (count,))


def _counts(values: ArrayLike, count: int) -> NDArray[np.int64]:
    given = _each(values, count, "epochs")
    if (given != np.round(given)).any():
        raise ScheduleError("epochs must be whole numbers")
    return given.astype(np.int64)
