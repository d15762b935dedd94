"""Each clause of the invariants is shown to catch a mutation of the product, seeded here on purpose: the
mutated run breaks it within a few hundred short walks, the true one never does."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

import pytest

from cerebro_elastic.controller import follower
from cerebro_elastic.core.decisions import assignment, decide, gangs, moment, next_steps, placements
from cerebro_elastic.core.decisions.moment import Moment
from cerebro_elastic.core.history import costs, lineage, run_events, unit_events
from cerebro_elastic.core.history.keys import Keys
from cerebro_elastic.core.history.rows import Writer
from cerebro_elastic.core.invariants import Violation
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Config, Parent
from cerebro_elastic.core.model.events import Event, UnitWithdrawn
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import CheckpointRef, Phase, Strategy
from cerebro_elastic.store.ledger import operators, record, transactions, worker
from cerebro_elastic.store.ledger.record import Record
from support import hashing, world
from support.hashing import Worker
from support.walks import STEPS, FirstFit, Steps, walk
from support.world import RestlessSearch, World

Patch = pytest.MonkeyPatch
PLAN = Plan("r", 2, 2, min_nodes=1, max_nodes=2, tries=2)
GANG = Strategy("ddp", 2, 2)


SAVING: Steps = {**STEPS, "trained": (12, lambda world, rng, _: world.trained(rng.randrange(4)))}
TRYING: Steps = {**STEPS, "refuse": (6, lambda world, rng, _: world.refuse(rng.randrange(4)))}


def broken(world: World, rng: random.Random, steps: int, among: Steps = STEPS) -> list[Violation]:
    """What a random walk over all faults breaks."""
    walk(world, rng, steps, among)
    return world.check()


def walks(policy: FirstFit) -> Iterator[list[Violation]]:
    for seed in range(300):
        yield broken(World(PLAN, 2, policy), random.Random(seed), 80)


def searching_walks(policy: FirstFit) -> Iterator[list[Violation]]:
    """Configs stop, go on and have children, by the search and by hand."""
    for seed in range(60):
        world, rng = World(PLAN, 2, policy, search=RestlessSearch), random.Random(seed)
        yield [*broken(world, rng, 40), *ask(world, rng), *broken(world, rng, 20)]


def saving_walks(policy: FirstFit) -> Iterator[list[Violation]]:
    """Units are saved behind the next ones."""
    for seed in range(60):
        yield broken(World(PLAN, 3, policy, forgets=True), random.Random(seed), 80, SAVING)


def choosing_walks(policy: FirstFit) -> Iterator[list[Violation]]:
    """Configs that need a gang, and configs with several strategies."""
    for seed in range(60):
        strategies = (GANG,) if seed % 2 else (Strategy(), Strategy("ddp", 2), GANG)
        world = World(replace(PLAN, strategies=strategies), 2, policy)
        yield broken(world, random.Random(seed), 80, TRYING)


def ask(world: World, rng: random.Random) -> list[Violation]:
    """A person makes a request; the invariants that it breaks."""
    for request in (world.clone, world.stop, world.resume):
        request(rng.randrange(4))
    return world.check()


def permissive(patch: Patch) -> None:
    """A machine that allows every event, so that only the seeded mistake decides."""
    for module in (run_events, unit_events):
        patch.setattr(module, "require", lambda *_: None)


def visits_anything_again(patch: Patch) -> None:
    permissive(patch)

    patch.setattr(placements, "next_partitions", lambda _, plan: (Phase.TRAIN, tuple(range(plan.partitions))))


def leaves_what_is_begun(patch: Patch) -> None:
    permissive(patch)
    next_partitions = placements.next_partitions

    def others_first(config: Config, plan: Plan) -> tuple[Phase, tuple[int, ...]]:
        phase, partitions = next_partitions(replace(config, partial_unit=None), plan)
        return phase, partitions[::-1]

    patch.setattr(placements, "next_partitions", others_first)


def begins_again_what_is_begun(patch: Patch) -> None:
    permissive(patch)
    patch.setattr(assignment, "skipped", lambda _config: 0)


def drops_the_last_batch(patch: Patch) -> None:
    train = Worker.train

    def dropping(self: Worker, upto: int, seconds: float) -> Visit:
        visit = train(self, upto, seconds)
        return replace(visit, batches=visit.batches - bool(visit.skip))

    patch.setattr(Worker, "train", dropping)


def leaves_without_a_batch(patch: Patch) -> None:
    permissive(patch)
    split = World.split
    patch.setattr(World, "split", lambda self, which, _batches: split(self, which, 0))


def forgets_a_visit(patch: Patch) -> None:
    read = record.Record.read
    patch.setattr(record.Record, "read", lambda self: replace(it := read(self), visits=it.visits[:-1]))


def forgets_who_is_busy(patch: Patch) -> None:
    permissive(patch)
    context = assignment._context

    patch.setattr(
        assignment, "_context", lambda moment, idle, _busy, **how: context(moment, idle, set(), **how)
    )
    patch.setattr(placements, "_takers", lambda _homes, _partition, able, _failed: able)


def assigns_over_an_assignment(patch: Patch) -> None:
    permissive(patch)
    patch.setattr(decide, "withdrawals", lambda _state: iter(()))
    assignments = decide.assignments
    patch.setattr(
        decide,
        "assignments",
        lambda moment, policy: assignments(Moment(replace(moment.state, attempts={}), moment.plan), policy),
    )


def withdraws_at_will(patch: Patch) -> None:
    patch.setattr(
        decide,
        "withdrawals",
        lambda state: (UnitWithdrawn(0, a.node, a.token) for a in state.attempts.values()),
    )


def leaves_unasked(patch: Patch) -> None:
    patch.setattr(World, "drain", lambda self, name: self.asked.add(self.registered[name].registration))


def commits_unfenced(patch: Patch) -> None:
    permissive(patch)
    for module in (follower, world):
        patch.setattr(module, "fold", lambda state, event: replace(state, revision=event.revision))

    def unfenced(
        record: Record, by: Writer, seen: State, event: Event, *_: object, **__: object
    ) -> int | None:
        with patch.context() as inner:
            inner.setattr(transactions, "_unchanged", lambda *_: None)
            return transactions.write(record, by, seen, event, [])

    patch.setattr(worker, "write", unfenced)


def saves_two_at_once(patch: Patch) -> None:
    permissive(patch)
    absent = transactions.absent
    patch.setattr(transactions, "absent", lambda key: absent("/nothing" if "/saving/" in key else key))


def goes_on_before_it_is_saved(patch: Patch) -> None:
    permissive(patch)
    underway = State.underway
    patch.setattr(State, "underway", lambda self: [a for a in underway(self) if not a.trained])


def trains_unfenced(patch: Patch) -> None:
    permissive(patch)
    patch.setattr(worker, "write", lambda *args, **_: transactions.write(*args))
    patch.setattr(decide, "withdrawals", lambda _state: iter(()))


def clones_another_state(patch: Patch) -> None:
    permissive(patch)
    edge_from = lineage.edge_from

    def elsewhere(parent: Config) -> Parent | None:
        edge = edge_from(parent)
        return edge and replace(edge, checkpoint=CheckpointRef("mem:other", "other", 1))

    patch.setattr(decide, "edge_from", elsewhere)


def clones_begin_at_the_beginning(patch: Patch) -> None:
    permissive(patch)
    born = lineage.born
    for module in (decide, operators):
        patch.setattr(module, "born", lambda config: replace(born(config), epoch=0, visited=()))


def commits_before_saving(patch: Patch) -> None:
    class Forgetful(set[str]):
        def add(self, _item: str) -> None: ...

    init = World.__init__

    def forget(self: World, *args: object, **kwargs: object) -> None:
        init(self, *args, **kwargs)  # type: ignore[arg-type]
        self.saved = Forgetful()

    patch.setattr(World, "__init__", forget)


def acknowledges_what_is_lost(patch: Patch) -> None:
    patch.setattr(worker.WorkerLedger, "commit", lambda *_: True)


def depends_on_the_moment(patch: Patch) -> None:
    digest, moments = hashing.digest, itertools.count()

    def impure(source, unit, hparams, batches):  # type: ignore[no-untyped-def]
        return digest(source, unit, {**hparams, "moment": next(moments)}, batches)

    patch.setattr(hashing, "digest", impure)


def never_gives_up(patch: Patch) -> None:
    patch.setattr(decide, "failures", lambda _moment: iter(()))


def insists_on_the_home(patch: Patch) -> None:
    patch.setattr(
        placements,
        "_takers",
        lambda homes, partition, able, _failed: [n for n in homes.get(partition, ()) if n in able],
    )


def trusts_every_node(patch: Patch) -> None:
    patch.setattr(decide, "quarantines", lambda _state: iter(()))


def makes_do_with_a_full_disk(patch: Patch) -> None:
    patch.setattr(moment, "_is_faulty", lambda _state, _node: False)


def forgets_the_companions(patch: Patch) -> None:
    permissive(patch)
    patch.setattr(gangs, "_companions", lambda *_: ())


def takes_a_companion_away(patch: Patch) -> None:
    permissive(patch)
    assignments = decide.assignments
    patch.setattr(
        decide,
        "assignments",
        lambda moment, policy: assignments(
            Moment(replace(moment.state, attempts={a.node: a for a in moment.state.underway()}), moment.plan),
            policy,
        ),
    )


def commits_without_a_companion(patch: Patch) -> None:
    permissive(patch)
    concerned = Keys.concerned

    def leads_only(keys: Keys, kind: str, state: State, event: Event) -> Mapping[str, str]:
        named = concerned(keys, kind, state, event)
        return dict(list(named.items())[:1]) if kind == "nodes" else named

    patch.setattr(Keys, "concerned", leads_only)
    patch.setattr(decide, "withdrawals", lambda _state: iter(()))


def tries_what_was_refused(patch: Patch) -> None:
    patch.setattr(next_steps, "refusals", lambda *_: {})


def ends_stays_of_nodes_that_are_there(patch: Patch) -> None:
    permissive(patch)
    patch.setattr(costs, "is_there", lambda _state, _stay: False)
    patch.setattr(run_events, "is_there", lambda _state, _stay: False)


def pays_behind_the_last_visit(patch: Patch) -> None:
    patch.setattr(costs, "_end", lambda state, stay: max(stay.joined, state.usage.until) + 1.0)


MUTATIONS: dict[tuple[str, str], Callable[[Patch], None]] = {
    ("completeness", "was visited twice"): visits_anything_again,
    ("completeness", "was begun"): leaves_what_is_begun,
    ("completeness", "continued after 0 batches, 1 were done"): begins_again_what_is_begun,
    ("completeness", "batches in parts"): drops_the_last_batch,
    ("completeness", "was left after 0 batches"): leaves_without_a_batch,
    ("completeness", "not where its visits have brought it"): forgets_a_visit,
    ("isolation", "its last visit led elsewhere"): forgets_a_visit,
    ("isolation", "was open on"): forgets_who_is_busy,
    ("exclusive access", "were open on it"): assigns_over_an_assignment,
    ("non-preemption", "without need"): withdraws_at_will,
    ("non-preemption", "nobody asked to leave"): leaves_unasked,
    ("isolation", "its parent was at"): clones_another_state,
    ("completeness", "says it is visit"): clones_begin_at_the_beginning,
    ("fencing", "had no open assignment"): commits_unfenced,
    ("fencing", "was gone at revision"): commits_unfenced,
    ("exclusive access", "while it saves attempt"): saves_two_at_once,
    ("isolation", "open on a"): goes_on_before_it_is_saved,
    ("fencing", "was trained, but is not open"): trains_unfenced,
    ("durability", "cannot be read whole"): commits_before_saving,
    ("durability", "is lost"): acknowledges_what_is_lost,
    ("purity", "done again"): depends_on_the_moment,
    ("boundedness", "was assigned after 2 failures"): never_gives_up,
    ("boundedness", "was in vain"): never_gives_up,
    ("boundedness", "was tried again on"): insists_on_the_home,
    ("boundedness", "failures in a row"): trusts_every_node,
    ("boundedness", "for its own fault"): makes_do_with_a_full_disk,
    ("exclusive access", "was given to"): forgets_the_companions,
    ("exclusive access", "got c0001"): takes_a_companion_away,
    ("fencing", "of b was gone at revision"): commits_without_a_companion,
    ("boundedness", "which was refused on"): tries_what_was_refused,
    ("paid time", "ended while its node was registered"): ends_stays_of_nodes_that_are_there,
    ("paid time", "and the last visit at"): pays_behind_the_last_visit,
}

OF_SAVES = (saves_two_at_once, goes_on_before_it_is_saved, trains_unfenced)
OF_SEARCHES = (clones_another_state, clones_begin_at_the_beginning)
OF_CHOICES = (
    forgets_the_companions,
    takes_a_companion_away,
    commits_without_a_companion,
    tries_what_was_refused,
)


def test_the_true_machine_breaks_none() -> None:
    for kind in (walks, searching_walks, choosing_walks, saving_walks):
        assert all(violations == [] for violations in islice(kind(FirstFit()), 25))


@pytest.mark.parametrize(("invariant", "story"), MUTATIONS)
def test_a_mutation_breaks(invariant: str, story: str, monkeypatch: Patch) -> None:
    mutate = MUTATIONS[invariant, story]
    mutate(monkeypatch)
    policy = FirstFit(greedy=mutate is forgets_who_is_busy)
    kinds = {searching_walks: OF_SEARCHES, choosing_walks: OF_CHOICES, saving_walks: OF_SAVES}
    tries = next((walks_ for walks_, mutations in kinds.items() if mutate in mutations), walks)
    violations_found = (v for violations in tries(policy) for v in violations)
    assert any(v.invariant == invariant and story in v.story for v in violations_found)
