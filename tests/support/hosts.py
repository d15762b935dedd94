"""Hosts of a cluster as namespaces of this machine: each has an address, processes and a disk of its own, on
links of a stated rate. Needs iproute2 and util-linux, and no root: without, all lies in a user namespace.

    with Hosts(3, rate="1gbit") as hosts:
        etcd = hosts[0].popen(["cerebro", "etcd", "RUN", "--listen", hosts[0].address])
        hosts[1].kill()
        hosts[1].start()  # with an empty disk

A process that wants to reach the hosts by their addresses runs below ``beside_hosts``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_NET, _NET6 = "10.77.0.", "fd77::"
_SWITCH = 254
"""The number of the switch's own address."""
_TOOLS = ("ip", "tc", "unshare", "nsenter", "mount")
_BURST = "256kb"
_NOWHERE = "02:00:00:00:00:01"
"""The link address of nobody: what is sent to it is lost."""
_BESIDE = "CEREBRO_TEST_BESIDE_HOSTS"
_ROOT = os.geteuid() == 0
"""Then no user namespace is needed: in one, no disk can be mounted, nor Slurm's daemons started."""
_SPACES = [
    *([] if _ROOT else ["--user", "--map-root-user"]),
    *("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
]
_SWITCH_ON = (
    "mount -t tmpfs tmpfs /run && mkdir /run/netns && ip link set lo up && ip link add br0 type bridge"
    f" && ip link set br0 up && ip addr add {_NET}{_SWITCH}/24 dev br0"
    f" && ip addr add {_NET6}{_SWITCH}/64 dev br0 nodad"
)
_FAKETIME = [Path(f"/usr/lib/{os.uname().machine}-linux-gnu/faketime/libfaketimeMT.so.1")]


def why_not() -> str | None:
    """Why there can be no such hosts here; ``None`` if there can."""
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"hosts as namespaces need {', '.join(missing)} (Debian: iproute2, util-linux)"
    if Path(__file__).is_relative_to("/tmp") or Path(sys.prefix).is_relative_to("/tmp"):
        return "hosts have a /tmp of their own, and so do not see this checkout: it must lie elsewhere"
    if is_beside_hosts():
        return None
    tried = subprocess.run(["unshare", *_SPACES, "sh", "-c", _SWITCH_ON], capture_output=True, check=False)
    return None if tried.returncode == 0 else f"no namespaces here: {tried.stderr.decode().strip()}"


def why_no_clock() -> str | None:
    """Why hosts cannot have a clock of their own here; ``None`` if they can."""
    return None if _FAKETIME[0].exists() else "a host's own clock needs libfaketime (Debian: faketime)"


def why_no_loss() -> str | None:
    """Why links cannot lose packets here; ``None`` if they can."""
    return None if shutil.which("nft") else "links that lose packets need nft (Debian: nftables)"


def is_beside_hosts() -> bool:
    """Whether this process runs below ``beside_hosts``."""
    return _BESIDE in os.environ


def beside_hosts(command: Sequence[str]) -> list[str]:
    """The ``command``, run where it reaches by their addresses the hosts that it makes."""
    script = f'{_SWITCH_ON} && "$@"; exit $?'  # the shell stays, and takes leave of orphans
    return ["env", f"{_BESIDE}=1", "unshare", *_SPACES, "sh", "-c", script, "sh", *command]


class Host:
    """One machine. Below ``/tmp``, where its home is too, it has a disk of its own. It sees the real
    machine's other folders."""

    def __init__(self, bed: _Bed, number: int, disk_bytes: int) -> None:
        self.name = f"host{number}"
        """Its name, and that of its network namespace."""
        self.address = f"{_NET}{number}"
        self.address6 = f"{_NET6}{number}"
        self.mount_disk = f"mount -t tmpfs -o size={disk_bytes} tmpfs /tmp"
        """The shell command that mounts its disk when it starts."""
        self.clock_ahead = 0.0
        """By how many seconds the clock of processes that it starts is ahead; needs ``why_no_clock() is
        None``."""
        self._port = f"port{number}"
        self._bed = bed
        self._init: subprocess.Popen[bytes] | None = None
        self._pid = 0

    def plug_in(self) -> None:
        """Connect it to the switch, once and for all."""
        ends = [self._port, "type", "veth", "peer", "name", "eth0", "netns", self.name]
        self._bed.run("ip", "netns", "add", self.name)
        self._bed.run("ip", "-n", self.name, "link", "set", "lo", "up")
        self._bed.run("ip", "link", "add", *ends)
        self._bed.run("ip", "link", "set", self._port, "master", "br0", "up")
        self._bed.run("ip", "-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        self._bed.run("ip", "-n", self.name, "addr", "add", f"{self.address6}/64", "dev", "eth0", "nodad")
        self._bed.run("ip", "-n", self.name, "link", "set", "eth0", "up")

    def start(self) -> None:
        """Boot it, with an empty disk."""
        assert self._init is None, f"{self.name} runs"
        own_disk = (
            f"{self.mount_disk} && mount -t tmpfs tmpfs /dev/shm"
            f" && mkdir /tmp/home && hostname {self.name} && echo booted && {{ sleep infinity & wait; }}"
        )
        spaces = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = [*self._bed.entered, "ip", "netns", "exec", self.name, *spaces, "sh", "-c", own_disk]
        self._init = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self._init.stdout is not None
        assert self._init.stdout.readline() == b"booted\n"
        self._pid = _descendant(self._init.pid, 2 if self._bed.entered else 1)

    def popen(
        self, command: Sequence[str], env: Mapping[str, str] | None = None, **settings: Any
    ) -> subprocess.Popen[bytes]:
        """Start a command on it. Its home and its working directory are on its own disk."""
        assert self._init is not None, f"{self.name} does not run"
        at_home = ["sh", "-c", 'cd /tmp/home && exec "$@"', "sh"]
        entered = [*self._bed.entering(self._pid, "--uts", "--ipc"), *at_home]
        environment = {**os.environ, "HOME": "/tmp/home", "TMPDIR": "/tmp", **(env or {})}
        if self.clock_ahead:
            entered += ["env", *_clock(self.clock_ahead, environment)]
        return subprocess.Popen([*entered, *command], env=environment, **settings)

    @staticmethod
    def signal(process: subprocess.Popen[bytes], number: int) -> None:
        """Send a signal to what ``popen`` has started, a child of ``nsenter``."""
        os.kill(_descendant(process.pid, 1), number)

    def run(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
        """What a command prints that runs on it to its end."""
        process = self.popen(command, env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        printed, _ = process.communicate()
        assert process.returncode == 0, printed.decode()
        return printed.decode()

    @property
    def runs(self) -> bool:
        """Whether it is switched on."""
        return self._init is not None

    def file(self, path: str) -> Path:
        """Where this process finds a file of its own disk, as long as it runs."""
        return Path(f"/proc/{self._pid}/root", path.lstrip("/"))

    def kill(self) -> None:
        """Pull its plug: all its processes are gone, and its disk."""
        if self._init is not None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)  # the first process of its PID namespace
            self._init.communicate()
            self._init = None

    def set_rate(self, rate: str) -> None:
        """Limit what it sends, and what is sent to it, such as to ``100mbit``; no limit if it is empty."""
        for where, device in ((["ip", "netns", "exec", self.name], "eth0"), ([], self._port)):
            root = ["dev", device, "root"]
            if rate:
                limit = ["rate", rate, "burst", _BURST, "latency", "100ms"]
                self._bed.run(*where, "tc", "qdisc", "replace", *root, "tbf", *limit)
            else:
                self._bed.run(*where, "tc", "qdisc", "del", *root)

    def losing(self, share: float) -> AbstractContextManager[None]:
        """This share of the packets is lost meanwhile, at random, both ways; needs ``why_no_loss() is
        None``."""
        return self._dropping("numgen", "random", "mod", "1000", "<", f"{1000 * share:.0f}")

    def narrowed(
        self, to_bytes: int = 600, *, received: bool = True, sent: bool = True
    ) -> AbstractContextManager[None]:
        """All larger packets that it would have ``received``, or has ``sent``, are lost meanwhile, as where
        an MTU is wrong; needs ``why_no_loss() is None``."""
        larger = "meta", "length", ">", str(to_bytes)
        return self._dropping(*larger, received=received, sent=sent)

    @contextmanager
    def _dropping(self, *packets: str, received: bool = True, sent: bool = True) -> Iterator[None]:
        table = ["table", "netdev", f"loss_{self.name}"]
        all_ends = ((received, ["ip", "netns", "exec", self.name], "eth0"), (sent, [], self._port))
        ends = [(where, device) for hit, where, device in all_ends if hit]
        for where, device in ends:
            hook = f"{{ type filter hook ingress device {device} priority 0; }}"
            self._bed.run(*where, "nft", "add", *table)
            self._bed.run(*where, "nft", "add", "chain", *table[1:], "in", hook)
            self._bed.run(*where, "nft", "add", "rule", *table[1:], "in", *packets, "drop")
        try:
            yield
        finally:
            for where, _ in ends:
                self._bed.run(*where, "nft", "delete", *table)

    @contextmanager
    def deaf_to(self, other: Host) -> Iterator[None]:
        """What the ``other`` host sends to it is lost meanwhile, and no other packet."""
        entry = [self.address, "dev", "eth0"]
        self._bed.run(
            "ip", "-n", other.name, "neigh", "replace", *entry, "lladdr", _NOWHERE, "nud", "permanent"
        )
        try:
            yield
        finally:
            # By ``flush``: it may be gone, with a link that was down meanwhile.
            self._bed.run("ip", "-n", other.name, "neigh", "flush", "to", *entry, "nud", "permanent")

    @contextmanager
    def unplugged(self) -> Iterator[None]:
        """No packet reaches it or leaves it meanwhile."""
        self._bed.run("ip", "-n", self.name, "link", "set", "eth0", "down")
        try:
            yield
        finally:
            self._bed.run("ip", "-n", self.name, "link", "set", "eth0", "up")


class _Bed:
    """The namespaces that hold the switch and the hosts' processes: with it, all of them end."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        """What runs a command in it; empty if this process is there already."""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if not is_beside_hosts():
            # It ends with its standard input, and so with this process, however that ends.
            script = f"{_SWITCH_ON} && echo ready && exec cat"
            self._process = subprocess.Popen(
                ["unshare", *_SPACES, "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert self._process.stdout is not None
            assert self._process.stdout.readline() == b"ready\n"
            self.entered = self.entering(_descendant(self._process.pid, 1))
        return self

    def entering(self, pid: int, *more: str) -> list[str]:
        """What runs a command in the namespaces of the process."""
        if self._process is not None:
            more = (*(() if _ROOT else ("--user", "--preserve-credentials")), *more)
        return ["nsenter", "--target", str(pid), "--net", "--mount", "--pid", *more]

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.communicate()

    def run(self, *command: str) -> None:
        done = subprocess.run([*self.entered, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"


class Hosts(Sequence[Host]):
    """Hosts on one switch. All is gone when the context ends, however it ends."""

    def __init__(self, number: int, *, rate: str = "", disk_bytes: int = 2 << 30) -> None:
        self._bed = _Bed()
        self._hosts = [Host(self._bed, i + 1, disk_bytes) for i in range(number)]
        self._rate = rate
        self._stack = ExitStack()

    def __getitem__(self, index: Any) -> Any:
        return self._hosts[index]

    def __len__(self) -> int:
        return len(self._hosts)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._bed)
            for host in self._hosts:
                host.plug_in()
                if self._rate:
                    host.set_rate(self._rate)
                stack.callback(host.kill)
                host.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def _clock(ahead: float, environment: Mapping[str, str]) -> list[str]:
    """What gives a process a clock that is ``ahead`` by seconds. Only the time of day: leases and limits go
    by the monotonic clock."""
    path = os.pathsep.join(
        filter(None, (str(Path(__file__).parent / "clock"), environment.get("PYTHONPATH")))
    )
    return [
        f"LD_PRELOAD={_FAKETIME[0]}",
        f"FAKETIME={ahead:+.0f}s",
        "FAKETIME_DONT_FAKE_MONOTONIC=1",
        f"PYTHONPATH={path}",
    ]


def _descendant(pid: int, generation: int) -> int:
    """The child of the child, and so on, of a process with one child."""
    for _ in range(generation):
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        pid = int(child)
    return pid
