"""A search tried out without a run: configs are rows, units are counted, and metrics come from a function.
What a search may not ask for raises ``AssertionError``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.interfaces import ConfigView, Proposal, Resume, Search, SearchContext, Stop
from cerebro_elastic.core.model.state import Point, Usage

Learn: TypeAlias = Callable[[ConfigView, int, bool], Mapping[str, float]]
"""What a config logs after so many units of its own and its ancestors'; whether an epoch ends there."""
_ANSWERS = 10_000


class Tryout:
    """``search`` decides over configs that log what ``learn`` says, on ``nodes`` nodes. Whoever drives it
    says which units begin and end, and what time it is (``now``)."""

    def __init__(
        self, search: Search, learn: Learn, *, partitions: int = 3, epochs: int = 9, nodes: int = 2
    ) -> None:
        self.search = search
        self.learn = learn
        self.partitions = partitions
        self.epochs = epochs
        self.nodes = nodes
        self.configs: dict[str, ConfigView] = {}
        self.reasons: dict[str, str] = {}
        self.usage = Usage(began=0.0)
        self.now = 0.0
        self.log: list[object] = []

    @property
    def context(self) -> SearchContext:
        usage = replace(self.usage, until=self.now)
        return SearchContext(list(self.configs.values()), self.partitions, self.epochs, self.nodes, usage)

    @property
    def live(self) -> list[str]:
        """The configs that may do a unit now."""
        return [s.config for s in self.configs.values() if s.status is Status.LIVE and s.idle]

    def settle(self) -> None:
        """Do what the search wants, until it wants nothing more."""
        for _ in range(_ANSWERS):
            decisions = self.search.decide(self.context)
            for decision in decisions:
                self._obey(decision)
            proposals = [] if decisions else self.search.propose(self.context)
            for proposal in proposals:
                self._create(proposal)
            self.log += [*decisions, *proposals]
            if not decisions and not proposals:
                return
        raise AssertionError(f"the search has no end of wishes: {self.log[-4:]}")

    def begin(self, config: str) -> None:
        """A unit of the config begins."""
        self.configs[config] = replace(self.configs[config], idle=False)

    def end(self, config: str) -> None:
        """A unit of the config ends well; it may be its last."""
        before = self.configs[config]
        units = before.units + 1
        epochs, visited = divmod(units, self.partitions)
        ends = visited == 0
        point = Point(units, epochs, self.learn(before, units, ends), ends)
        status = Status.FINISHED if epochs == self.epochs else before.status
        self.configs[config] = replace(
            before, units=units, epochs=epochs, curve=(*before.curve, point), idle=True, status=status
        )
        self.usage = replace(self.usage, units=self.usage.units + 1, seconds=self.usage.seconds + 1.0)

    def fail(self, config: str) -> None:
        """The config fails."""
        self.configs[config] = replace(self.configs[config], status=Status.FAILED, idle=True)

    def stop_by_hand(self, config: str) -> None:
        """A person stops the config."""
        self.configs[config] = replace(self.configs[config], status=Status.STOPPED, by_hand=True)

    def copy(self, search: Search) -> Tryout:
        """The same moment with another instance of the search, as after a takeover."""
        other = Tryout(search, self.learn, partitions=self.partitions, epochs=self.epochs, nodes=self.nodes)
        other.configs, other.usage, other.now = dict(self.configs), self.usage, self.now
        return other

    def _obey(self, decision: Stop | Resume) -> None:
        before = self.configs[decision.config]
        assert before.idle, f"{decision}: it is in a unit"
        assert not before.by_hand, f"{decision}: a person has decided on it"
        expected = Status.LIVE if isinstance(decision, Stop) else Status.STOPPED
        assert before.status is expected, f"{decision}: it is {before.status.value}"
        after = Status.STOPPED if isinstance(decision, Stop) else Status.LIVE
        self.configs[decision.config] = replace(before, status=after)
        self.reasons[decision.config] = decision.reason

    def _create(self, proposal: Proposal) -> None:
        name = f"c{len(self.configs):04d}"
        new = ConfigView(name, proposal.hparams, origin=proposal.origin, parent=proposal.parent)
        if proposal.parent is not None:
            parent = self.configs[proposal.parent]
            assert parent.status is not Status.FAILED, f"{proposal}: its parent has failed"
            assert parent.epochs < self.epochs, f"{proposal}: its parent has nothing left to do"
            new = replace(new, units=parent.units, epochs=parent.epochs)
        self.configs[name] = new


def hparams_of(configs: Sequence[ConfigView]) -> list[Mapping[str, object]]:
    """The points that were proposed from the beginning, not as a parent's child."""
    return [config.hparams for config in configs if config.parent is None]
