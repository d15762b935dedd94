"""The moment of a decision: the state, and the values that decisions derive from it.

Registered nodes get units unless they are leaving, stalled or quarantined; at most as many as the run uses.

The remaining work is for policies that play the run forward. The core has no clock, and a unit under way does
not report its progress. But visits state when they ended. So an attempt counts as begun when the last visit
before it ended (``Attempt.last_visit_ended``), and "now" is the end of the last visit of all. (Half of the
expected seconds would be simpler, but loses much of what looking ahead gains.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import compress
from math import fsum, inf
from typing import Any, TypeVar

from cerebro_elastic.core.decisions.next_steps import NextSteps, next_steps
from cerebro_elastic.core.decisions.per_config import PerConfig
from cerebro_elastic.core.decisions.placements import Placements, placements
from cerebro_elastic.core.history.derived import batches_at_hand, cached_partitions
from cerebro_elastic.core.history.estimates import (
    all_unit_seconds,
    begun_at,
    evaluation_seconds,
    fetch_seconds,
    mean_epoch_seconds,
    speed_factor,
    speed_factors,
    unit_seconds,
)
from cerebro_elastic.core.history.lineage import is_newborn
from cerebro_elastic.core.history.progress import units_left
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.interfaces import Planner, RemainingWork
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import EpochSeconds, State
from cerebro_elastic.core.model.units import Order, Unit

_Shared = TypeVar("_Shared")

LEAST = 0.05
"""The least remaining share of a unit's expected seconds while it is under way: it may be late, but is not
over."""


def used_nodes(state: State, plan: Plan) -> list[Node]:
    """The nodes that get units: those longest registered since the run was last extended, at most
    ``plan.max_nodes``.

    A draining or stalled node gets none. A quarantined node gets units only as the last one, and if the fault
    may lie elsewhere (a full disk is the node's own fault).
    """
    nodes = sorted(state.nodes.values(), key=lambda node: node.registration)
    staying = [n for n in nodes if n.registration >= state.extended and n.drain is None and n.stalled is None]
    trusted = [n for n in staying if n.name not in state.quarantined]
    return (trusted or [n for n in staying if not _is_faulty(state, n)])[: plan.max_nodes]


def _is_faulty(state: State, node: Node) -> bool:
    streak = state.streaks.get(node.name)
    return node.name in state.quarantined and streak is not None and streak.kind.of_node


class Moment:
    """A state, for decisions. Each part is derived when it is first used."""

    def __init__(self, state: State, plan: Plan, held: Sequence[str] = ()) -> None:
        self.state = state
        self.plan = plan
        self.held = held
        """The answer of ``Search.held``."""
        self._units_at: dict[str, Sequence[Unit]] = {}

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes in use."""
        return {node.name: node for node in used_nodes(self.state, self.plan)}

    @cached_property
    def live(self) -> Mapping[str, Config]:
        """The live configs: a few, even in a search over thousands."""
        configs = self.state.configs
        return {name: configs[name] for name in compress(configs, _is_live(None, configs).values())}

    @cached_property
    def busy(self) -> Mapping[str, Attempt]:
        """By config that is in an attempt: the attempt."""
        return {attempt.unit.config: attempt for attempt in self.state.underway()}

    @cached_property
    def waits_for_nodes(self) -> bool:
        """Whether the run waits for ``plan.min_nodes``: possible only before its first unit."""
        state, configs = self.state, self.state.configs.values()
        begun = self.busy or state.profiles or any(c.head is not None or c.failures for c in configs)
        return not begun and sum(n.drain is None for n in state.nodes.values()) < self.plan.min_nodes

    @cached_property
    def next_steps(self) -> Mapping[str, NextSteps]:
        """By live config: its next step on each kind of node."""
        return next_steps(self.state, self.plan, self.nodes, self.live)

    @cached_property
    def placements(self) -> Placements:
        """The possible next units of each config, and their nodes; without configs that wait for others."""
        options = placements(self.state, self.plan, self.nodes, self.live, self.next_steps)
        room = self.plan.begun_per_node * len(self.nodes)
        if not room:
            return options
        able = [name for name, options_of in options.items() if options_of]
        unbegun = {name for name in able if not self._has_begun(self.state.configs[name])}
        first_ids = sorted(unbegun, key=lambda name: (len(name), name))
        waiting = set(first_ids[max(0, room - (len(able) - len(unbegun))) :])
        return {name: options_of for name, options_of in options.items() if name not in waiting}

    def _has_begun(self, config: Config) -> bool:
        """Whether the config has had a unit, or a person wants it."""
        moved = config.head is not None and not is_newborn(config)
        known = config.id in self.busy or config.id in self.state.profiles
        return moved or known or config.by_hand or bool(config.failures)

    @cached_property
    def _live(self) -> Sequence[Config]:
        """The live configs, without those that wait for others to end before they begin."""
        return [self.live[name] for name in self.placements]

    @cached_property
    def cached(self) -> Mapping[str, Collection[int]]:
        """By node: the partitions in its cache."""
        return cached_partitions(self.nodes.values())

    @cached_property
    def batches(self) -> Mapping[str, Collection[tuple[int, int]]]:
        """As in ``SchedulingContext``."""
        return batches_at_hand(self.nodes.values(), self.state.batches) if self.plan.prefers_made else {}

    @cached_property
    def seconds(self) -> Mapping[str, float]:
        """By live config: the seconds of its unit on a node of factor 1."""
        return all_unit_seconds(self.state, self.live)

    @cached_property
    def speed_factors(self) -> Mapping[str, float]:
        return speed_factors(self.state, self.nodes)

    @cached_property
    def remaining(self) -> Mapping[str, float]:
        """As in ``SchedulingContext``."""
        units = _units_left(self.plan, self.live)
        return {name: left * self.seconds[name] for name, left in units.items()}

    def units_at(self, node: str) -> Sequence[Unit]:
        """The units that the node may lead."""
        if node not in self._units_at:
            self._units_at[node] = [unit for of in self.placements.values() for unit in of.units_at(node)]
        return self._units_at[node]

    @cached_property
    def has_gangs(self) -> bool:
        """Whether several nodes may train a unit together."""
        return any(strategy.nodes > 1 for strategy in self.plan.strategies)

    @cached_property
    def loads(self) -> Mapping[str, float]:
        """By node: its expected seconds, if the nodes that may lead units share them by speed."""
        state, plan, factors = self.state, self.plan, self.speed_factors
        seconds = dict.fromkeys(factors, 0.0)

        def share_work(names: Sequence[str], work: float) -> None:
            node_work = work / sum(1 / factors[name] for name in names)
            for name in names:
                seconds[name] += node_work

        takers = ((options.takers, self.seconds[name]) for name, options in self.placements.items())
        leads = ((names, work) for each, work in _summed(takers) for names in each.leads)
        for names, work in _summed(leads):
            if names:  # no node can lead a gang that lacks nodes
                share_work(names, work)
        later = sum((plan.epochs - config.epoch - 1) * self.seconds[config.id] for config in self._live)
        for homes in state.homes.values():
            if present := [name for name in homes if name in seconds]:
                share_work(present, later)
        return seconds

    @cached_property
    def wait_seconds(self) -> float:
        """The expected seconds until a node is free."""
        return min((_until_free(self.state, name) for name in self.nodes), default=0.0)

    def rest_of_epoch(self, config: Config | None) -> float:
        """The expected seconds of all remaining units of the config's epoch, evaluations included, each on
        the fastest of the nodes where its partition is at home, one after the other; of a usual config's
        whole epoch, if the config does not exist yet. 0: nothing is known, as the first unit on a node is
        slow for passing reasons."""
        state, plan = self.state, self.plan
        own = state.epoch_seconds.get(config.id, EpochSeconds()) if config is not None else EpochSeconds()
        usual = own.usual or self._of_all_configs.usual or own.last or self._of_all_configs.last
        last = own.last or self._of_all_configs.last or usual
        if usual is None or last is None:
            return 0.0
        left = range(plan.trained) if config is None else plan.trains(config.fold)
        undone = [j for j in left if config is None or j not in config.visited]
        factors = [self._factor_at(j) for j in undone]
        # The last one has the validation, wherever it is, unless evaluations are separate units.
        training = fsum(factors) * usual + (min(factors) * (last - usual) if factors else 0.0)
        evaluations = plan.evaluations - (len(config.evaluated) if config is not None else 0)
        seconds = evaluation_seconds(own, self._of_all_configs, usual)
        return training + evaluations * seconds * min(self.speed_factors.values(), default=1.0)

    @cached_property
    def _of_all_configs(self) -> EpochSeconds:
        return mean_epoch_seconds(self.state.epoch_seconds.values())

    def _factor_at(self, partition: int) -> float:
        """The factor of the fastest of the nodes that may train on the partition."""
        homes = self.state.homes.get(partition, ()) if not self.plan.on_demand else ()
        known = self.speed_factors
        return min((known[name] for name in homes if name in known), default=min(known.values(), default=1.0))

    def remaining_work(self, freed: str | None = None) -> RemainingWork | None:
        """The remaining work of the run on these nodes; ``None`` if it includes units other than training on
        one node. If ``freed`` is given, the question is what that node does next; it counts as idle."""
        state, plan, nodes, busy = self.state, self.plan, self.nodes, self.busy
        holders = [[name for name in state.homes[j] if name in nodes] for j in range(plan.partitions)]
        plain = all(options.plain for options in self.placements.values())
        if plan.folds or plan.evaluations or not plain or not all(holders):
            return None
        live = self._live
        longest = max(state.timings.values(), default=None)
        seconds = {
            # A config not measured yet may be the tail of the run, and must begin early.
            config.id: self.seconds[config.id] if longest is None or _measured(state, config.id) else longest
            for config in live
        }
        factors = self.speed_factors.values()
        return RemainingWork(
            nodes={name: 0.0 if name == freed else _until_free(state, name) for name in nodes},
            configs={name: _seconds_left(state, busy[name]) if name in busy else 0.0 for name in seconds},
            seconds={name: [unit * factor for factor in factors] for name, unit in seconds.items()},
            undone=_undone_partitions(plan, {config.id: config for config in live}, busy),
            later={config.id: plan.epochs - config.epoch - 1 for config in live},
            holders=holders,
            fetch=fetch_seconds(state.fetches) if plan.on_demand else inf,
            cached=self.cached if plan.on_demand else {},
            epochs={config.id: config.epoch for config in live},
            order=state.order,
            guessed=[config.id for config in live if not _measured(state, config.id)],
            progress=plan.progress,
        )


@PerConfig
def _is_live(_shared: None, config: Config) -> bool:
    return config.status is Status.LIVE


@PerConfig
def _units_left(plan: Plan, config: Config) -> int:
    return units_left(config, plan)


def _measured(state: State, config: str) -> bool:
    return config in state.timings or config in state.profiles


@PerConfig
def _undone_partitions(plan: Plan, config: Config, attempt: Attempt | None) -> list[int]:
    done = {*config.visited, *([attempt.unit.partition] if attempt is not None else [])}
    return [j for j in range(plan.partitions) if j not in done]


def _summed(parts: Iterable[tuple[_Shared, float]]) -> Iterable[tuple[_Shared, float]]:
    """Sums by identical object: most configs have the same partitions to visit, on the same nodes."""
    sums: dict[int, tuple[_Shared, float]] = {}
    for shared, value in parts:
        before = sums.get(id(shared))
        sums[id(shared)] = shared, value if before is None else before[1] + value
    return sums.values()


def _until_free(state: State, node: str) -> float:
    last = state.queued.get(node) or state.attempts.get(node)
    return 0.0 if last is None else _seconds_left(state, last)


def _seconds_left(state: State, attempt: Attempt) -> float:
    """The seconds until the attempt is expected to end. An attempt being saved is almost over; a queued one
    begins when its node is free."""
    expected = attempt.expected
    if expected is None:
        expected = unit_seconds(state, attempt.unit.config) * speed_factor(state, attempt.node)
    if attempt.trained:
        return LEAST * expected
    if state.is_queued(attempt):
        return _seconds_left(state, state.attempts[attempt.node]) + expected
    begun = begun_at(state, attempt)
    elapsed = 0.0 if begun is None else state.usage.until - begun
    return max(expected - max(elapsed, 0.0), LEAST * expected)


class Questions:
    """The questions to a policy's solver: the moments to ask them, and the orders in the answers."""

    def __init__(self, policy: Planner, seed: int) -> None:
        self._policy, self._seed = policy, seed
        self._asked_at: RemainingWork | None = None
        self._question: Mapping[str, Any] = {}

    def due(self, state: State) -> Mapping[str, Any] | None:
        """The question to ask in ``state``; ``None`` without one, if nothing runs, or if the remaining work
        cannot be forecast."""
        plan = state.plan
        if plan is None or state.outcome is not None or not state.attempts or not state.homes:
            return None
        left = Moment(state, plan).remaining_work()
        if left is None or not self._policy.due(self._asked_at, left):
            return None
        self._asked_at = left
        question = self._policy.question(left, self._seed)
        self._question = question or {}
        return question

    def order(self, answer: Any) -> Order:
        """The order in the answer to the last question."""
        assert self._asked_at is not None
        return self._policy.order(self._asked_at, self._question, answer)
