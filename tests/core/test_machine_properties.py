"""Every order of joins, drains, losses, failures, elections, compactions, late and doubled commits keeps
every invariant, and splitting units changes no config's result."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.history.progress import skipped
from cerebro_elastic.core.model.attempts import FailureKind
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.units import CheckpointRef, Strategy
from support.hashing import BATCHES, digest
from support.walks import FirstFit
from support.world import FixedSearch, RestlessSearch, World

NAMES = ["a", "b", "c"]
names = st.sampled_from(NAMES)
which = st.integers(0, 5)
kinds = st.sampled_from(FailureKind)

DDP, FSDP, GANG = Strategy("ddp", 2), Strategy("fsdp", 2, options={"offload": True}), Strategy("ddp", 2, 2)
strategies = st.sampled_from([(Strategy(),), (Strategy(), GANG), (GANG,), (Strategy(), DDP, FSDP, GANG)])


class RunUnderFaults(RuleBasedStateMachine):
    @initialize(
        partitions=st.integers(1, 3),
        evaluations=st.integers(0, 2),
        configs=st.integers(1, 3),
        min_nodes=st.integers(1, 2),
        max_nodes=st.integers(2, 3),
        search=st.sampled_from([FixedSearch, RestlessSearch]),
        strategies=strategies,
        replicas=st.integers(1, 3),
        on_demand=st.booleans(),
        begun_per_node=st.integers(0, 2),
    )
    def open(
        self,
        partitions: int,
        evaluations: int,
        configs: int,
        min_nodes: int,
        max_nodes: int,
        search: type[FixedSearch],
        strategies: tuple[Strategy, ...],
        replicas: int,
        on_demand: bool,
        begun_per_node: int,
    ) -> None:
        plan = Plan(
            "r",
            partitions,
            3,
            evaluations,
            min_nodes=min_nodes,
            max_nodes=max_nodes,
            tries=2,
            strategies=strategies,
            replicas=replicas,
            on_demand=on_demand,
            prefers_made=True,
            begun_per_node=begun_per_node,
        )
        self.world = World(plan, configs, FirstFit(), search=search, forgets=True)
        self.world.elect()
        self.world.join("a")
        self.world.join("b", host="another")
        self.work(["a"], 4)

    # Progress, in small steps and in long ones, so that examples get far.

    @rule(steps=st.integers(1, 8), which=st.sampled_from([-1, -1, -1, 0, 1]))
    def control(self, steps: int, which: int) -> None:
        for _ in range(steps):
            self.world.control(which)

    @rule(order=st.lists(st.tuples(names, st.sampled_from(["c0000", "c0001"]), which, which), max_size=9))
    def order(self, order: list[tuple[str, str, int, int]]) -> None:
        self.world.order(tuple(order))

    @rule(name=names)
    def start(self, name: str) -> None:
        self.world.start(name)

    @rule(which=which, keep=st.booleans())
    def commit(self, which: int, keep: bool) -> None:
        self.world.commit(which, keep=keep)

    @rule(which=which)
    def trained(self, which: int) -> None:
        self.world.trained(which)

    @rule(name=names, ends=st.sampled_from(["commit", "fail", "lost", "goes on"]))
    def save_behind(self, name: str, ends: str) -> None:
        """A unit is saved while its node does the next; either may end first."""
        self._begin(name)
        self.world.trained(-1)
        self._begin(name)
        if ends == "commit":
            self.world.commit(-1)
        elif ends == "fail":
            self.world.fail(-1)
        elif ends == "lost":
            self.world.lose(name)

    @rule(at=st.lists(names, min_size=1, unique=True), steps=st.integers(1, 12))
    def work(self, at: list[str], steps: int) -> None:
        for _ in range(steps):
            self._begin(*at)
            self.world.commit(-1)

    @rule(name=names, steps=st.integers(1, 12), seconds=st.sampled_from([0.1, 1.0, 5.0]))
    def work_at_a_pace(self, name: str, steps: int, seconds: float) -> None:
        self.world.slow(name, seconds)
        self.work([name], steps)

    # Nodes come and go.

    @rule(
        name=names,
        hardware=st.sampled_from(["cpu", "cpu", "cpu", "gpu"]),
        host=st.sampled_from(["host", "another"]),
        starting=st.booleans(),
    )
    def join(self, name: str, hardware: str, host: str, starting: bool) -> None:
        self.world.join(name, hardware, host, starting=starting)

    @rule(name=names, cached=st.sets(st.integers(0, 2)))
    def ready(self, name: str, cached: set[int]) -> None:
        self.world.ready(name, sorted(cached))

    @rule(name=names)
    def lose(self, name: str) -> None:
        self.world.lose(name)

    @rule(name=names)
    def drain(self, name: str) -> None:
        self.world.drain(name)

    @rule(name=names, batches=st.integers(1, 2), back=st.booleans())
    def drain_in_a_unit(self, name: str, batches: int, back: bool) -> None:
        self._begin(name)
        self.world.drain(name)
        self.world.split(-1, batches)
        self.world.lose(name)
        if back:
            self.world.join(name)

    @rule(which=which, batches=st.integers(0, 2))
    def leave(self, which: int, batches: int) -> None:
        if batches:
            self.world.split(which, batches)
        else:
            self.world.give_up(which)

    # People.

    @rule(which=which, what=st.sampled_from(["stop", "resume", "clone"]))
    def ask(self, which: int, what: str) -> None:
        getattr(self.world, what)(which)

    @rule(epochs=st.integers(0, 2), which=which, events=st.integers(0, 3), forgets=st.booleans())
    def extend(self, epochs: int, which: int, events: int, forgets: bool) -> None:
        """The run goes on to its end, if that is near, and is extended; its nodes come back, and some that do
        not yet know get nothing. The leader may change at once, or may have read nothing of the extension."""
        if self.world.finish(["a", "b"], 30):
            self.world.extend(epochs, which)
            if forgets:
                self.world.forget(events)
            elif events % 2:
                self.world.elect()
            self.world.join("a")

    # Failures.

    @rule(which=which, kind=kinds)
    def fail(self, which: int, kind: FailureKind) -> None:
        self.world.fail(which, kind)

    @rule(name=names, kind=kinds, times=st.integers(1, 4))
    def fail_in_a_row(self, name: str, kind: FailureKind, times: int) -> None:
        for _ in range(times):
            self._begin(name)
            self.world.fail(-1, kind)

    @rule(name=names, kind=kinds, which=which)
    def fail_for_good_and_be_tried_again(self, name: str, kind: FailureKind, which: int) -> None:
        self.fail_in_a_row(name, kind, 4)
        self._begin()
        configs = self.world.ledger.state().configs.values()
        failed = [number for number, config in enumerate(configs) if config.status is Status.FAILED]
        if failed:
            self.world.resume(failed[which % len(failed)])

    @rule(name=names, refuses=st.booleans())
    def try_out(self, name: str, refuses: bool) -> None:
        self._begin(name)
        if refuses:
            self.world.refuse(-1)
        else:
            self.world.commit(-1)

    @rule(events=st.integers(0, 5), store=st.sampled_from(["stays", "forgets", "is lost"]))
    def lead_anew(self, events: int, store: str) -> None:
        if store == "forgets":
            self.world.forget(events)
        elif store == "is lost":
            self.world.lose_etcd(events)
        else:
            self.world.elect()

    @rule(seconds=st.sampled_from([1.0, 11.0]))
    def all_are_cut_off(self, seconds: float) -> None:
        self.world.clock.sleep(seconds)

    @rule(seconds=st.sampled_from([60.0, 600.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    def _begin(self, *names: str) -> None:
        """The controller has seen everything, and these nodes have seen their assignments."""
        for _ in range(6):
            self.world.control()
        for name in names:
            self.world.start(name)

    @invariant()
    def invariants_hold(self) -> None:
        if hasattr(self, "world"):
            assert self.world.check() == []
            self.world.check_fold()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            assert self.world.finish(["a", "b"], 400), self.world.ledger.state()
            assert self.world.check() == []
            self.heads_are_those_of_whole_units()

    def heads_are_those_of_whole_units(self) -> None:
        ledger, heads = self.world.ledger, dict[str, CheckpointRef]()
        configs = ledger.state().configs
        for visit in ledger.visits():
            if visit.whole:
                config = configs[visit.unit.config]
                first = born(config)
                done = skipped(first) if config.id not in heads else 0
                source = heads.get(config.id, first.head)
                result = digest(source, visit.unit, config.hparams, range(done, BATCHES))
                heads[config.id] = CheckpointRef(f"mem:{result}", result, 1)
        for config in configs.values():
            if config.partial_unit is None:
                assert config.head == heads.get(config.id, born(config).head)


TestRunUnderFaults = RunUnderFaults.TestCase
TestRunUnderFaults.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking a whole run takes minutes
)
