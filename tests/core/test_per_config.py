"""Values remembered from one decision to the next equal recomputed ones."""

from __future__ import annotations

from copy import deepcopy
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerebro_elastic.core.decisions.decide import decide
from cerebro_elastic.core.decisions.per_config import PerConfig
from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan, Progress
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.scheduling.look_ahead import Auto
from cerebro_elastic.simulation import SyntheticMetrics, Times, simulate
from support.fault_sentences import read_faults
from support.world import FixedSearch

NAMES = st.lists(st.sampled_from("abcdefg"), unique=True)


@given(st.lists(st.tuples(NAMES, st.dictionaries(st.sampled_from("abcdefg"), st.integers(0, 2)))))
def test_remembered_values_are_those_computed_anew(moments: list[tuple[list[str], dict[str, int]]]) -> None:
    """Configs come, go, change places and change, and so does what is their own."""
    configs = {(name, x): Config(name, {"x": x}) for name in "abcdefg" for x in range(3)}
    remembering: PerConfig[object] = PerConfig(lambda _, config, own: (config.id, config.hparams, own))
    for number, (names, own) in enumerate(moments):
        now = {name: configs[name, (number + ord(name)) // 2 % 3] for name in names}
        expected = {name: (name, config.hparams, own.get(name)) for name, config in now.items()}
        assert list(remembering(None, now, own).items()) == list(expected.items())


FAULTS = """
kill n1 at 13 for 7
join n4 at 22
slow n2 at 10 by 4
drain n0 at 31
"""


@pytest.mark.parametrize(
    "plan",
    [
        Plan("r", partitions=4, epochs=3, min_nodes=3, max_nodes=4, replicas=2, on_demand=True),
        Plan("r", partitions=3, epochs=2, evaluations=2, min_nodes=3, max_nodes=4, progress=Progress.EVEN),
        Plan(
            "r",
            partitions=3,
            epochs=2,
            min_nodes=3,
            max_nodes=4,
            strategies=(Strategy(), Strategy("ddp", ranks=2, nodes=2)),
        ),
    ],
    ids=["replicas", "evaluations", "gangs"],
)
def test_decisions_are_those_of_a_controller_that_takes_over(plan: Plan) -> None:
    """One that takes over has no object of the states before, so it remembers nothing."""
    nodes = [Node(f"n{k}", f"h{k}") for k in range(3)]
    search = FixedSearch([{"x": i} for i in range(7)])
    seconds = Times(configs={f"c{i:04d}": 1.0 + i % 3 for i in range(7)})
    metrics = SyntheticMetrics({}, plan.epochs * plan.partitions)
    faults = read_faults(FAULTS)
    run = simulate(plan, nodes, Auto(), search, seconds, metrics, spread=0.2, faults=faults)
    states = list(accumulate(run.events, fold, initial=State()))
    remembering = [decide(state, Auto(), search) for state in states]
    assert remembering == [decide(deepcopy(state), Auto(), search) for state in states]
