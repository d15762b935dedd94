"""The interfaces of a policy and a search: their methods, and the views that they get.

A policy picks units for idle nodes, a search proposes, stops and resumes configs. Both are pure: the answer
depends only on these views, so that a controller that takes over, the simulator and a replay get the same
answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from operator import attrgetter
from typing import Any, Protocol, runtime_checkable

from cerebro_elastic.core.model.configs import HParams, Status, created_by_hand
from cerebro_elastic.core.model.nodes import Stay
from cerebro_elastic.core.model.run import Progress
from cerebro_elastic.core.model.state import Point, Usage
from cerebro_elastic.core.model.units import Order, Unit


@dataclass(frozen=True, slots=True)
class RemainingWork:
    """The remaining work of a run, for a policy that plays it forward. All times are expected seconds from
    now."""

    nodes: Mapping[str, float]
    """The nodes in use, and when each is free; 0 for an idle one."""
    configs: Mapping[str, float]
    """The live configs in the order of creation, and when each is free."""
    seconds: Mapping[str, Sequence[float]]
    """By config: the seconds of one unit, hops included, on each of ``nodes`` in their order."""
    undone: Mapping[str, Collection[int]]
    """By config: the remaining partitions of its present epoch, without the one in training."""
    later: Mapping[str, int]
    """By config: the whole epochs after the present one."""
    holders: Sequence[Collection[str]]
    """By partition: the nodes that may train on it without a fetch."""
    fetch: float = inf
    """The seconds for another node to fetch a partition; infinite: it may not."""
    cached: Mapping[str, Collection[int]] = field(default_factory=dict)
    """By node: the partitions in its cache, which need no fetch."""
    epochs: Mapping[str, int] = field(default_factory=dict)
    """By config: its full epochs so far."""
    order: Order = ()
    """The last order proposed by a planner. Some of it is done, and some of its nodes and configs may be
    gone."""
    guessed: Collection[str] = ()
    """The configs not measured yet: their ``seconds`` are those of the longest measured one."""
    progress: Progress = Progress.FREE
    """The plan's."""


def _unknown() -> RemainingWork | None:
    return None


@dataclass(frozen=True, slots=True)
class SchedulingContext:
    """A moment at which nodes are idle."""

    eligible: Mapping[str, Sequence[Unit]]
    """By idle node: the units that it may take now."""
    remaining: Mapping[str, float]
    """By live config: the expected seconds of all its units to come, on a node of factor 1."""
    load: Callable[[str], float]
    """The expected seconds of all units to come on the partitions at home on a node."""
    seconds: Callable[[Unit, str], float]
    """The expected seconds of a unit on a node."""
    seed: tuple[int, ...] = (0,)
    """The run's seed, then a number that differs from moment to moment. Every controller that decides at this
    moment sees the same seed."""
    remaining_work: Callable[[], RemainingWork | None] = _unknown
    """The remaining work of the run, to look ahead; costly, so only policies that need it call it. ``None``
    where it includes units other than training on one node (profiles, gangs, evaluations), and for a hint."""
    size: int = 0
    """The size of the remaining work: live configs times partitions times nodes."""
    elsewhere: Callable[[str, str, int], Unit | None] | None = None
    """Set where nodes fetch on demand. For an idle node, a config and a partition that is not at home on the
    node: the unit, if the policy may choose it, else ``None``."""
    even: bool = False
    """A config with fewer full epochs comes first."""
    batches: Mapping[str, Collection[tuple[int, int]]] = field(default_factory=dict)
    """By node: the epochs and partitions whose batches its host has made. Among a config's equally good
    units, a node prefers these. Empty if the run shares no batches."""


class Policy(Protocol):
    """Which idle node takes which unit."""

    def choose(self, context: SchedulingContext) -> Sequence[tuple[str, Unit]]:
        """Pick units for idle nodes.

        Returns:
            (node, unit) pairs: at most one for each idle node, eligible there or found ``elsewhere``, and at
            most one for each config.
        """


@runtime_checkable
class Planner(Protocol):
    """A policy with a solver: a process that looks for an ``Order`` while units run.

    ``solver`` is a Python module. It reads a question as JSON from its standard input, and writes
    ``{"answer": ...}`` as JSON, on one line, to its standard output. The order in the answer becomes an event
    (``Ordered``), so that decisions still depend on the state alone.
    """

    solver: str

    def due(self, before: RemainingWork | None, left: RemainingWork) -> bool:
        """Whether to ask at the moment ``left``, if the solver was last asked at ``before``."""

    def question(self, left: RemainingWork, seed: int) -> Mapping[str, Any] | None:
        """The question at the moment ``left``; ``None`` if no answer could be of use."""

    def order(self, left: RemainingWork, question: Mapping[str, Any], answer: Any) -> Order:
        """The order in the answer to ``question``, which was asked at ``left``; empty if it has none."""


@dataclass(frozen=True, slots=True)
class ConfigView:
    """A config as a search sees it."""

    config: str
    hparams: HParams
    status: Status = Status.LIVE
    epochs: int = 0
    """Its full epochs, its parent's included."""
    units: int = 0
    """Its whole training units, its parent's included."""
    curve: Sequence[Point] = ()
    """Its logged metrics since its creation."""
    idle: bool = True
    """It is in no unit now."""
    parent: str | None = None
    """The config of this run from which it continues; without members."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """The search's notes from its proposal."""
    by_hand: bool = False
    """A person created, stopped or resumed it."""
    fold: int | None = None
    """Of a member: the fold that it leaves out."""
    repeat: int = 0
    """Of a member: the number of its seed."""
    members: Sequence[ConfigView] = ()
    """Its trainings, if it has several: on folds, or with several seeds. All else in this view summarises
    them: the curve is the mean of the results so far, epochs and units are those of the member that is least
    far, and it is idle if a live member is."""


@dataclass(frozen=True)
class SearchContext:
    """The run as a search sees it."""

    configs: Sequence[ConfigView] = ()
    """All configs in the order of creation."""
    partitions: int = 1
    """The training partitions of each config."""
    epochs: int = 1
    nodes: int = 1
    usage: Usage = field(default_factory=Usage)
    save_seconds: float = 0.0
    """The expected seconds of a save, which may outlast the last unit."""
    now: float = 0.0
    """The latest moment in the record: wall-clock seconds."""
    rest_seconds: Callable[[str], float] = lambda _config: 0.0
    """The expected seconds of all remaining units of a config's epoch, one after the other; for a config that
    does not exist yet, those of a usual config's epoch."""
    wait_seconds: float = 0.0
    """The expected seconds until a node is free."""
    stays: Sequence[Stay] = ()
    """The times for which nodes are paid; those of present nodes have no end."""

    @cached_property
    def live(self) -> Sequence[ConfigView]:
        """The configs that are live."""
        live = Status.LIVE  # looked up once: an enum's member takes as long as the rest
        return [view for view in self.configs if view.status is live]

    @cached_property
    def proposed(self) -> Sequence[ConfigView]:
        """The configs proposed by the search, without those created by people."""
        if not any(map(attrgetter("origin"), self.configs)):  # mostly so, even with thousands
            return self.configs
        return [view for view in self.configs if not (view.origin and created_by_hand(view.origin))]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A config to create."""

    hparams: HParams
    parent: str | None = None
    """The config from whose head it continues; ``None``: from scratch, or from ``Plan.start``."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """JSON values that the search gets back in ``ConfigView.origin``."""
    repeats: int = 0
    """For a config that exists: train it with this many seeds in all. ``parent`` is that config."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision on a config: ``Stop`` or ``Resume``."""

    config: str
    reason: str
    """Why, for people."""


class Stop(Decision):
    """Give a live config no more units. Its results stay."""

    __slots__ = ()


class Resume(Decision):
    """Continue a stopped config."""

    __slots__ = ()


class Search(Protocol):
    """Creates configs, and decides how far each is trained.

    A search keeps no memory: everything it needs is in the context, so that a controller that takes over
    continues as its predecessor would have. The controller calls ``decide`` until it returns nothing, then
    ``propose``. Each call sees the effects of the answers before. A run ends when no config is live and the
    search proposes and resumes nothing.
    """

    def held(self, context: SearchContext) -> Sequence[str]:
        """Live configs, or members of configs, that come after all others: a node takes a unit of the first
        possible one, and only if it would be idle otherwise."""
        del context
        return ()

    def decide(self, context: SearchContext) -> Sequence[Decision]:
        """The configs to stop or resume: none that is in a unit, and none on which a person has decided
        (``by_hand``)."""
        del context
        return ()

    def propose(self, context: SearchContext) -> Sequence[Proposal]:
        """The configs to create now."""
