"""What the core asks of others: a policy that orders units, a search that proposes configs.

Both are pure: what they answer depends on what they are shown alone, so that a controller that
takes over, the simulator and a replay get the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol, TypeAlias, runtime_checkable

from cerebro_elastic.core.model.state import Point, Usage
from cerebro_elastic.core.model.values import BY_HAND, HParams, Order, Progress, Status, Unit


@dataclass(frozen=True, slots=True)
class RemainingWork:
    """What is left of a run from a moment on, to play it forward. All times are expected seconds.

    ``nodes`` are those in use, idle ones and busy ones, and when each is free, from now; ``configs`` likewise
    those that are live, in the order in which they were created. ``seconds`` are a config's of one unit, on
    each of the ``nodes`` in their order, hops included; where nobody has measured it (``guessed``), those of
    the longest that was. Of its present epoch (``epochs`` are behind it) it has ``undone`` partitions left,
    the one that it is in not among them, and after it ``later`` whole epochs. A partition may be trained on
    by its ``holders``; another node may ``fetch`` it in so many seconds (infinite: it may not), or at once,
    if that has it ``cached`` (by node). ``order`` is the last that was found for the run: some of it is done
    by now, and nodes and configs of it may be gone. ``progress`` is the plan's.
    """

    nodes: Mapping[str, float]
    configs: Mapping[str, float]
    seconds: Mapping[str, Sequence[float]]
    undone: Mapping[str, Collection[int]]
    later: Mapping[str, int]
    holders: Sequence[Collection[str]]
    fetch: float = inf
    cached: Mapping[str, Collection[int]] = field(default_factory=dict)
    epochs: Mapping[str, int] = field(default_factory=dict)
    order: Order = ()
    guessed: Collection[str] = ()
    progress: Progress = Progress.FREE


def _unknown() -> RemainingWork | None:
    return None


@dataclass(frozen=True, slots=True)
class SchedulingContext:
    """A moment at which nodes are idle.

    ``eligible`` has for each idle node the units that it may take now; ``remaining`` each live
    config's expected seconds over all its epochs; ``load`` each node's expected seconds over the
    partitions at home on it; ``seconds`` the expected seconds of a unit on a node; ``seed`` is the
    run's seed, then what differs from moment to moment: the same for whoever decides at it.

    ``remainder`` looks ahead, which costs something: only a policy that needs it asks. It answers ``None``
    where the rest of the run cannot be told in units of one node each (trials, gangs, evaluations), and
    where it is asked for a hint only.

    ``even``: a config with fewer epochs behind it comes first.

    ``elsewhere`` is there where nodes fetch on demand. Asked for an idle node, a config and a partition that
    is not at home on the node, it answers the unit if that may be chosen as well, else ``None``.
    """

    eligible: Mapping[str, Sequence[Unit]]
    remaining: Mapping[str, float]
    load: Mapping[str, float]
    seconds: Callable[[Unit, str], float]
    seed: tuple[int, ...] = (0,)
    remainder: Callable[[], RemainingWork | None] = _unknown
    elsewhere: Callable[[str, str, int], Unit | None] | None = None
    even: bool = False


class Policy(Protocol):
    """Which idle node takes which unit."""

    def choose(self, instance: SchedulingContext) -> Sequence[tuple[str, Unit]]:
        """At most one unit for each idle node, eligible there or found ``elsewhere``; no config twice."""


@runtime_checkable
class Planner(Protocol):
    """A policy for which, while units run, a process of its own looks for an ``Order``: the Python module
    ``solver`` reads a question from its standard input, and writes the answer to its standard output, as
    JSON. What it answers is an event of the run's history (``Ordered``), so that decisions depend on the
    state alone, as those of other policies do.
    """

    solver: str

    def due(self, before: RemainingWork | None, left: RemainingWork) -> bool:
        """Whether to ask at the moment ``left``, the last one at which that was so being ``before``."""

    def question(self, left: RemainingWork, seed: int) -> Mapping[str, Any] | None:
        """What to ask at the moment ``left``; ``None`` if no answer could be of use."""

    def order(self, left: RemainingWork, question: Mapping[str, Any], answer: Any) -> Order:
        """What the answer to what was asked at the moment ``left`` says; nothing, if it says nothing."""


@dataclass(frozen=True, slots=True)
class ConfigView:
    """A config as a search sees it.

    ``epochs`` and ``units`` (whole training units) are those behind it, its parent's before it included;
    ``curve`` is what it has logged since it was created. It is ``idle`` if it is in no unit now. ``by_hand``:
    a person has created, stopped or resumed it. ``origin`` is what the search noted with its proposal.
    """

    config: str
    hparams: HParams
    status: Status = Status.LIVE
    epochs: int = 0
    units: int = 0
    curve: Sequence[Point] = ()
    idle: bool = True
    parent: str | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)
    by_hand: bool = False


@dataclass(frozen=True, slots=True)
class SearchContext:
    """The run as a search sees it: all configs in the order in which they were created, the plan's
    ``partitions`` and ``epochs``, how many ``nodes`` work, and what has been ``usage``."""

    configs: Sequence[ConfigView] = ()
    partitions: int = 1
    epochs: int = 1
    nodes: int = 1
    usage: Usage = field(default_factory=Usage)

    @property
    def proposed(self) -> Sequence[ConfigView]:
        """Those that the search has proposed, not people."""
        return [view for view in self.configs if view.origin != BY_HAND]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A config that there shall be: from the beginning (or the plan's ``start``), or going on from where the
    config ``parent`` stands. What is in ``origin`` (JSON values) the search gets back with the config's
    standing."""

    hparams: HParams
    parent: str | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stop:
    """A live config shall get no more units; what it has done stays."""

    config: str
    reason: str


@dataclass(frozen=True, slots=True)
class Resume:
    """A stopped config shall go on."""

    config: str
    reason: str


Decision: TypeAlias = Stop | Resume


class Search(Protocol):
    """Which configs there shall be, and how far each is trained.

    What is to be remembered is in the outlook, so that who takes over goes on as the last one would have.
    First ``decide`` is asked until it has nothing more to say, then ``propose``; each time the outlook shows
    what came of the last answers. A run ends when no config is live and the search wants nothing.
    """

    def decide(self, context: SearchContext) -> Sequence[Decision]:
        """Which of the configs that there are stop or go on: no config that is in a unit, and none that a
        person has decided on (``by_hand``)."""
        del context
        return ()

    def propose(self, context: SearchContext) -> Sequence[Proposal]:
        """The configs to create now."""
