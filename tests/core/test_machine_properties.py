"""Every order of joins, losses, elections, late and doubled commits keeps every invariant."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cerebro_elastic.core.ports import Instance
from cerebro_elastic.core.values import Plan, Unit
from cerebro_elastic.testing.world import World

NAMES = ["a", "b", "c"]
names = st.sampled_from(NAMES)
which = st.integers(0, 5)


class FirstFit:
    """The simplest policy."""

    def choose(self, instance: Instance) -> list[tuple[str, Unit]]:
        taken: set[str] = set()
        chosen = []
        for node, units in instance.eligible.items():
            unit = next((u for u in units if u.config not in taken), None)
            if unit is not None:
                taken.add(unit.config)
                chosen.append((node, unit))
        return chosen


class RunUnderFaults(RuleBasedStateMachine):
    @initialize(
        partitions=st.integers(1, 3),
        evaluations=st.integers(0, 2),
        configs=st.integers(1, 3),
        min_nodes=st.integers(1, 2),
    )
    def open(self, partitions: int, evaluations: int, configs: int, min_nodes: int) -> None:
        plan = Plan("r", partitions, 2, evaluations, min_nodes=min_nodes, max_nodes=2, tries=2)
        self.world = World(plan, configs, FirstFit())
        self.world.elect()
        self.world.join("a")

    @rule(steps=st.integers(1, 8), which=st.sampled_from([-1, -1, -1, 0, 1]))
    def control(self, steps: int, which: int) -> None:
        for _ in range(steps):
            self.world.control(which)

    @rule()
    def elect(self) -> None:
        self.world.elect()

    @rule(name=names)
    def join(self, name: str) -> None:
        self.world.join(name)

    @rule(name=names)
    def lose(self, name: str) -> None:
        self.world.lose(name)

    @rule(name=names)
    def start(self, name: str) -> None:
        self.world.start(name)

    @rule(name=names, steps=st.integers(1, 12))
    def work(self, name: str, steps: int) -> None:
        """A quiet stretch, so that examples get far."""
        for _ in range(steps):
            self.world.control()
            self.world.start(name)
            self.world.commit(-1)

    @rule(which=which, keep=st.booleans())
    def commit(self, which: int, keep: bool) -> None:
        self.world.commit(which, keep=keep)

    @rule(which=which)
    def fail(self, which: int) -> None:
        self.world.fail(which)

    @rule(seconds=st.sampled_from([1.0, 11.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.world.clock.sleep(seconds)

    @invariant()
    def invariants_hold(self) -> None:
        if hasattr(self, "world"):
            assert self.world.check() == []
            self.world.check_fold()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            assert self.world.finish(["a", "b"], 400), self.world.ledger.state()
            assert self.world.check() == []


TestRunUnderFaults = RunUnderFaults.TestCase
TestRunUnderFaults.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking a whole run takes minutes
)
