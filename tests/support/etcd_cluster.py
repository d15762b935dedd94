"""An etcd cluster, on loopback or on hosts, whose members can be killed and started again, one by one."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import requests
from urllib3 import HTTPConnectionPool

from cerebro_elastic.config import StoreSettings, host_port, socket_path
from cerebro_elastic.errors import StoreError
from cerebro_elastic.store.client.cluster import open_endpoints
from cerebro_elastic.store.client.etcd_program import find_etcd, launch, may_diverge, stop
from cerebro_elastic.store.client.gateway import UnixSocketPool
from support.hosts import Host

# A leader is missed after half a second, and still not each time when a machine is busy.
_FAST = ["--heartbeat-interval", "50", "--election-timeout", "500"]
_START_SECONDS, _POLL_SECONDS = 120.0, 0.02


def check_etcd() -> None:
    """Raise ``StoreError`` if the members of a cluster of the etcd at hand may differ after one is killed."""
    version = etcd_version()
    if may_diverge(version):
        raise StoreError(
            f"{find_etcd()} is version {version}, of which the members of a cluster may differ after a "
            "crash: put an etcd of 3.4.23 or later, but not 3.5.0 to 3.5.5, on PATH, or set CEREBRO_ETCD to "
            "one"
        )


def etcd_version() -> str:
    """That of the etcd at hand."""
    printed = subprocess.run([find_etcd(), "--version"], capture_output=True, text=True, check=True).stdout
    return printed.split()[2]


@dataclass
class Member:
    """One server; ``process`` is ``None`` while it does not run."""

    name: str
    data: Path
    client: int
    peer: int
    host: Host | None = None
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return self.host.address if self.host else "127.0.0.1"

    @property
    def endpoint(self) -> str:
        """Where clients reach it."""
        return f"{self.address}:{self.client}"

    @property
    def healthy(self) -> bool:
        """Whether it answers and knows a leader."""
        try:
            answer = requests.get(f"http://{self.endpoint}/health", timeout=1)
            return bool(answer.json()["health"] == "true")
        except (requests.RequestException, ValueError):
            return False


class EtcdCluster:
    """A context manager that runs ``size`` members in ``folder`` (data and logs); of three, one may be away.

    ``arguments`` are given to each etcd beside its own. A member ends with the thread that starts it. With
    ``hosts`` there is one member on each of them.
    """

    def __init__(
        self, folder: Path, size: int = 3, arguments: Sequence[str] = (), hosts: Sequence[Host] = ()
    ) -> None:
        self._arguments = arguments
        ports = [2379, 2380] * len(hosts) or free_ports(2 * size)
        homes = hosts or [None] * size
        self.members = [
            Member(f"m{i}", folder / f"m{i}", ports[2 * i], ports[2 * i + 1], home)
            for i, home in enumerate(homes)
        ]

    def __repr__(self) -> str:
        running = [member.name for member in self.members if member.process]
        return f"<EtcdCluster of {len(self.members)}, running: {', '.join(running) or 'none'}>"

    def left_behind(self, seconds: float) -> list[str]:
        """The running members that do not come to know within ``seconds`` what another knows now: they have
        lost it for good."""
        running = [member for member in self.members if member.process is not None]
        latest = max(_revision(member) for member in running)
        deadline = time.monotonic() + seconds
        while behind := [member.name for member in running if _revision(member) < latest]:
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_SECONDS)
        return behind

    @property
    def settings(self) -> StoreSettings:
        """How to reach all members."""
        return StoreSettings(endpoints=tuple(member.endpoint for member in self.members))

    def start(self, i: int) -> None:
        """Start member ``i``; returns when it is healthy, if there are enough for that."""
        self._launch(self.members[i])
        if sum(member.process is not None for member in self.members) > len(self.members) // 2:
            _wait_healthy(self.members[i])

    def kill(self, i: int) -> None:
        """Kill member ``i``, as a power cut would; it keeps what it has written. Nothing if it is away."""
        process, self.members[i].process = self.members[i].process, None
        if process is not None:
            _end(process, self.members[i].host)

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.push(self.__exit__)
            for member in self.members:
                self._launch(member)
            for member in self.members:
                _wait_healthy(member)
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members:
            process, member.process = member.process, None
            if process is not None and member.host is None:
                stop(process)
            elif process is not None:
                _end(process, member.host)

    def _launch(self, member: Member) -> None:
        client, peer = f"http://{member.endpoint}", f"http://{member.address}:{member.peer}"
        everybody = ",".join(f"{each.name}=http://{each.address}:{each.peer}" for each in self.members)
        start = launch if member.host is None else _on(member.host)
        member.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        with member.data.with_suffix(".log").open("ab") as log:
            member.process = start(
                [
                    str(find_etcd()),
                    *("--name", member.name, "--data-dir", str(member.data), *_FAST),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                    *("--initial-cluster", everybody, *self._arguments),
                ],
                log.fileno(),
            )


def _end(process: subprocess.Popen[bytes], host: Host | None) -> None:
    if host is None:
        process.kill()
    else:
        host.signal(process, signal.SIGKILL)
    process.wait()


def _on(host: Host) -> Callable[[list[str], int], subprocess.Popen[bytes]]:
    return lambda command, log: host.popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _wait_healthy(member: Member) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not member.healthy:
        assert member.process is None or member.process.poll() is None, f"{member.name} ended: see its log"
        assert time.monotonic() < deadline, f"{member.name} is not healthy after {_START_SECONDS} s"
        time.sleep(_POLL_SECONDS)


def _revision(member: Member) -> int:
    """How far the member itself is."""
    answer = ask(member.endpoint, "kv/range", {"key": "AA==", "serializable": True})
    return int(answer["header"]["revision"])


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def compact(endpoint: str, revision: int) -> None:
    """Make etcd forget the changes before ``revision``; returns when it has."""
    ask(endpoint, "kv/compaction", {"revision": str(revision), "physical": True})


def make_room(endpoint: str, revision: int) -> None:
    """What frees an etcd of one member that is full: forget the changes before ``revision``, give the space
    back, and end the alarm."""
    compact(endpoint, revision)
    ask(endpoint, "maintenance/defragment", {})
    for alarm in ask(endpoint, "maintenance/alarm", {"action": "GET"}).get("alarms", ()):
        ask(endpoint, "maintenance/alarm", {"action": "DEACTIVATE", **alarm})


def exchange(endpoint: str, path: str, body: bytes | None) -> tuple[int, bytes]:
    """The status and content of the answer of the etcd at ``endpoint`` to an HTTP request."""
    socket_file = socket_path(endpoint)
    pool = UnixSocketPool(socket_file) if socket_file else HTTPConnectionPool(*host_port(endpoint))
    with pool:
        answer = pool.urlopen("GET" if body is None else "POST", path, body, retries=False, timeout=10.0)
        return answer.status, answer.data


def ask(endpoint: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """What the etcd at ``endpoint`` answers."""
    (etcd,) = open_endpoints(StoreSettings(endpoints=(endpoint,)))
    with closing(etcd):
        return etcd.call(path, body, 60.0, None)
