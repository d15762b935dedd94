"""Which idle node gets which unit now: the moment as the policy sees it, and the attempts that it makes of
the policy's choice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cerebro_elastic.core.actions import Assign
from cerebro_elastic.core.estimates import pace, unit_seconds
from cerebro_elastic.core.membership import used_nodes, waiting
from cerebro_elastic.core.ports import Instance, Policy
from cerebro_elastic.core.progress import next_units, skipped, units_left
from cerebro_elastic.core.state import State
from cerebro_elastic.core.values import Attempt, Config, Node, Phase, Plan, Prefetch, Status, Unit


def assignments(state: State, plan: Plan, policy: Policy) -> Iterator[Assign]:
    """An attempt for each idle node for which the policy has a unit."""
    if waiting(state, plan):
        return
    nodes = {n.name: n for n in used_nodes(state, plan)}
    idle = [name for name in nodes if name not in state.attempts]
    busy = {a.unit.config for a in state.attempts.values()}
    chosen = list(policy.choose(_instance(state, plan, nodes, idle, busy)))
    busy |= {unit.config for _, unit in chosen}
    for name, unit in chosen:
        hints = policy.choose(_instance(state, plan, nodes, [name], busy))
        yield Assign(_attempt(state, nodes[name], unit, [hint for _, hint in hints]))


def _attempt(state: State, node: Node, unit: Unit, hints: Sequence[Unit]) -> Attempt:
    config = state.configs[unit.config]
    timed = unit.config in state.timings
    return Attempt(
        unit=unit,
        node=node.name,
        registration=node.registration,
        config_revision=config.revision,
        input=config.head,
        prefetch=_prefetch(state, hints),
        skip=skipped(config),
        expected=unit_seconds(state, unit.config) * pace(state, node.name) if timed else None,
    )


def _prefetch(state: State, hints: Sequence[Unit]) -> Prefetch | None:
    """What the node would take next if it were idle again now."""
    trains = [u for u in hints if u.phase is Phase.TRAIN]
    return Prefetch(trains[0].partition, state.configs[trains[0].config].head) if trains else None


def _instance(
    state: State, plan: Plan, nodes: Mapping[str, Node], idle: Sequence[str], busy: set[str]
) -> Instance:
    seconds = {c: unit_seconds(state, c) for c in state.configs}
    paces = {name: pace(state, name) for name in nodes}
    eligible: dict[str, list[Unit]] = {name: [] for name in idle}
    load = dict.fromkeys(nodes, 0.0)
    for config in state.configs.values():
        for unit in next_units(config, plan):
            takers = _takers(state, config, unit, nodes)
            for name in takers:
                load[name] += seconds[config.id] * paces[name]
                if name in eligible and config.id not in busy:
                    eligible[name].append(unit)
        for name, units in _later_units(state, config, plan, nodes).items():
            load[name] += units * seconds[config.id] * paces[name]
    return Instance(
        eligible=eligible,
        remaining={c.id: units_left(c, plan) * seconds[c.id] for c in state.configs.values()},
        load=load,
        seconds=lambda unit, node: seconds[unit.config] * paces[node],
        seed=(plan.seed, state.revision),
    )


def _later_units(state: State, config: Config, plan: Plan, nodes: Mapping[str, Node]) -> dict[str, int]:
    """How many units of the config's epochs to come each node is the home of."""
    later = plan.epochs - config.epoch - 1 if config.status is Status.LIVE else 0
    at_home = [home for home in state.homes.values() if home in nodes]
    return {name: later * at_home.count(name) for name in at_home}


def _takers(state: State, config: Config, unit: Unit, nodes: Mapping[str, Node]) -> list[str]:
    """The nodes that may do the unit: the partition's home, or any for an evaluation, but after a
    failure one where it has not failed, as long as there is one. (A node's own trouble is over when it gets
    units again.)"""
    failed = {f.node for f in config.failures if f.unit == unit and not f.kind.of_node}
    fresh = [name for name in nodes if name not in failed]
    home = state.homes.get(unit.partition)
    if unit.phase is Phase.TRAIN and home is not None and home in nodes and (home in fresh or not fresh):
        return [home]
    return fresh or list(nodes)
