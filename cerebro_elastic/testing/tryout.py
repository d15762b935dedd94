"""Try a search without a run: configs are rows, units are counted, and metrics come from a function.

Example::

    tryout = Tryout(MySearch(), bowl, partitions=2, epochs=4, nodes=2)
    tryout.settle()  # the search proposes its first configs
    while tryout.live:
        config = tryout.live[0]
        tryout.begin(config)
        tryout.end(config)  # the unit is done and its metrics are logged
        tryout.settle()
    assert tryout.usage.units <= 100

A decision or proposal that a search must not make raises ``AssertionError``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.interfaces import ConfigView, Proposal, Resume, Search, SearchContext, Stop
from cerebro_elastic.core.model.state import Point, Usage

Learn: TypeAlias = Callable[[ConfigView, int, bool], Mapping[str, float]]
"""The metrics that a config logs. Arguments: the config, its units (its ancestors' included), and whether an
epoch ends with the last of them."""
_MOST_ANSWERS = 10_000


class Tryout:
    """A run of ``search`` in memory. The caller decides which units begin and end, and what time it is.

    Args:
        search: The search to try.
        learn: The metrics of each config after each unit.
        partitions: Units in an epoch.
        epochs: Epochs until a config is finished.
        nodes: The number of nodes that the search sees.

    Attributes:
        configs: The configs by id.
        reasons: The last reason for which each config was stopped or resumed.
        now: The time in seconds, which the caller moves on.
        log: All decisions and proposals in their order.
    """

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
        """What the search sees now."""
        usage = replace(self.usage, until=self.now)
        return SearchContext(list(self.configs.values()), self.partitions, self.epochs, self.nodes, usage)

    @property
    def live(self) -> list[str]:
        """The configs that may do a unit now."""
        return [view.config for view in self.configs.values() if view.status is Status.LIVE and view.idle]

    def settle(self) -> None:
        """Carry out the search's decisions and proposals until it has none left."""
        for _ in range(_MOST_ANSWERS):
            decisions = self.search.decide(self.context)
            for decision in decisions:
                self._obey(decision)
            proposals = [] if decisions else self.search.propose(self.context)
            for proposal in proposals:
                self.create(proposal)
            self.log += [*decisions, *proposals]
            if not decisions and not proposals:
                return
        raise AssertionError(f"the search never stops deciding: {self.log[-4:]}")

    def begin(self, config: str) -> None:
        """A unit of the config begins."""
        self.configs[config] = replace(self.configs[config], idle=False)

    def end(self, config: str) -> None:
        """A unit of the config ends, and its metrics are logged."""
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
        """The same state with another instance of the search, as after a change of leader."""
        copy = Tryout(search, self.learn, partitions=self.partitions, epochs=self.epochs, nodes=self.nodes)
        copy.configs, copy.usage, copy.now = dict(self.configs), self.usage, self.now
        return copy

    def _obey(self, decision: Stop | Resume) -> None:
        before = self.configs[decision.config]
        assert before.idle, f"{decision}: it is in a unit"
        assert not before.by_hand, f"{decision}: a person has decided on it"
        expected = Status.LIVE if isinstance(decision, Stop) else Status.STOPPED
        assert before.status is expected, f"{decision}: it is {before.status.value}"
        after = Status.STOPPED if isinstance(decision, Stop) else Status.LIVE
        self.configs[decision.config] = replace(before, status=after)
        self.reasons[decision.config] = decision.reason

    def create(self, proposal: Proposal) -> None:
        """Add the config that was proposed; fail if a search must not propose it."""
        name = f"c{len(self.configs):04d}"
        new = ConfigView(name, proposal.hparams, origin=proposal.origin, parent=proposal.parent)
        if proposal.parent is not None:
            parent = self.configs[proposal.parent]
            assert parent.status is not Status.FAILED, f"{proposal}: its parent has failed"
            assert parent.epochs < self.epochs, f"{proposal}: its parent has nothing left to do"
            new = replace(new, units=parent.units, epochs=parent.epochs)
        self.configs[name] = new


def hparams_of(configs: Sequence[ConfigView]) -> list[Mapping[str, object]]:
    """The points of the configs that were proposed without a parent."""
    return [config.hparams for config in configs if config.parent is None]
