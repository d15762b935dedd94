"""Measures commands against one another: seconds, memory, bytes and CPU of whole process trees.

An experiment makes its ``Arm`` values, and ``take_turns`` runs each alone, in rounds, in an order drawn for
each round. Its script has the options of ``options``, and ``write`` keeps what it found as JSON. Needs Linux.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import os
import random
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import psutil

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "evidence"
RESULTS = {"full": HERE / "results", "reduced": BUILD / "results"}
"""Where results go, by size. The record is of the full size."""
PACKAGES = ("torch", "lightning", "ray", "numpy", "cerebro-elastic")
PEER = {
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 31),
}
"""The environment of processes that train: one thread each, and the allocator as runs of ours set it."""
_LOOK_SECONDS = 0.25
_QUIET_SHARE, _QUIET_SECONDS = 0.1, 60.0
"""Others use less than this share of the cores in a quiet moment; how long to wait for one."""
_LEFT_BEHIND_SECONDS = 20.0
"""What outlives a command's root by as much is killed."""
_PR_SET_CHILD_SUBREAPER = 36
_SIGCHLD_IGNORED = 1 << 16
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Arm:
    """One of the commands that are compared."""

    name: str
    command: Sequence[str]
    """A script that runs alone. Its last line is a JSON object of numbers: what it says about itself. Some
    are times (``time.time``). Before ``began``, that of the first training step, are the ``start_seconds``.
    If it says ``ready`` and ``done``, the clock runs between them, not from the script's start to its end."""
    environment: Mapping[str, str] = field(default_factory=lambda: PEER)
    """Added to this process's environment."""


@dataclass
class Usage:
    """What a command and all its descendants used."""

    seconds: float = 0.0
    """From the command's start to its end, or between those that it names."""
    start_seconds: float = 0.0
    """Until its first training step; 0 if it does not say."""
    memory_bytes: int = 0
    """The most that all processes had together (PSS: a page shared by n processes counts 1/n in each)."""
    cpu_seconds: float = 0.0
    read_bytes: int = 0
    """What they read by system calls, from the page cache and sockets too."""
    moved_bytes: int = 0
    """What went over the loopback device: all TCP between processes of this machine, others' included. Pipes,
    files, Unix sockets and shared memory are not in it."""
    quiet: bool = True
    """Whether others used less than a tenth of the cores when it began."""
    said: dict[str, float] = field(default_factory=dict)
    """The command's own numbers."""


def options(
    doc: str | None, name: str, *, full_rounds: int = 3, reduced_rounds: int = 3
) -> argparse.ArgumentParser:
    """The options that each experiment has."""
    rounds = {"full": full_rounds, "reduced": reduced_rounds}
    files = {size: folder / f"{name}.json" for size, folder in RESULTS.items()}
    parser = _OptionsBySize(
        {"rounds": rounds, "to": files}, description=doc, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--size", choices=list(RESULTS), default="reduced")
    parser.add_argument("--rounds", type=int, help=", ".join(f"{size}: {n}" for size, n in rounds.items()))
    shown = "\n".join(f"{size}: {os.path.relpath(file, HERE.parents[1])}" for size, file in files.items())
    parser.add_argument("--to", type=Path, metavar="FILE", help=shown)
    return parser


class _OptionsBySize(argparse.ArgumentParser):
    """What the command line leaves out is that of the size."""

    def __init__(self, by_size: Mapping[str, Mapping[str, Any]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._by_size = by_size

    def parse_known_args(self, *args: Any, **kwargs: Any) -> tuple[argparse.Namespace, list[str]]:
        asked, others = super().parse_known_args(*args, **kwargs)
        for name, values in self._by_size.items():
            if getattr(asked, name) is None:
                setattr(asked, name, values[asked.size])
        return asked, others


def take_turns(arms: Iterable[Arm], rounds: int) -> dict[str, list[Usage]]:
    """Run all arms in each round, in an order that is drawn for it."""
    arms = list(arms)
    taken: dict[str, list[Usage]] = {arm.name: [] for arm in arms}
    for number in range(rounds):
        for arm in random.Random(number).sample(arms, len(arms)):
            usage = measure(arm)
            taken[arm.name].append(usage)
            print(f"round {number + 1}, {arm.name}: {usage.seconds:.1f} s {usage.said}", flush=True)
    return taken


def measure(arm: Arm) -> Usage:
    """Run one arm alone, behind a quiet moment. Raises ``SystemExit`` with its output if it fails.

    Ctrl-C, SIGTERM and SIGHUP leave no process of it behind; the signals raise ``SystemExit``. What is killed
    then may leave folders among the temporary files.
    """
    end_on_signals()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what its parent leaves behind is counted here
    usage = Usage(quiet=wait_for_quiet())
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        moved, wall, began = loopback_bytes(), time.time(), time.perf_counter()
        child = subprocess.Popen(arm.command, stdout=out, stderr=err, env={**os.environ, **arm.environment})
        try:
            child.returncode = _watch(child.pid, usage, began)
        finally:
            _end_descendants()
        usage.moved_bytes = loopback_bytes() - moved
        out.seek(0)
        err.seek(0)
        lines = out.read().splitlines()
        if child.returncode:
            raise SystemExit(
                f"{arm.name} ended with {child.returncode}:\n" + "\n".join(lines) + f"\n{err.read()}"
            )
    usage.said = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
    ready, done = usage.said.pop("ready", wall), usage.said.pop("done", None)
    if done is not None:
        usage.seconds = done - ready
    if "began" in usage.said:
        usage.start_seconds = usage.said.pop("began") - ready
    return usage


def end_on_signals() -> None:
    """Let the signals that end a process raise ``SystemExit``, as Ctrl-C raises ``KeyboardInterrupt``."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


def _watch(pid: int, usage: Usage, began: float) -> int:
    """Look at the tree until its root and all that it leaves behind have ended; the root's exit code.

    Who is waited for adds its use to who waits; so the last words of our own children have nearly all. What
    is below a process that ignores its children's end (Ray's raylet, our fork server) counts as seen last.
    """
    lost: dict[int, Seen] = {}
    root = os.pidfd_open(pid)
    code: int | None = None
    while code is None or psutil.Process().children():
        usage.memory_bytes = max(usage.memory_bytes, _look(lost))
        select.select([root] if code is None else [], [], [], _LOOK_SECONDS)
        for ended in _ended_children():
            cpu, read = _used(ended)
            usage.cpu_seconds += cpu
            usage.read_bytes += read
            _forget(ended, lost)
            status = os.waitpid(ended, 0)[1]
            if ended == pid:
                usage.seconds = time.perf_counter() - began
                code = os.waitstatus_to_exitcode(status)
        if code is not None and time.perf_counter() - began - usage.seconds > _LEFT_BEHIND_SECONDS:
            _kill_descendants()
    os.close(root)
    usage.cpu_seconds += sum(seen.cpu_seconds for seen in lost.values())
    usage.read_bytes += sum(seen.read_bytes for seen in lost.values())
    return code


def _kill_descendants() -> None:
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _end_descendants() -> None:
    """Kill all, those too that become this process's children when their parents end."""
    with suppress(ChildProcessError):
        while True:
            _kill_descendants()
            os.waitpid(-1, 0)


def _ended_children() -> Iterator[int]:
    """Children that have ended; each is to be waited for before the next is asked for."""
    with suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG):
            yield ended.si_pid


class Seen(NamedTuple):
    """A process that nobody will wait for, when it was seen last."""

    parent: int
    cpu_seconds: float
    read_bytes: int


def _look(lost: dict[int, Seen]) -> int:
    """The memory of all descendants together; notes the use of those that nobody will wait for, or whose
    parent nobody will."""
    together, read = 0, set()
    processes = {process.pid: process for process in psutil.Process().children(recursive=True)}
    for process in processes.values():
        with suppress(psutil.Error, OSError):
            parent = process.ppid()
            if parent in lost or _ignores_children(parent):
                lost[process.pid] = Seen(parent, *_used(process.pid))
                read.add(process.pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                together += process.memory_full_info().pss
    forget_children(lost, processes, read)
    return together


def forget_children(lost: dict[int, Seen], listed: Collection[int], read: Collection[int]) -> None:
    """Drop processes that ended before the others were ``listed``, if their parents were ``read`` behind
    that: the parents had waited for them, and what was read contains their use."""
    for pid, seen in list(lost.items()):
        if pid not in listed and seen.parent in read:
            del lost[pid]


def _forget(pid: int, lost: dict[int, Seen]) -> None:
    """Drop a process that this one waits for, since its parent ended first. Its use is counted then, and
    contains that of the children that it has waited for."""
    if lost.pop(pid, None) is not None:
        for child in [child for child, seen in lost.items() if seen.parent == pid]:
            _forget(child, lost)


def _used(pid: int) -> tuple[float, int]:
    """CPU seconds and bytes read, of a process and the descendants that were waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu = sum(map(int, fields[11:15])) / _TICKS
    read = next(line for line in Path(f"/proc/{pid}/io").read_text().splitlines() if line.startswith("rchar"))
    return cpu, int(read.split()[1])


def _ignores_children(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = next(line for line in status if line.startswith("SigIgn"))
    return bool(int(mask.split()[1], 16) & _SIGCHLD_IGNORED)


def wait_for_quiet() -> bool:
    """Wait until others leave the cores alone; whether they did before the deadline."""
    deadline = time.monotonic() + _QUIET_SECONDS
    while psutil.cpu_percent(1.0) / 100 > _QUIET_SHARE:
        if time.monotonic() > deadline:
            return False
    return True


def loopback_bytes() -> int:
    """Bytes that the loopback device has received since the machine began."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return int(next(line for line in lines if line.strip().startswith("lo:")).split()[1])


def write(to: Path, size: str, results: Mapping[str, Any]) -> None:
    """Keep results, by name, beside what was there, with what they were made with.

    Parts of an experiment may so be measured at different times.
    """
    before = json.loads(to.read_text()) if to.exists() else {}
    if before.get("size") != size:
        before = {}
    kept = before.get("results", {}) | {
        name: {"made": machine(), "values": _plain(values)} for name, values in results.items()
    }
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps({"size": size, "results": kept}) + "\n")


def read(file: Path) -> dict[str, Any]:
    """The values of the results in a file, by name."""
    results = json.loads(file.read_text())["results"]
    return {name: result["values"] for name, result in results.items()}


def _plain(values: Any) -> Any:
    if isinstance(values, Usage):
        return {name: round(v, 3) if isinstance(v, float) else v for name, v in asdict(values).items()}
    if isinstance(values, Mapping):
        return {name: _plain(value) for name, value in values.items()}
    if isinstance(values, list):
        return [_plain(value) for value in values]
    return values


def machine() -> dict[str, Any]:
    """What results were made with."""
    versions = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        **versions,
    }


def spread(values: Sequence[float], scale: float = 1.0, digits: int = 1) -> str:
    """The median, and the smallest and the largest: ``3.2 (3.1 to 3.6)``."""
    low, middle, high = (f(values) / scale for f in (min, statistics.median, max))
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def column(rounds: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """One number of each round: of the usage, of what the command said, or ``training_seconds``, those from
    the first training step on."""
    if name == "training_seconds":
        return [usage["seconds"] - usage["start_seconds"] for usage in rounds]
    return [float(usage[name] if name in usage else usage["said"][name]) for usage in rounds]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
