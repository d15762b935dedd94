"""The contract of scheduling policies. Hypothesis tries a policy on random moments of runs.

Example::

    from hypothesis import given

    from cerebro_elastic.extending.deciding import SchedulingContext
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
    """Any remaining work. It need not match the eligible units: after failures it may not either."""
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
    """A hypothesis strategy for any moment of a run.

    It draws idle nodes and the eligible units of each. Some moments have remaining work, and some have units
    whose partition a node would fetch first.
    """
    idle = draw(st.lists(st.sampled_from(_NODES), unique=True))
    speed_factors = {node: draw(st.floats(0.1, 10)) for node in _NODES}
    units = st.builds(Unit, st.sampled_from(_CONFIGS), st.just(0), st.integers(0, 3))
    loads = {node: draw(_SECONDS) for node in _NODES}
    work = draw(st.none() | _remaining_work(idle, speed_factors))
    far = {node: draw(st.sets(units)) for node in idle} if draw(st.booleans()) else None

    def elsewhere(node: str, config: str, partition: int) -> Unit | None:
        unit = Unit(config, 0, partition)
        return unit if far is not None and unit in far.get(node, ()) else None

    return SchedulingContext(
        eligible={node: draw(st.lists(units, unique=True, max_size=8)) for node in idle},
        remaining={config: draw(_SECONDS) for config in _CONFIGS},
        load=loads.__getitem__,
        seconds=lambda _unit, node: speed_factors[node],
        seed=(draw(st.integers(0, 3)), draw(st.integers(0, 99))),
        remaining_work=lambda: work,
        elsewhere=None if far is None else elsewhere,
    )


def check_policy(make: Callable[[], Policy], context: SchedulingContext) -> None:
    """Check that a policy keeps the promises of ``Policy.choose`` at one moment.

    - It gives each idle node at most one unit, one that the node may train.
    - It gives no two nodes units of one config.
    - It leaves no node idle that could train. A ``Planner`` may, while other units run.
    - It chooses the same at the same moment, also as another instance.

    Args:
        make: Makes a new policy, usually its class.
        context: The moment to choose at.

    Raises:
        AssertionError: The policy breaks a promise; the message names it.
    """
    policy = make()
    chosen = list(policy.choose(context))
    nodes = [node for node, _ in chosen]
    configs = [unit.config for _, unit in chosen]
    assert all(_allowed(context, node, unit) for node, unit in chosen), "an idle node, one of its units"
    assert len(set(nodes)) == len(nodes), "a node gets at most one unit"
    assert len(set(configs)) == len(configs), "no config runs twice at once"
    for node in set(context.eligible) - set(nodes):
        trainable = [unit for unit in context.eligible[node] if unit.config not in configs]
        # A planner may have a node wait, but only while a unit runs or begins.
        waits = isinstance(policy, Planner) and (chosen or _goes_on(context))
        assert not trainable or waits, f"{node} idles while it could do {trainable}"
    assert list(policy.choose(context)) == chosen, "the same moment, the same answer"
    assert list(make().choose(context)) == chosen, "the same moment, the same answer by every controller"


def _goes_on(context: SchedulingContext) -> bool:
    """Whether a unit is running."""
    work = context.remaining_work()
    return work is not None and any(work.configs.values())


def _allowed(context: SchedulingContext, node: str, unit: Unit) -> bool:
    """Whether the idle node may train the unit: it is eligible there, or its partition can be fetched."""
    if unit in context.eligible[node] or context.elsewhere is None:
        return unit in context.eligible[node]
    return context.elsewhere(node, unit.config, unit.partition) == unit
