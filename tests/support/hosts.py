"""Hosts of a cluster as namespaces of this machine: each has an address, processes and a disk of its own, on
links of a stated rate. Needs root and iproute2.

    with Hosts(3, rate="1gbit") as hosts:
        etcd = hosts[0].popen(["cerebro", "etcd", "RUN", "--listen", hosts[0].address])
        hosts[1].kill()
        hosts[1].start()  # with an empty disk
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_NET, _NET6 = "10.77.0.", "fd77::"
_TOOLS = ("ip", "tc", "unshare", "nsenter", "mount")
_BURST = "256kb"
_NOWHERE = "02:00:00:00:00:01"
"""The link address of nobody: what is sent to it is lost."""


def why_not() -> str | None:
    """Why there can be no such hosts here; ``None`` if there can."""
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"hosts as namespaces need {', '.join(missing)} (Debian: iproute2, util-linux)"
    if os.geteuid() != 0:
        return "hosts as namespaces need root"
    tried = subprocess.run(["unshare", "-n", "-m", "-p", "-f", "true"], capture_output=True, check=False)
    return None if tried.returncode == 0 else f"no namespaces here: {tried.stderr.decode().strip()}"


class Host:
    """One machine. Below ``/tmp``, where its home is too, it has a disk of its own, ``disk_bytes`` large. It
    sees the real machine's other folders."""

    def __init__(self, name: str, number: int, disk_bytes: int) -> None:
        self.name = name
        """The name of its network namespace."""
        self.address = f"{_NET}{number}"
        self.address6 = f"{_NET6}{number}"
        self._disk_bytes = disk_bytes
        self._init: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Boot it, with an empty disk."""
        assert self._init is None, f"{self.name} runs"
        own_disk = (
            f"mount -t tmpfs -o size={self._disk_bytes} tmpfs /tmp && mount -t tmpfs tmpfs /dev/shm"
            f" && mkdir /tmp/home && hostname {self.name} && echo booted && exec sleep infinity"
        )
        spaces = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self._init = subprocess.Popen(
            ["ip", "netns", "exec", self.name, *spaces, "sh", "-c", own_disk],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._init.stdout is not None
        assert self._init.stdout.readline() == b"booted\n"

    def popen(
        self, command: Sequence[str], env: Mapping[str, str] | None = None, **settings: Any
    ) -> subprocess.Popen[bytes]:
        """Start a command on it. Its home and its working directory are on its own disk."""
        at_home = ["sh", "-c", 'cd /tmp/home && exec "$@"', "sh"]
        entered = ["nsenter", "--target", str(self._pid()), "--all", *at_home]
        environment = {**os.environ, "HOME": "/tmp/home", "TMPDIR": "/tmp", **(env or {})}
        return subprocess.Popen([*entered, *command], env=environment, **settings)

    @staticmethod
    def signal(process: subprocess.Popen[bytes], number: int) -> None:
        """Send a signal to what ``popen`` has started, a child of ``nsenter``."""
        os.kill(_child(process), number)

    def run(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
        """What a command prints that runs on it to its end."""
        process = self.popen(command, env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        printed, _ = process.communicate()
        assert process.returncode == 0, printed.decode()
        return printed.decode()

    def kill(self) -> None:
        """Pull its plug: all its processes are gone, and its disk."""
        if self._init is not None:
            with suppress(ProcessLookupError):
                os.kill(self._pid(), signal.SIGKILL)  # the first process of its PID namespace
            self._init.wait()
            self._init = None

    def set_rate(self, rate: str) -> None:
        """Limit what it sends, such as ``100mbit``."""
        limit = ["rate", rate, "burst", _BURST, "latency", "100ms"]
        _run("ip", "netns", "exec", self.name, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", *limit)

    @contextmanager
    def deaf_to(self, other: Host) -> Iterator[None]:
        """What the ``other`` host sends to it is lost meanwhile, and no other packet."""
        entry = [self.address, "dev", "eth0"]
        _run("ip", "-n", other.name, "neigh", "replace", *entry, "lladdr", _NOWHERE, "nud", "permanent")
        try:
            yield
        finally:
            _run("ip", "-n", other.name, "neigh", "del", *entry)

    @contextmanager
    def unplugged(self) -> Iterator[None]:
        """No packet reaches it or leaves it meanwhile."""
        _run("ip", "-n", self.name, "link", "set", "eth0", "down")
        try:
            yield
        finally:
            _run("ip", "-n", self.name, "link", "set", "eth0", "up")

    def _pid(self) -> int:
        """Its first process, a child of ``unshare``."""
        assert self._init is not None, f"{self.name} does not run"
        return _child(self._init)


class Hosts(Sequence[Host]):
    """Hosts on one switch. All is gone when the context ends, however it ends."""

    def __init__(self, number: int, *, rate: str = "", disk_bytes: int = 2 << 30) -> None:
        mark = f"cb{uuid.uuid4().hex[:6]}"
        self._switch = f"{mark}s"
        self._hosts = [Host(f"{mark}h{i}", i + 1, disk_bytes) for i in range(number)]
        self._rate = rate
        self._stack = ExitStack()

    def __getitem__(self, index: Any) -> Any:
        return self._hosts[index]

    def __len__(self) -> int:
        return len(self._hosts)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._netns(stack, self._switch)
            _run("ip", "-n", self._switch, "link", "add", "br0", "type", "bridge")
            _run("ip", "-n", self._switch, "link", "set", "br0", "up")
            for index, host in enumerate(self._hosts):
                self._netns(stack, host.name)
                self._plug_in(host, f"port{index}")
                stack.callback(host.kill)
                host.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _netns(self, stack: ExitStack, name: str) -> None:
        _run("ip", "netns", "add", name)
        stack.callback(_run, "ip", "netns", "del", name)
        _run("ip", "-n", name, "link", "set", "lo", "up")

    def _plug_in(self, host: Host, port: str) -> None:
        ends = [port, "netns", self._switch, "type", "veth", "peer", "name", "eth0", "netns", host.name]
        _run("ip", "link", "add", *ends)
        _run("ip", "-n", self._switch, "link", "set", port, "master", "br0", "up")
        _run("ip", "-n", host.name, "addr", "add", f"{host.address}/24", "dev", "eth0")
        _run("ip", "-n", host.name, "addr", "add", f"{host.address6}/64", "dev", "eth0", "nodad")
        _run("ip", "-n", host.name, "link", "set", "eth0", "up")
        if self._rate:
            host.set_rate(self._rate)
            limit = ["rate", self._rate, "burst", _BURST, "latency", "100ms"]
            _run(
                "ip", "netns", "exec", self._switch, "tc", "qdisc", "add", "dev", port, "root", "tbf", *limit
            )


def _child(process: subprocess.Popen[bytes]) -> int:
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(child)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
