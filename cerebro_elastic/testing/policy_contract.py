"""The contract test of scheduling policies: hypothesis tries a policy on any moment. Example::

from hypothesis import given

from cerebro_elastic.core.model.interfaces import SchedulingContext
from cerebro_elastic.testing.policy_contract import check_policy, scheduling_contexts

@given(scheduling_contexts())
def test_my_policy(context: SchedulingContext) -> None:
    check_policy(MyPolicy, context)
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
def _remaining_work(
    draw: st.DrawFn, idle: Collection[str], speed_factors: Mapping[str, float]
) -> RemainingWork:
    """The work that is left. It need not fit the eligible units, as it may not after failures."""
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
    """Any moment: any idle nodes, each with any eligible units, and perhaps others that it would fetch for,
    with or without remaining work."""
    idle = draw(st.lists(st.sampled_from(_NODES), unique=True))
    speed_factors = {node: draw(st.floats(0.1, 10)) for node in _NODES}
    units = st.builds(Unit, st.sampled_from(_CONFIGS), st.just(0), st.integers(0, 3))
    left = draw(st.none() | _remaining_work(idle, speed_factors))
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


def check_policy(make: Callable[[], Policy], context: SchedulingContext) -> None:
    """Assert every promise of ``Policy.choose``.

    Args:
        make: Makes the policy, as its class does.
        context: The moment to choose at.
    """
    policy = make()
    chosen = list(policy.choose(context))
    nodes = [node for node, _ in chosen]
    configs = [unit.config for _, unit in chosen]
    assert all(_allowed(context, node, unit) for node, unit in chosen), "an idle node, one of its units"
    assert len(set(nodes)) == len(nodes), "a node gets at most one unit"
    assert len(set(configs)) == len(configs), "no config runs twice at once"
    for node in set(context.eligible) - set(nodes):
        left = [unit for unit in context.eligible[node] if unit.config not in configs]
        # A planner may have a node wait, but only while a unit runs or begins.
        waits = isinstance(policy, Planner) and (chosen or _goes_on(context))
        assert not left or waits, f"{node} idles while it could do {left}"
    assert list(policy.choose(context)) == chosen, "the same moment, the same answer"
    assert list(make().choose(context)) == chosen, "the same moment, the same answer by every controller"


def _goes_on(context: SchedulingContext) -> bool:
    left = context.remaining_work()
    return left is not None and any(left.configs.values())


def _allowed(context: SchedulingContext, node: str, unit: Unit) -> bool:
    """Whether the idle node may take the unit: it is eligible there, or found ``elsewhere``."""
    if unit in context.eligible[node] or context.elsewhere is None:
        return unit in context.eligible[node]
    return context.elsewhere(node, unit.config, unit.partition) == unit
