"""What the core asks of others: a policy that orders units, a search that proposes configs.

Both are pure: what they answer depends on what they are shown alone, so that a controller that
takes over, the simulator and a replay get the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cerebro_elastic.core.values import HParams, Status, Unit


@dataclass(frozen=True, slots=True)
class Instance:
    """A moment at which nodes are idle.

    ``eligible`` has for each idle node the units that it may take now; ``remaining`` each live
    config's expected seconds over all its epochs; ``load`` each node's expected seconds over the
    partitions at home on it; ``seconds`` the expected seconds of a unit on a node; ``seed`` is the
    run's seed, then what differs from moment to moment: the same for whoever decides at it.
    """

    eligible: Mapping[str, Sequence[Unit]]
    remaining: Mapping[str, float]
    load: Mapping[str, float]
    seconds: Callable[[Unit, str], float]
    seed: tuple[int, ...] = (0,)


class Policy(Protocol):
    """Which idle node takes which unit."""

    def choose(self, instance: Instance) -> Sequence[tuple[str, Unit]]:
        """At most one unit for each idle node, no config twice."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A config as a search sees it. ``metrics`` are those of its last full epoch."""

    config: str
    hparams: HParams
    status: Status
    epoch: int
    metrics: Mapping[str, float]


class Search(Protocol):
    """Which configs there shall be."""

    def propose(self, trials: Sequence[Trial]) -> Sequence[HParams]:
        """The hyper-parameters of configs to create now, given those created so far, in order."""
