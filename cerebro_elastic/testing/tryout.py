"""A search tried out without a run: configs are rows, units are counted, and metrics come from a function.
What a search may not ask for raises ``AssertionError``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from cerebro_elastic.core.model.interfaces import Outlook, Proposal, Resume, Search, Standing, Stop
from cerebro_elastic.core.model.state import Point, Spent
from cerebro_elastic.core.model.values import Status

Learn: TypeAlias = Callable[[Standing, int, bool], Mapping[str, float]]
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
        self.configs: dict[str, Standing] = {}
        self.reasons: dict[str, str] = {}
        self.spent = Spent(began=0.0)
        self.now = 0.0
        self.log: list[object] = []

    @property
    def outlook(self) -> Outlook:
        spent = replace(self.spent, until=self.now)
        return Outlook(list(self.configs.values()), self.partitions, self.epochs, self.nodes, spent)

    @property
    def live(self) -> list[str]:
        """The configs that may do a unit now."""
        return [s.config for s in self.configs.values() if s.status is Status.LIVE and s.idle]

    def settle(self) -> None:
        """Do what the search wants, until it wants nothing more."""
        for _ in range(_ANSWERS):
            verdicts = self.search.decide(self.outlook)
            for verdict in verdicts:
                self._obey(verdict)
            proposals = [] if verdicts else self.search.propose(self.outlook)
            for proposal in proposals:
                self._create(proposal)
            self.log += [*verdicts, *proposals]
            if not verdicts and not proposals:
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
        self.spent = replace(self.spent, units=self.spent.units + 1, seconds=self.spent.seconds + 1.0)

    def fail(self, config: str) -> None:
        """The config fails."""
        self.configs[config] = replace(self.configs[config], status=Status.FAILED, idle=True)

    def stop_by_hand(self, config: str) -> None:
        """A person stops the config."""
        self.configs[config] = replace(self.configs[config], status=Status.STOPPED, by_hand=True)

    def copy(self, search: Search) -> Tryout:
        """The same moment with another instance of the search, as after a takeover."""
        other = Tryout(search, self.learn, partitions=self.partitions, epochs=self.epochs, nodes=self.nodes)
        other.configs, other.spent, other.now = dict(self.configs), self.spent, self.now
        return other

    def _obey(self, verdict: Stop | Resume) -> None:
        before = self.configs[verdict.config]
        assert before.idle, f"{verdict}: it is in a unit"
        assert not before.by_hand, f"{verdict}: a person has decided on it"
        expected = Status.LIVE if isinstance(verdict, Stop) else Status.STOPPED
        assert before.status is expected, f"{verdict}: it is {before.status.value}"
        after = Status.STOPPED if isinstance(verdict, Stop) else Status.LIVE
        self.configs[verdict.config] = replace(before, status=after)
        self.reasons[verdict.config] = verdict.reason

    def _create(self, proposal: Proposal) -> None:
        name = f"c{len(self.configs):04d}"
        new = Standing(name, proposal.hparams, origin=proposal.origin, parent=proposal.parent)
        if proposal.parent is not None:
            parent = self.configs[proposal.parent]
            assert parent.status is not Status.FAILED, f"{proposal}: its parent has failed"
            assert parent.epochs < self.epochs, f"{proposal}: its parent has nothing left to do"
            new = replace(new, units=parent.units, epochs=parent.epochs)
        self.configs[name] = new


def hparams_of(configs: Sequence[Standing]) -> list[Mapping[str, object]]:
    """The points that were proposed from the beginning, not as a parent's child."""
    return [config.hparams for config in configs if config.parent is None]
