"""What to do next: a pure function of the state. An action's effect is seen as an event before
the next decision, so nothing here needs to remember what was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cerebro_elastic.core.actions import Action, Assign, CreateConfig, EndConfig, EndRun, Place, Withdraw
from cerebro_elastic.core.placement import rebalance
from cerebro_elastic.core.ports import Instance, Policy, Search, Trial
from cerebro_elastic.core.progress import next_units, units_left
from cerebro_elastic.core.state import State
from cerebro_elastic.core.values import (
    Attempt,
    Config,
    FailureKind,
    Node,
    Phase,
    Plan,
    Prefetch,
    Status,
    Unit,
)


def decide(state: State, policy: Policy, search: Search) -> list[Action]:
    """The actions to try now, in order; none if there is nothing to do but wait.

    What makes the state consistent comes first (withdraw, fail, create, place); units are
    assigned only in a state that needs none of that.
    """
    if state.plan is None or state.outcome is not None:
        return []
    repairs: list[Action] = [
        *_withdrawals(state),
        *_failures(state, state.plan),
        *_creations(state, search),
        *_placement(state, state.plan),
    ]
    if repairs:
        return repairs
    if not any(c.status is Status.LIVE for c in state.configs.values()):
        return [EndRun("finished")]
    return list(_assignments(state, state.plan, policy))


def used_nodes(state: State) -> list[Node]:
    """The nodes that get units: those longest registered, at most ``plan.max_nodes``."""
    assert state.plan is not None
    return sorted(state.nodes.values(), key=lambda n: n.registration)[: state.plan.max_nodes]


def expected_seconds(state: State, config: str) -> float:
    """The estimate for the config's units; the mean of all configs' if it has had none; else 1."""
    if config in state.timings:
        return state.timings[config]
    known = state.timings.values()
    return sum(known) / len(known) if known else 1.0


def _withdrawals(state: State) -> Iterator[Withdraw]:
    for attempt in state.attempts.values():
        if not state.stands(attempt):
            config = state.configs[attempt.unit.config]
            gone = config.status is Status.LIVE
            yield Withdraw(attempt, "the node is gone" if gone else f"the config is {config.status.value}")


def _failures(state: State, plan: Plan) -> Iterator[EndConfig]:
    for config in state.configs.values():
        if config.status is not Status.LIVE or state.running(config.id):
            continue
        for unit in next_units(config, plan):
            tries = [f for f in config.failures if f.unit == unit and f.kind is not FailureKind.DISK_FULL]
            if len(tries) >= plan.tries:
                last = tries[-1]
                nodes = ", ".join(f.node for f in tries)
                yield EndConfig(
                    config,
                    Status.FAILED,
                    f"epoch {unit.epoch}, partition {unit.partition} failed {len(tries)} times "
                    f"(on {nodes}), at last with {last.kind.value}: {last.story}",
                )
                break


def _creations(state: State, search: Search) -> Iterator[CreateConfig]:
    trials = [Trial(c.id, c.hparams, c.status, c.epoch, c.metrics) for c in state.configs.values()]
    for place, hparams in enumerate(search.propose(trials), start=len(trials)):
        yield CreateConfig(Config(f"c{place:04d}", hparams))


def _placement(state: State, plan: Plan) -> Iterator[Place]:
    nodes = used_nodes(state)
    if not nodes or _waiting(state, plan):
        return
    names = {n.name for n in nodes}
    balanced = rebalance(state.homes, nodes, {n.name: n.cached for n in nodes}, plan.partitions)
    homeless = set(state.homes.values()) - names or len(state.homes) < plan.partitions
    unused = names - set(state.homes.values()) and len(set(balanced.values())) > len(
        set(state.homes.values())
    )
    if (homeless or unused) and balanced != state.homes:
        yield Place(balanced)


def _waiting(state: State, plan: Plan) -> bool:
    """Before its first unit a run waits for its least number of nodes; after it, never."""
    begun = state.attempts or any(c.head is not None for c in state.configs.values())
    return not begun and len(state.nodes) < plan.min_nodes


def _assignments(state: State, plan: Plan, policy: Policy) -> Iterator[Assign]:
    if _waiting(state, plan):
        return
    nodes = {n.name: n for n in used_nodes(state)}
    idle = [name for name in nodes if name not in state.attempts]
    busy = {a.unit.config for a in state.attempts.values()}
    chosen = list(policy.choose(_instance(state, plan, nodes, idle, busy)))
    busy |= {unit.config for _, unit in chosen}
    for name, unit in chosen:
        config = state.configs[unit.config]
        hints = policy.choose(_instance(state, plan, nodes, [name], busy))
        yield Assign(
            Attempt(
                unit=unit,
                node=name,
                registration=nodes[name].registration,
                config_revision=config.revision,
                input=config.head,
                prefetch=_prefetch(state, [u for _, u in hints]),
            )
        )


def _prefetch(state: State, hints: Sequence[Unit]) -> Prefetch | None:
    """What the node would take next if it were idle again now."""
    trains = [u for u in hints if u.phase is Phase.TRAIN]
    return Prefetch(trains[0].partition, state.configs[trains[0].config].head) if trains else None


def _instance(
    state: State, plan: Plan, nodes: dict[str, Node], idle: Sequence[str], busy: set[str]
) -> Instance:
    seconds = {c: expected_seconds(state, c) for c in state.configs}
    eligible: dict[str, list[Unit]] = {name: [] for name in idle}
    load = dict.fromkeys(nodes, 0.0)
    for config in state.configs.values():
        for unit in next_units(config, plan):
            takers = _takers(state, config, unit, nodes)
            for name in takers:
                load[name] += seconds[config.id]
                if name in eligible and config.id not in busy:
                    eligible[name].append(unit)
        _add_later_epochs(load, state, config, plan, seconds[config.id])
    return Instance(
        eligible=eligible,
        remaining={c.id: units_left(c, plan) * seconds[c.id] for c in state.configs.values()},
        load=load,
        seconds=lambda unit, _node: seconds[unit.config],
        seed=(plan.seed, state.revision),
    )


def _add_later_epochs(
    load: dict[str, float], state: State, config: Config, plan: Plan, seconds: float
) -> None:
    later = plan.epochs - config.epoch - 1 if config.status is Status.LIVE else 0
    for home in state.homes.values():
        if home in load and later > 0:
            load[home] += later * seconds


def _takers(state: State, config: Config, unit: Unit, nodes: dict[str, Node]) -> list[str]:
    """The nodes that may do the unit: the partition's home, or any for an evaluation, but after a
    failure one where it has not failed, as long as there is one."""
    failed = {f.node for f in config.failures if f.unit == unit}
    fresh = [name for name in nodes if name not in failed]
    home = state.homes.get(unit.partition)
    if unit.phase is Phase.TRAIN and home in nodes and (home not in failed or not fresh):
        return [home]
    return fresh or list(nodes)
