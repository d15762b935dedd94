"""A writer without the run's key changes nothing that the run's nodes believe."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import pytest

from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.codec import UnreadableValue, encode
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import ConfigCreated, RunEnded
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.errors import RunError
from cerebro_elastic.store.client.base import Put, Store
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.client.sealed import unsigned
from cerebro_elastic.system.run_key import RunKey
from support.ledger import Leader, Ledger
from support.memory_store import MemoryStore

KEY, OTHER = RunKey(b"k" * 32), RunKey(b"o" * 32)
RUN = "r"


@pytest.fixture(params=["memory", "etcd"])
def bare(request: pytest.FixtureRequest, etcd: EmbeddedEtcd) -> Iterator[Store]:
    with closing(MemoryStore() if request.param == "memory" else EtcdStore(etcd.settings)) as store:
        yield store


@dataclass
class Opened:
    """A run with a node and a config, one unit of which is assigned."""

    bare: Store
    ledger: Ledger
    leader: Leader
    node: Node
    attempt: Attempt

    @property
    def assign(self) -> str:
        return self.ledger.keys.assign("n")


def spec_of(run: str) -> Spec:
    return Spec(Plan(run, 2, 1), {}, "", "", "", "/root", {}, "", "")


def opened(bare: Store, key: RunKey | None = KEY) -> Opened:
    run = uuid.uuid4().hex
    ledger = Ledger(bare, run, key)
    assert ledger.open_run(spec_of(run))
    leader = ledger.lead("me", bare.grant(60))
    assert leader is not None
    node = ledger.register(Node("n", "host"), bare.grant(60))
    revision = leader.create_config(Config("c", {"lr": 0.1}))
    assert revision is not None
    attempt = Attempt(Unit("c", 0, 0), "n", node.registration, revision)
    token = leader.assign(attempt)
    assert token is not None
    return Opened(bare, ledger, leader, node, replace(attempt, token=token))


@pytest.fixture
def run(bare: Store) -> Opened:
    return opened(bare)


def test_all_that_a_run_writes_is_signed_and_reads_as_it_was_written(run: Opened) -> None:
    run.ledger.mark_trained(run.attempt)
    run.ledger.stop("c", "enough")
    keys = run.ledger.keys
    items = [item for item in run.bare.range(keys.prefix).items if keys.has_value(item.key)]
    assert len(items) == 7
    for item in items:
        value, _, signature = item.value.rpartition(b"\n")
        assert signature.startswith(b"hmac:"), item.key
        mine = run.ledger.store.get(item.key)
        assert mine == replace(item, value=value)
        assert Ledger(run.bare, keys.run).store.get(item.key) == mine, "an observer needs no key"
    assert run.ledger.spec() == spec_of(keys.run)
    state = run.ledger.state()
    assert state == Ledger(run.bare, keys.run).state()
    assert run.ledger.history()[-1].revision == state.revision


def _raw(run: Opened, key: str) -> bytes:
    item = run.bare.get(key)
    assert item is not None
    return item.value


FORGERIES: dict[str, Callable[[Opened, str], bytes]] = {
    "as it would be written without a key": lambda run, key: _raw(run, key).rpartition(b"\n")[0],
    "signed with another key": lambda run, key: (
        (value := _raw(run, key).rpartition(b"\n")[0]) + b"\nhmac:" + OTHER.signature(key, value)
    ),
    "changed": lambda run, key: _raw(run, key).replace(b'"v":1', b'"v": 1'),
    "signed twice": lambda run, key: _raw(run, key) + b"\nhmac:" + OTHER.signature(key, _raw(run, key)),
    "of another run": lambda run, key: _raw(
        other := opened(run.bare), key.replace(run.ledger.keys.run, other.ledger.keys.run)
    ),
    "of another key": lambda run, _: _raw(run, run.ledger.keys.config("c")),
    "empty": lambda _run, _key: b"",
    "a signature alone": lambda _run, key: b"\nhmac:" + OTHER.signature(key, b""),
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_an_unsigned_value_is_not_believed(run: Opened, forge: Callable[[Opened, str], bytes]) -> None:
    keys = run.ledger.keys
    reads: dict[str, Callable[[], object]] = {
        keys.config("c"): lambda: run.ledger.config("c"),
        keys.node("n"): lambda: run.ledger.node("n"),
        run.assign: lambda: run.ledger.assignment("n"),
        keys.spec: run.ledger.spec,
    }
    forged = {key: forge(run, key) for key in reads}
    # A reader in this order has not read the others yet.
    for key, read in reads.items():
        if forged[key] == _raw(run, key):
            continue
        assert read()
        run.bare.txn([], [Put(key, forged[key])])
        item = run.ledger.store.get(key)
        assert item is not None
        assert unsigned(item)
        with pytest.raises((UnreadableValue, RunError), match="signed"):
            read()
    with pytest.raises(UnreadableValue, match="is not signed with the key of the run"):
        run.ledger.state()


def test_an_event_that_is_not_signed_has_not_happened(run: Opened) -> None:
    keys = run.ledger.keys
    state = run.ledger.state()
    forged = ConfigCreated(0, Config("evil", {"path": "/etc"}))
    run.bare.txn([], [Put(keys.event, encode(forged).encode())])
    run.bare.txn([], [Put(keys.event, encode(RunEnded(0, "finished")).encode())])
    with run.ledger.events(state.revision + 1) as stream:
        assert stream.next(10) == []
        assert stream.next(10) == []
        run.ledger.stop("c", "enough")
        assert [type(event).__name__ for event in stream.next(10)] == ["ConfigEnded"]


def test_an_old_assignment_that_is_written_again_is_stale(run: Opened) -> None:
    """It bears the registration and the config's revision that it was signed for."""
    from cerebro_elastic.worker.group_rendezvous import RankIdentity, stale

    again = _raw(run, run.assign)
    assert run.ledger.give_up(run.attempt)
    assert run.ledger.stop("c", "enough")  # as a commit, or a failure, would change its revision
    run.bare.txn([], [Put(run.assign, again)])
    replayed, config = run.ledger.assignment("n"), run.ledger.config("c")
    assert replayed is not None
    assert config is not None
    assert replayed.config_revision != config.revision
    later = replace(run.node, registration=run.node.registration + 1)
    assert "registered again" in str(stale(RankIdentity("n", run.node.boot), replayed, {"n": later}))


@pytest.mark.parametrize(
    ("signed", "ours", "trusted", "pattern"),
    [
        (KEY, KEY, False, None),
        (None, None, True, None),
        (None, None, False, "and anyone who reaches its etcd"),
        (None, KEY, True, "is not signed, and here is a key"),
        (KEY, None, True, "signed with a key, and here is none"),
        (KEY, OTHER, True, "signed with another key than the one here"),
    ],
)
def test_signed_runs_and_keys_must_match(
    signed: RunKey | None, ours: RunKey | None, trusted: bool, pattern: str | None
) -> None:
    bare = MemoryStore()
    assert Ledger(bare, RUN, signed).open_run(spec_of(RUN))
    ledger = Ledger(bare, RUN, ours)
    if pattern is None:
        ledger.check_signed(trusted)
        assert ledger.spec() == spec_of(RUN)
        return
    with pytest.raises(RunError, match=pattern):
        ledger.check_signed(trusted)
    if ours is not None:
        with pytest.raises(RunError, match=pattern):
            ledger.spec()
