"""The rendezvous `etcd-v3`: its backend against torch's contract, and ordinary torchrun jobs on it."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from torch.distributed import DistStoreError, PrefixStore

from cerebro_elastic.errors import TxnUnknown
from cerebro_elastic.store.client.base import Store
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.worker.rendezvous.dynamic import EtcdBackend, EtcdTorchStore, LeasedWrites
from support.clocks import HandClock
from support.etcd_cluster import EtcdCluster
from support.memory_store import MemoryStore
from support.waiting import SOON


class Deaf(MemoryStore):
    """Loses the answers of transactions while ``deaf`` of them are left."""

    deaf = 0

    def txn(self, compares, ops):  # type: ignore[no-untyped-def]
        result = super().txn(compares, ops)
        if self.deaf:
            self.deaf -= 1
            raise TxnUnknown("no answer came")
        return result


@pytest.fixture(params=["memory", "etcd"])
def store(request: pytest.FixtureRequest, etcd: EmbeddedEtcd) -> Iterator[Store]:
    with closing(MemoryStore() if request.param == "memory" else EtcdStore(etcd.settings)) as store:
        yield store


@pytest.fixture
def backend(store: Store) -> EtcdBackend:
    return EtcdBackend(LeasedWrites(store), uuid.uuid4().hex)


class TestBackend:
    """torch's own `RendezvousBackendTestMixin`, in our words."""

    def test_the_first_state_needs_no_token(self, backend: EtcdBackend) -> None:
        written = backend.set_state(b"x")
        assert written is not None
        assert written == (b"x", written[1], True)
        assert backend.get_state() == written[:2]

    def test_without_a_token_a_state_stays(self, backend: EtcdBackend) -> None:
        first = backend.set_state(b"x")
        assert first is not None
        assert backend.set_state(b"y") == (b"x", first[1], False)

    def test_the_token_of_the_present_state_changes_it(self, backend: EtcdBackend) -> None:
        first = backend.set_state(b"x")
        assert first is not None
        second = backend.set_state(b"y", first[1])
        assert second is not None
        assert second == (b"y", second[1], True)
        assert second[1] != first[1]
        assert backend.get_state() == second[:2]

    @pytest.mark.parametrize("wrong", [1, "invalid", b"", object()], ids=["int", "str", "bytes", "object"])
    def test_any_other_token_changes_nothing(self, backend: EtcdBackend, wrong: object) -> None:
        first = backend.set_state(b"x")
        assert first is not None
        assert backend.set_state(b"y", wrong) == (b"x", first[1], False)
        second = backend.set_state(b"y", first[1])
        assert second is not None
        assert backend.set_state(b"z", first[1]) == (b"y", second[1], False)


def test_a_lost_answer_is_made_up_for() -> None:
    store = Deaf()
    backend = EtcdBackend(LeasedWrites(store), "job")
    store.deaf = 1
    first = backend.set_state(b"x")
    assert first is not None
    assert first[2]
    store.deaf = 1
    assert backend.set_state(b"y", first[1] - 1) == (b"x", first[1], False)


def test_the_state_ends_with_its_lifetime() -> None:
    clock = HandClock()
    backend = EtcdBackend(LeasedWrites(MemoryStore(clock), lifetime=100), "job")
    first = backend.set_state(b"x")
    assert first is not None
    clock.sleep(60)
    assert backend.set_state(b"y", first[1]) is not None
    clock.sleep(60)
    assert backend.get_state() is not None
    clock.sleep(60)
    assert backend.get_state() is None
    assert backend.set_state(b"z") is not None, "by a new lease"


class TestTorchStore:
    @pytest.fixture
    def torch_store(self, store: Store, store_prefix: str) -> EtcdTorchStore:
        return EtcdTorchStore(LeasedWrites(store), store_prefix)

    def test_as_torch_uses_it(self, torch_store: EtcdTorchStore) -> None:
        """Agents see it through a PrefixStore."""
        inner = PrefixStore("round/1", torch_store)
        inner.set("a", b"1\0")
        inner.set("b", "text")
        assert inner.get("a") == b"1\0"
        assert inner.multi_get(["a", "b"]) == [b"1\0", b"text"]
        inner.multi_set(["c", "d"], ["3", "4"])
        assert inner.check(["c", "d"])
        assert not inner.check(["c", "e"])
        inner.wait(["a", "b", "c"])
        assert [inner.add("n", by) for by in (1, 2, 0)] == [1, 3, 3]
        assert inner.get("n") == b"3"

    def test_get_waits_until_it_is_there(self, torch_store: EtcdTorchStore) -> None:
        with ThreadPoolExecutor(1) as pool:
            getting = pool.submit(torch_store.get, "late")
            torch_store.set("later", b"not it")
            torch_store.set("late", b"1")
            assert getting.result(SOON) == b"1"

    def test_waiting_ends(self, torch_store: EtcdTorchStore) -> None:
        with pytest.raises(DistStoreError, match="did not appear in time"):
            torch_store.wait(["never"], timedelta(milliseconds=10))
        torch_store.set_timeout(timedelta(milliseconds=10))
        with pytest.raises(DistStoreError):
            torch_store.get("never")

    def test_each_addition_counts(self, torch_store: EtcdTorchStore) -> None:
        with ThreadPoolExecutor(4) as pool:
            assert sorted(pool.map(lambda _: torch_store.add("n", 1), range(20))) == list(range(1, 21))


def test_an_addition_whose_answer_is_lost_counts_once() -> None:
    store = Deaf()
    torch_store = EtcdTorchStore(LeasedWrites(store))
    store.deaf = 1
    assert torch_store.add("n", 1) == 1
    store.deaf = 1
    torch_store.set("x", "1")
    assert torch_store.add("n", 1) == 2


# A worker that needs no torch, but its peers: it ends when one of them is gone, as in a collective.
WORKER = """
import os, pathlib, select, socket, sys, time
agent, folder = os.getppid(), pathlib.Path(sys.argv[1])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
master = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(master)
    peers = [server.accept()[0] for _ in range(size - 1)]
else:
    while True:
        try:
            peers = [socket.create_connection(master)]
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
note = folder / f"{agent}.new"
note.write_text(f"{rank} {size} {os.environ['TORCHELASTIC_RESTART_COUNT']}")
note.rename(note.with_suffix(".world"))
while os.getppid() == agent and not select.select(peers, [], [], 0.05)[0] and not (folder / "end").exists():
    pass
sys.exit(0 if (folder / "end").exists() else 1)
"""


@dataclass
class Job:
    """Agents of one torchrun job, each with one worker."""

    name: str
    folder: Path
    endpoint: str
    stack: ExitStack

    def start(self) -> subprocess.Popen[bytes]:
        script = self.folder / "worker.py"
        script.write_text(WORKER)
        # One that is silent for 10 s is lost: on a busy machine some are for 3.
        conf = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=10"
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes=1:4", "--max-restarts=9"),
            *("--rdzv-backend=etcd-v3", f"--rdzv-endpoint={self.endpoint}", f"--rdzv-id={self.name}"),
            *(f"--rdzv-conf={conf}", "--local-addr=127.0.0.1", "--monitor-interval=0.1"),
            *(str(script), str(self.folder)),
        ]
        log = self.stack.enter_context((self.folder / "log").open("ab"))
        agent = subprocess.Popen(command, stdout=log, stderr=log)
        self.stack.callback(agent.wait)
        self.stack.callback(agent.kill)
        return agent

    def worlds(self, agents: list[subprocess.Popen[bytes]]) -> list[str]:
        """What the workers of ``agents`` said last: "rank size", sorted."""
        files = [self.folder / f"{agent.pid}.world" for agent in agents]
        return sorted(" ".join(file.read_text().split()[:2]) for file in files if file.exists())

    def expect(self, agents: list[subprocess.Popen[bytes]]) -> None:
        """Wait until they are one group."""
        size = len(agents)
        wanted = [f"{rank} {size}" for rank in range(size)]
        deadline = time.monotonic() + SOON
        while (worlds := self.worlds(agents)) != wanted:
            log = self.folder / "log"
            assert time.monotonic() < deadline, f"{worlds} instead of {wanted}:\n{log.read_text()[-3000:]}"
            assert all(agent.poll() is None for agent in agents), log.read_text()[-3000:]
            time.sleep(0.05)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.cluster
def test_ordinary_elastic_jobs(tmp_path: Path, stack: ExitStack) -> None:
    """A join, a restart of etcd, the loss of rank 0's agent, and another job beside."""
    server = stack.enter_context(EtcdCluster(tmp_path / "etcd", size=1))
    (endpoint,) = server.settings.endpoints
    jobs = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        jobs.append(Job(name, tmp_path / name, endpoint, stack))
    one, two = jobs
    alone = [two.start()]
    agents = [one.start(), one.start()]
    one.expect(agents)

    server.kill(0)
    server.start(0)

    agents.append(one.start())
    one.expect(agents)

    first = next(agent for agent in agents if one.worlds([agent]) == ["0 3"])
    first.kill()
    agents.remove(first)
    one.expect(agents)

    two.expect(alone)
    assert (two.folder / f"{alone[0].pid}.world").read_text() == "0 1 0", "nothing restarted it"
    for job, members in ((one, agents), (two, alone)):
        (job.folder / "end").touch()
        assert [agent.wait(SOON) for agent in members] == [0] * len(members)
