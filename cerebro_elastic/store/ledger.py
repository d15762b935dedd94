"""The ledger: every change of a run as one guarded transaction. The only file that writes its keys.

The controller's verbs are fenced by its leadership (the revision at which it became leader), the
worker's by assignment, config revision and registration (design, section 5). A verb whose guard
does not hold changes nothing and returns ``None`` or ``False``: the world has moved on, and the
watch will tell how. A transaction whose answer was lost (``TxnUnknown``) is sent again only where its
guard lets it through once, whatever became of the first; the controller's verbs raise it, and the
controller waits for what its watch shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TypeAlias

from cerebro_elastic.core.codec import decode, encode
from cerebro_elastic.core.events import (
    ConfigCreated,
    ConfigEnded,
    ConfigResumed,
    Event,
    LeaderChanged,
    NodeDraining,
    NodeJoined,
    NodeReady,
    NodeSetAside,
    Placed,
    RunEnded,
    RunOpened,
    StateRead,
    TrialDone,
    UnitAssigned,
    UnitCommitted,
    UnitFailed,
    UnitTrained,
    UnitWithdrawn,
)
from cerebro_elastic.core.holdings import when_ready
from cerebro_elastic.core.lineage import born, changed, child, fresh_names, may_end
from cerebro_elastic.core.progress import advance
from cerebro_elastic.core.state import State
from cerebro_elastic.core.values import (
    BY_HAND,
    Attempt,
    Config,
    Failure,
    HParams,
    Node,
    Parent,
    Plan,
    Spec,
    Status,
    TrialResult,
    Visit,
)
from cerebro_elastic.errors import NameTaken, RunError, TxnUnknown
from cerebro_elastic.store.base import (
    Compare,
    Delete,
    KeyValue,
    Op,
    Put,
    Store,
    Watch,
    absent,
    at_revision,
    created_at,
)
from cerebro_elastic.store.history import (
    attempt_of,
    config_of,
    events_of,
    node_of,
    saving_of,
    state_of,
    visits_in,
)
from cerebro_elastic.store.keys import Keys
from cerebro_elastic.words import counted

Change: TypeAlias = tuple[Sequence[Compare], Sequence[Op], Event]
"""A transaction: its guard, what it does, the event that it is."""


class Ledger:
    """One run's record in a store."""

    def __init__(self, store: Store, run: str) -> None:
        self.store = store
        self.keys = Keys(run)

    # What anybody may read.

    def spec(self) -> Spec | None:
        """The run's spec, ``None`` if there is no such run."""
        item = self.store.get(self.keys.spec)
        return decode(item.value, Spec) if item else None

    def state(self) -> State:
        """The run's state now."""
        return state_of(self.store.range(self.keys.prefix), self.keys)

    def read(self) -> StateRead:
        """The run's state now, with the visits that led to it."""
        snapshot = self.store.range(self.keys.prefix)
        visits = visits_in(i for i in snapshot.items if self.keys.split(i.key)[0] == "visits")
        return StateRead(snapshot.revision, state_of(snapshot, self.keys), tuple(visits))

    def now(self) -> int:
        """The revision of the store, which other runs may share."""
        return self.store.range(self.keys.event).revision

    def revision(self) -> int:
        """The revision of the last transaction; 0 if there was none."""
        item = self.store.get(self.keys.event)
        return item.mod_revision if item else 0

    def ended(self) -> bool:
        """Whether the run has ended."""
        return self.store.get(self.keys.outcome) is not None

    def leader(self) -> str | None:
        """The name of who leads the run."""
        item = self.store.get(self.keys.leader)
        return item.value.decode() if item else None

    def logged(self) -> dict[str, int]:
        """How many visits of each config the loggers have that the leader writes to."""
        prefix = self.keys.logged("")
        return {item.key.removeprefix(prefix): int(item.value) for item in self.store.range(prefix).items}

    def config(self, config: str) -> Config | None:
        item = self.store.get(self.keys.config(config))
        return config_of(item) if item else None

    def node(self, name: str) -> Node | None:
        item = self.store.get(self.keys.node(name))
        return node_of(item) if item else None

    def assignment(self, node: str) -> Attempt | None:
        item = self.store.get(self.keys.assign(node))
        return attempt_of(item) if item else None

    def saving(self, node: str) -> Attempt | None:
        """What the node has trained and saves behind its next unit."""
        item = self.store.get(self.keys.saving(node))
        return saving_of(item) if item else None

    def children(self, config: str) -> dict[str, Parent]:
        """The configs that began with a checkpoint that ``config`` wrote, and with which."""
        prefix = self.keys.children(config)
        items = self.store.range(prefix).items
        return {item.key.removeprefix(prefix): decode(item.value, Parent) for item in items}

    def visits(self) -> list[Visit]:
        """All committed visits, in the order of their commits."""
        return visits_in(self.store.range(self.keys.prefix + "visits/").items)

    def visits_of(self, config: str, epoch: int | None = None) -> list[Visit]:
        """A config's visits, in order; those of one ``epoch``, if it is given."""
        items = self.store.range(self.keys.visits(config, epoch)).items
        return [decode(item.value, Visit) for item in items]

    @contextmanager
    def events(self, start: int) -> Iterator[EventStream]:
        """The history from revision ``start`` on."""
        with self.store.watch(self.keys.prefix, start) as watch:
            yield EventStream(watch, self.keys)

    def history(self) -> list[Event]:
        """All that has happened up to now. Raises ``Compacted`` if the store has forgotten its beginning."""
        opened, last = self.store.get(self.keys.spec), self.revision()
        history: list[Event] = []
        if opened is not None:
            with self.events(opened.create_revision) as stream:
                while not history or history[-1].revision < last:
                    history += stream.next()
        return history

    # Who starts a run, and nodes.

    def open(self, spec: Spec) -> bool:
        """Write the spec, once; ``False`` if the run exists (perhaps by a try of ours without an answer)."""
        key, event = self.keys.spec, RunOpened(0, spec.plan)
        while True:
            try:
                return self._do([absent(key)], [Put(key, _bytes(spec))], event) is not None
            except TxnUnknown:
                continue

    def renew(self, spec: Spec) -> None:
        """Write the spec of a run that goes on with changed code: no event, for the plan is as it was."""
        key, value = self.keys.spec, _bytes(spec)
        while (known := self.store.get(key)) is not None and known.value != value:
            with suppress(TxnUnknown):
                self.store.txn([at_revision(key, known.mod_revision)], [Put(key, value)])

    def register(self, node: Node, lease: int) -> Node:
        """Register a node under ``lease``. An older registration of its own (of the same boot) is ended
        first, so that what was begun under it can no longer commit; another node's of the same name stands,
        and raises ``NameTaken``."""
        key, value = self.keys.node(node.name), _bytes(node)
        while True:
            old = self.store.get(key)
            if old is not None and old.lease == lease and _registers(old, node):
                return node_of(old)
            if old is not None and (holder := node_of(old)).boot != node.boot:
                raise NameTaken(
                    f"a node {node.name!r} of run {self.keys.run!r} is alive on {holder.host}: give this one "
                    "another name (--rdzv-conf=node=NAME), or end that one first"
                )
            try:
                if old is not None:
                    self.store.txn([at_revision(key, old.mod_revision)], [Delete(key)])
                self._do([absent(key)], [Put(key, value, lease)], NodeJoined(0, node))
            except TxnUnknown:
                continue

    def ready(self, name: str, boot: str, cached: Sequence[int] = ()) -> None:
        """The ranks of the node are ready, and its cache has these training partitions. Nothing happens if it
        is not registered with this ``boot``."""
        key = self.keys.node(name)
        while (item := self.store.get(key)) is not None:
            node = decode(item.value, Node)
            if node.boot != boot or not node.starting:
                return
            ready = Put(key, _bytes(when_ready(node, cached)), item.lease)
            with suppress(TxnUnknown):
                self._do([at_revision(key, item.mod_revision)], [ready], NodeReady(0, name, tuple(cached)))

    def drain(self, name: str, grace: float, boot: str | None = None) -> bool:
        """Ask a node to leave within ``grace`` seconds; ``False`` if it is not registered, or not with this
        ``boot``. Nothing changes for one that was asked before."""
        key = self.keys.node(name)
        while True:
            item = self.store.get(key)
            if item is None:
                return False
            node = decode(item.value, Node)
            if boot not in (None, node.boot):
                return False
            if node.drain is not None:
                return True
            asked = Put(key, _bytes(replace(node, drain=grace)), item.lease)
            with suppress(TxnUnknown):
                self._do([at_revision(key, item.mod_revision)], [asked], NodeDraining(0, name, grace))

    def forgive(self) -> None:
        """Let all nodes that are set aside work again now: somebody has mended what was wrong."""
        for item in self.store.range(self.keys.aside("")).items:
            self.store.revoke(item.lease)

    # The controller.

    def lead(self, controller: str, lease: int) -> int | None:
        """Become leader under ``lease``: the fence for the verbs below; ``None`` if another leads."""
        key, value = self.keys.leader, controller.encode()
        with suppress(TxnUnknown):
            self._do([absent(key)], [Put(key, value, lease)], LeaderChanged(0, controller))
        # Also when refused: by an earlier try of ours, of whose success we never heard.
        item = self.store.get(key)
        return item.create_revision if item and (item.value, item.lease) == (value, lease) else None

    def create_config(self, config: Config, leader: int, parent: int = 0) -> int | None:
        """Add a config; one with a parent in the run, as long as that is at revision ``parent``."""
        return self._lead(leader, *self._created(config, parent))

    def end_config(self, config: Config, status: Status, reason: str, leader: int) -> int | None:
        return self._lead(leader, *self._changed(config, ConfigEnded(0, config.id, status, reason)))

    def resume_config(self, config: Config, reason: str, leader: int) -> int | None:
        return self._lead(leader, *self._changed(config, ConfigResumed(0, config.id, reason)))

    def place(self, homes: Mapping[int, tuple[str, ...]], leader: int) -> int | None:
        event = Placed(0, homes)
        return self._lead(leader, [], [Put(self.keys.homes, _bytes(event))], event)

    def assign(self, attempt: Attempt, leader: int) -> int | None:
        """Give the attempt to its nodes; returns its token."""
        keys, value = self.keys, _bytes(attempt)
        idle = [absent(keys.assign(name)) for name in attempt.nodes]
        puts = [Put(keys.assign(name), value) for name in attempt.nodes]
        return self._lead(leader, [*idle, *self._as_begun(attempt)], puts, UnitAssigned(0, attempt))

    def withdraw(self, attempt: Attempt, leader: int) -> int | None:
        event = UnitWithdrawn(0, attempt.node, attempt.token)
        return self._lead(leader, self._held(attempt), self._cleared(attempt), event)

    def set_aside(self, node: str, why: str, failure: int, seconds: float, leader: int) -> int | None:
        """Give the idle node no units until ``seconds`` are over, which the store counts, not we. Each
        failure is answered once."""
        event, keys = NodeSetAside(0, node, why, failure, seconds), self.keys
        judged = self.store.get(keys.judged(node))
        if judged is not None and decode(judged.value, NodeSetAside).failure >= failure:
            return None
        guard = [
            absent(keys.aside(node)),
            absent(keys.assign(node)),
            at_revision(keys.judged(node), judged.mod_revision if judged else 0),
        ]
        lease = self.store.grant(seconds)
        puts = [Put(keys.aside(node), _bytes(event), lease), Put(keys.judged(node), _bytes(event))]
        return self._lead(leader, guard, puts, event)

    def end_run(self, outcome: str, leader: int, asked: int = 0) -> int | None:
        """End the run, unless a person has made a config live since revision ``asked``."""
        key, event = self.keys.outcome, RunEnded(0, outcome)
        guard = [absent(key), at_revision(self.keys.control, asked)]
        return self._lead(leader, guard, [Put(key, _bytes(event))], event)

    def log(self, config: str, visits: int, controller: str) -> None:
        """Note that the loggers have so many visits of the config, unless another than ``controller`` leads.
        It is no event, for it says nothing about the run."""
        leader = self.store.get(self.keys.leader)
        if leader is None or leader.value == controller.encode():
            guard = created_at(self.keys.leader, leader.create_revision if leader else 0)
            with suppress(TxnUnknown):  # the config's next visit is noted, too
                self.store.txn([guard], [Put(self.keys.logged(config), str(visits).encode())])

    def _created(self, config: Config, parent: int) -> Change:
        key, edge = self.keys.config(config.id), config.parent
        guard: list[Compare] = [absent(key)]
        ops: list[Op] = [Put(key, _bytes(config))]
        if edge is not None and edge.config:
            guard.append(at_revision(self.keys.config(edge.config), parent))
            ops.append(Put(self.keys.children(edge.owner) + config.id, _bytes(edge)))
        return guard, ops, ConfigCreated(0, config)

    def _changed(self, config: Config, event: ConfigEnded | ConfigResumed) -> Change:
        """``config`` as it is after ``event``, if it is as we have it."""
        key = self.keys.config(config.id)
        after = replace(changed(config, event), revision=0)
        return [at_revision(key, config.revision)], [Put(key, _bytes(after))], event

    # People. What they ask for happens at once, whoever leads the run.

    def stop(self, name: str, reason: str) -> Config | None:
        """Stop a config for good: the search will not resume it. The config as it is then (one that has ended
        otherwise stays as it is), ``None`` if there is none or the run has ended."""
        event = ConfigEnded(0, name, Status.STOPPED, reason, by_hand=True)
        return self._by_hand(name, event, lambda config: may_end(config, event))

    def resume(self, name: str, reason: str) -> Config | None:
        """Let a stopped config go on to its end: the search will not stop it. The answer is as ``stop``'s."""
        event = ConfigResumed(0, name, reason, by_hand=True)
        return self._by_hand(name, event, lambda config: config.status is Status.STOPPED)

    def clone(
        self,
        name: str,
        hparams: HParams,
        start: Callable[[Config], Config | None] = lambda parent: parent,
    ) -> Config | None:
        """Add a config with the hyper-parameters of the config ``name`` but for ``hparams``. It goes on from
        where ``start`` says, given the parent as it stands: from the same place, or another at which a
        checkpoint of the parent is kept, or from the beginning (``None``). The new config; ``None`` if there
        is no such parent or the run has ended. Raises ``RunError`` if all epochs are done where it would
        start."""
        while True:
            state = self.state()
            parent = state.configs.get(name)
            if parent is None or state.plan is None or state.outcome is not None:
                return None
            at = start(parent)
            if at is not None and at.epoch >= state.plan.epochs:
                raise RunError(
                    f"config {name} has done {counted(at.epoch, 'epoch')} there, all it has: nothing is left "
                    "for a clone: clone it from the beginning or an earlier epoch, or another config"
                )
            new, changed = next(fresh_names(state.configs)), {**parent.hparams, **hparams}
            made = child(at, new, changed, BY_HAND) if at else Config(new, changed, origin=BY_HAND)
            config = replace(made, by_hand=True)
            try:
                if self._ask(*self._created(config, parent.revision)):
                    return self.config(new)
            except TxnUnknown:
                created = self.config(new)
                if created is not None and created.by_hand and born(created) == born(config):
                    return created

    def _by_hand(
        self, name: str, event: ConfigEnded | ConfigResumed, possible: Callable[[Config], bool]
    ) -> Config | None:
        while True:
            config = self.config(name)
            if config is None or self.ended():
                return None
            if not possible(config):
                return config
            with suppress(TxnUnknown):
                self._ask(*self._changed(config, event))

    def _ask(self, guard: Sequence[Compare], ops: Sequence[Op], event: Event) -> bool:
        """Do what a person asks for, while the run goes on; ``end_run`` will know."""
        last = Put(self.keys.control, _bytes(event))
        return self._do([absent(self.keys.outcome), *guard], [*ops, last], event) is not None

    # The worker.

    def trained(self, attempt: Attempt) -> Attempt | None:
        """Free the node of the attempt but for its save: the attempt as it is to be committed, or failed,
        from now on. ``None`` if it may not commit any more, or if the node saves another."""
        key = self.keys.saving(attempt.node)
        guard = [*self._held(attempt), *self._as_begun(attempt), absent(key)]
        ops = [*self._cleared(attempt), Put(key, _bytes(attempt))]
        event = UnitTrained(0, attempt.node, attempt.token)
        while True:
            refused = False
            with suppress(TxnUnknown):
                revision = self._do(guard, ops, event)
                if revision is not None:
                    return replace(attempt, trained=revision)
                refused = True
            saving = self.saving(attempt.node)  # perhaps by an earlier try of ours
            if saving is not None and saving.token == attempt.token:
                return saving
            if refused or not self._stands(attempt):
                return None

    def commit(self, attempt: Attempt, config: Config, visit: Visit, plan: Plan) -> bool:
        """Make the attempt a visit; ``False`` if it may no longer commit."""
        key = self.keys.visit(visit.unit, visit.k)
        advanced = replace(advance(config, visit, plan), revision=0)
        ops = [Put(key, _bytes(visit)), Put(self.keys.config(config.id), _bytes(advanced))]
        if self._report(attempt, ops, UnitCommitted(0, visit)):
            return True
        item = self.store.get(key)
        return item is not None and decode(item.value, Visit) == visit

    def fail(self, attempt: Attempt, config: Config, failure: Failure) -> bool:
        """Record that the attempt failed; ``False`` if it is no longer the node's."""
        remembers = replace(config, failures=(*config.failures, failure), revision=0)
        put = Put(self.keys.config(config.id), _bytes(remembers))
        if self._report(attempt, [put], UnitFailed(0, failure)):
            return True
        recorded = self.config(config.id)
        return recorded is not None and failure in recorded.failures

    def tried(self, attempt: Attempt, trial: TrialResult) -> bool:
        """Record what a trial has told; ``False`` if the attempt is no longer the node's."""
        key = self.keys.trial(attempt.unit.config, attempt.token)
        return (
            self._report(attempt, [Put(key, _bytes(trial))], TrialDone(0, trial))
            or self.store.get(key) is not None
        )

    def give_up(self, attempt: Attempt) -> bool:
        """Take the assignment back, by a node of it, which leaves and has nothing to commit; ``False`` if
        it is no longer the node's."""
        return self._report(attempt, [], UnitWithdrawn(0, attempt.node, attempt.token))

    def _report(self, attempt: Attempt, ops: Sequence[Op], event: Event) -> bool:
        """Sent again while the assignment stands, which is safe: the same guard lets it through
        once. ``False`` means refused, or done by a transaction whose answer was lost."""
        guard = [*self._held(attempt), *self._as_begun(attempt)]
        while True:
            try:
                return self._do(guard, [*ops, *self._cleared(attempt)], event) is not None
            except TxnUnknown:
                if not self._stands(attempt):
                    return False

    def _as_begun(self, attempt: Attempt) -> list[Compare]:
        """All its nodes are registered as it says, and its config is where it begins."""
        keys = self.keys
        registered = [created_at(keys.node(m.node), m.registration) for m in attempt.members]
        return [*registered, at_revision(keys.config(attempt.unit.config), attempt.config_revision)]

    def _stands(self, attempt: Attempt) -> bool:
        """Whether it is still its node's, in training or being saved, whichever it says."""
        at = self.saving(attempt.node) if attempt.trained else self.assignment(attempt.node)
        return at is not None and at.token == attempt.token

    def _held(self, attempt: Attempt) -> list[Compare]:
        """Its nodes train it or, once it is trained, its node saves it."""
        return [at_revision(key, attempt.trained or attempt.token) for key in self._keys_of(attempt)]

    def _cleared(self, attempt: Attempt) -> list[Op]:
        return [Delete(key) for key in self._keys_of(attempt)]

    def _keys_of(self, attempt: Attempt) -> list[str]:
        if attempt.trained:
            return [self.keys.saving(attempt.node)]
        return [self.keys.assign(name) for name in attempt.nodes]

    def _lead(self, leader: int, guard: Sequence[Compare], ops: Sequence[Op], event: Event) -> int | None:
        return self._do([created_at(self.keys.leader, leader), *guard], ops, event)

    def _do(self, guard: Sequence[Compare], ops: Sequence[Op], event: Event) -> int | None:
        """The revision of the change, or ``None`` if the guard does not hold."""
        result = self.store.txn(guard, [*ops, Put(self.keys.event, _bytes(event))])
        return result.revision if result.succeeded else None


class EventStream:
    """A run's events as they happen."""

    def __init__(self, watch: Watch, keys: Keys) -> None:
        self._watch = watch
        self._keys = keys

    def next(self, timeout: float | None = None) -> list[Event]:
        """The events of the next revision; none after ``timeout`` seconds without one."""
        batch = self._watch.next(timeout)
        return events_of(batch, self._keys) if batch else []


def _registers(item: KeyValue, node: Node) -> bool:
    """Whether the registration is this node's, perhaps asked to leave since, or ready."""
    now = decode(item.value, Node)
    return replace(now, drain=node.drain, starting=node.starting, cached=node.cached) == node


def _bytes(value: object) -> bytes:
    return encode(value).encode()
