"""The contract of search procedures. ``check_search`` tries a search on a random course of events.

Example::

    @pytest.mark.parametrize("seed", range(5))
    def test_my_search_keeps_the_contract(seed: int) -> None:
        check_search(lambda: MySearch(recipe), seed, most=20)
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.interfaces import ConfigView, Decision, Proposal, Search, SearchContext, Stop
from cerebro_elastic.core.model.state import Point, Usage
from cerebro_elastic.search.sampling import key

Learn: TypeAlias = Callable[[ConfigView, int, bool], Mapping[str, float]]
"""The metrics that a config logs. Arguments: the config, its units (its ancestors' included), and whether an
epoch ends with the last of them."""
_MOST_ANSWERS = 10_000
_NODES = 3
_STEPS = 5000


class Tryout:
    """A run of ``search`` in memory. The caller begins and ends the units, and sets the time.

    Args:
        search: The search to try.
        learn: The metrics of each config after each unit.
        partitions: Units in an epoch.
        epochs: Epochs until a config is finished.
        nodes: The number of nodes that the search sees.

    Attributes:
        configs: The configs by id.
        reasons: The last reason for which each config was stopped or resumed.
        now: The time in seconds, which the caller advances.
        log: All decisions and proposals in their order.

    Raises:
        AssertionError: The search makes a decision or a proposal that it must not make.

    Example::

        tryout = Tryout(MySearch(), bowl, partitions=2, epochs=4, nodes=2)
        tryout.settle()  # the search proposes its first configs
        while tryout.live:
            config = tryout.live[0]
            tryout.begin(config)
            tryout.end(config)  # the unit is done and its metrics are logged
            tryout.settle()
        assert tryout.usage.units <= 100
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
        """The search's present view of the run."""
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
        self.configs[config] = replace(self.configs[config], status=Status.FAILED, idle=True)

    def stop_by_hand(self, config: str) -> None:
        self.configs[config] = replace(self.configs[config], status=Status.STOPPED, by_hand=True)

    def copy(self, search: Search) -> Tryout:
        """The same state with another instance of the search, as after a change of leader."""
        copy = Tryout(search, self.learn, partitions=self.partitions, epochs=self.epochs, nodes=self.nodes)
        copy.configs, copy.usage, copy.now = dict(self.configs), self.usage, self.now
        return copy

    def _obey(self, decision: Decision) -> None:
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


def bowl(view: ConfigView, units: int, _ends: bool) -> Mapping[str, float]:
    """A loss that falls with the units to a level that depends on the hyper-parameters."""
    level = sum(abs(float(v) - 0.3) for v in view.hparams.values() if isinstance(v, int | float))
    return {"val_loss": level + 1.0 / units, "train_loss": level + 1.1 / units}


def undefined(_view: ConfigView, _units: int, _ends: bool) -> Mapping[str, float]:
    """Metrics that are NaN, always."""
    return {"val_loss": math.nan, "train_loss": math.nan}


def check_search(
    make: Callable[[], Search],
    seed: int,
    *,
    most: int,
    epochs: int = 9,
    partitions: int = 2,
    learn: Learn = bowl,
    finishes: bool = True,
    trouble: bool = True,
    concurrency: int | None = None,
) -> Tryout:
    """Check a search's contract on one random course of events.

    The contract: the search depends on its ``SearchContext`` alone (another instance decides the same at any
    moment), decides only on idle configs and on none that a person has decided on, proposes no point twice,
    gives a reason for each stop, and ends.

    Args:
        make: Makes a new instance of the search.
        seed: The seed of the course of events: units end in any order.
        most: The most configs that the search may propose (children of others not counted).
        epochs: Epochs until a config is finished.
        partitions: Units in an epoch.
        learn: The metrics of each config after each unit.
        finishes: Whether at least one config must be trained to its end.
        trouble: Whether configs fail now and then, and a person stops one.
        concurrency: The most configs that may be live at once; ``None`` for any number.

    Returns:
        The course of events, for further checks.

    Raises:
        AssertionError: The search breaks its contract.

    Example::

        tryout = check_search(lambda: MySearch(recipe), seed=1, most=20, concurrency=4)
        assert tryout.usage.units < 200
    """
    rng = random.Random(seed)
    tryout = Tryout(make(), learn, partitions=partitions, epochs=epochs, nodes=_NODES)
    running: list[str] = []
    for step in range(_STEPS):
        _check_takeover(tryout, make)
        tryout.settle()
        live = sum(view.status is Status.LIVE for view in tryout.configs.values())
        assert concurrency is None or live <= concurrency, f"{live} configs are live at once"
        waiting = [config for config in tryout.live if config not in running]
        if not waiting and not running:
            break
        if waiting and len(running) < _NODES:
            running.append(rng.choice(waiting))
            tryout.begin(running[-1])
            continue
        config = running.pop(rng.randrange(len(running)))
        tryout.now += 1.0 / _NODES
        if trouble and step % 41 == 40:
            tryout.fail(config)
        else:
            tryout.end(config)
        if trouble and step == 29 and tryout.live:
            tryout.stop_by_hand(rng.choice(tryout.live))
    else:
        raise AssertionError(f"the search does not end within {_STEPS} steps")
    _check_end(tryout, most, finishes)
    return tryout


def _check_takeover(tryout: Tryout, make: Callable[[], Search]) -> None:
    """A new leader has only the record. It must decide as the old one would."""
    search, context = make(), tryout.context
    decisions = tryout.search.decide(context)
    assert list(search.decide(context)) == list(decisions), "other decisions after a takeover"
    if not decisions:
        proposals = list(tryout.search.propose(context))
        assert list(search.propose(context)) == proposals, "other proposals after a takeover"
        if len(proposals) > 1 and not any(p.parent for p in proposals):
            successor = tryout.copy(search)
            successor.create(proposals[0])
            later = list(search.propose(successor.context))
            assert later == proposals[1:], "a takeover in the middle of proposals changes the others"


def _check_end(tryout: Tryout, most: int, finishes: bool) -> None:
    configs = list(tryout.configs.values())
    points = [key(config.hparams) for config in configs if config.parent is None]
    assert len(set(points)) == len(points), f"a point was proposed twice: {points}"
    assert len(points) <= most, f"{len(points)} configs were proposed, the budget is {most}"
    finished = [config for config in configs if config.status is Status.FINISHED]
    assert finished or not finishes, f"no config was trained to its end: {tryout.reasons}"
    stops = [decision for decision in tryout.log if isinstance(decision, Stop)]
    assert all(stop.reason for stop in stops), "a config was stopped without a reason"
