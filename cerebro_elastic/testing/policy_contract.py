"""What every scheduling policy promises, for hypothesis to try on any moment::

@given(instances())
def test_contract(instance: Instance) -> None:
    check_policy(MyPolicy, instance)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import inf

from hypothesis import strategies as st

from cerebro_elastic.core.model.interfaces import Planner, Policy, RemainingWork, SchedulingContext
from cerebro_elastic.core.model.units import Unit

_NODES = ("n0", "n1", "n2", "n3")
_CONFIGS = ("c0", "c1", "c2", "c3", "c4")
_SECONDS = st.floats(0, 1e6)
_ORDERED = st.tuples(st.sampled_from(_NODES), st.sampled_from(_CONFIGS), st.integers(0, 2), st.integers(0, 3))


@st.composite
def _remainders(draw: st.DrawFn, idle: Collection[str], speed_factors: Mapping[str, float]) -> RemainingWork:
    """What is left: not always what fits what is eligible, as after failures."""
    live = draw(st.lists(st.sampled_from(_CONFIGS), unique=True))
    usual = {config: draw(_SECONDS) for config in live}
    return RemainingWork(
        nodes={node: 0.0 if node in idle else draw(_SECONDS) for node in _NODES},
        configs={config: draw(st.just(0.0) | _SECONDS) for config in live},
        seconds={config: [usual[config] * speed_factors[node] for node in _NODES] for config in live},
        undone={config: draw(st.sets(st.integers(0, 3))) for config in live},
        later={config: draw(st.integers(0, 2)) for config in live},
        holders=[draw(st.sets(st.sampled_from(_NODES), min_size=1)) for _ in range(4)],
        fetch=draw(st.just(inf) | _SECONDS),
        cached={node: draw(st.sets(st.integers(0, 3))) for node in _NODES},
        order=tuple(draw(st.lists(_ORDERED, unique=True))),
    )


@st.composite
def scheduling_contexts(draw: st.DrawFn) -> SchedulingContext:
    """Any moment: any idle nodes, each with any eligible units, perhaps more that it would fetch for, with or
    without what is left."""
    idle = draw(st.lists(st.sampled_from(_NODES), unique=True))
    speed_factors = {node: draw(st.floats(0.1, 10)) for node in _NODES}
    units = st.builds(Unit, st.sampled_from(_CONFIGS), st.just(0), st.integers(0, 3))
    left = draw(st.none() | _remainders(idle, speed_factors))
    far = {node: draw(st.sets(units)) for node in idle} if draw(st.booleans()) else None

    def elsewhere(node: str, config: str, partition: int) -> Unit | None:
        unit = Unit(config, 0, partition)
        return unit if far is not None and unit in far.get(node, ()) else None

    return SchedulingContext(
        eligible={node: draw(st.lists(units, unique=True, max_size=8)) for node in idle},
        remaining={config: draw(_SECONDS) for config in _CONFIGS},
        load={node: draw(_SECONDS) for node in _NODES},
        seconds=lambda _unit, node: speed_factors[node],
        seed=(draw(st.integers(0, 3)), draw(st.integers(0, 99))),
        remaining_work=lambda: left,
        elsewhere=None if far is None else elsewhere,
    )


def check_policy(make: Callable[[], Policy], instance: SchedulingContext) -> None:
    """Every promise of ``Policy.choose``, on one instance."""
    policy = make()
    chosen = list(policy.choose(instance))
    nodes = [node for node, _ in chosen]
    configs = [unit.config for _, unit in chosen]
    assert all(_allowed(instance, node, unit) for node, unit in chosen), "an idle node, one of its units"
    assert len(set(nodes)) == len(nodes), "a node gets at most one unit"
    assert len(set(configs)) == len(configs), "no config runs twice at once"
    for node in set(instance.eligible) - set(nodes):
        left = [unit for unit in instance.eligible[node] if unit.config not in configs]
        # Only what goes on will change something.
        waits = isinstance(policy, Planner) and (chosen or _goes_on(instance))
        assert not left or waits, f"{node} idles while it could do {left}"
    assert list(policy.choose(instance)) == chosen, "the same moment, the same answer"
    assert list(make().choose(instance)) == chosen, "the same moment, the same answer, whoever decides"


def _goes_on(instance: SchedulingContext) -> bool:
    left = instance.remaining_work()
    return left is not None and any(left.configs.values())


def _allowed(instance: SchedulingContext, node: str, unit: Unit) -> bool:
    """Whether the unit is eligible on the idle node, or what it may do besides."""
    if unit in instance.eligible[node] or instance.elsewhere is None:
        return unit in instance.eligible[node]
    return instance.elsewhere(node, unit.config, unit.partition) == unit
