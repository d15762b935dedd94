"""``cerebro doctor``: checks the possible requirements of runs on this machine."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import CerebroError
from cerebro_elastic.registry import extra_needs, install_extra
from cerebro_elastic.runs.versions import installed
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.client.etcd_program import find_etcd
from cerebro_elastic.system.process import PYTHON, Scratch

_DEVELOPERS = ("dev", "docs")
"""Extras that no run needs."""
_EXTRA = "extra "
_ROOM = 2 << 30
"""Bytes that the disk should have free."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    what: str
    ok: bool | None
    """Whether it works; ``None`` for something not installed that only some runs need."""
    detail: str
    """Its version, or the problem."""


def examine(home: Path, store: StoreSettings | None = None) -> Iterator[Finding]:
    """Check everything. The slow checks import torch and start an etcd."""
    yield Finding("python", True, f"{platform.python_version()} on {platform.platform()}")
    yield _tried("torch", _torch)
    yield _tried("etcd", _etcd)
    if store is not None:
        yield _tried(str(store), lambda: f"version {EtcdStore(store).version()}")
    for extra, distributions in _extras().items():
        yield _extra(extra, distributions)
    yield _tried("loopback ports", _port)
    yield _disk(home)


def next_step(findings: Sequence[Finding]) -> str | None:
    """Instructions for installing an absent extra; ``None`` if none is absent."""
    for finding in findings:
        if finding.ok is None:
            extra = finding.what.removeprefix(_EXTRA)
            return f"to install an absent extra, for example {extra}: {install_extra(extra)}"
    return None


def _tried(what: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(what, True, look())
    except (CerebroError, OSError, subprocess.SubprocessError) as error:
        return Finding(what, False, str(error))


def _torch() -> str:
    code = (
        "import torch, torch.distributed.elastic.rendezvous.registry as r;"
        "r._register_out_of_tree_handlers();"
        "from torch.distributed.elastic.rendezvous.api import rendezvous_handler_registry as h;"
        "assert 'cerebro' in h._registry, 'the rendezvous backend is not registered: install this package';"
        "from cerebro_elastic.system.devices import count_here, hardware_here as name;"
        "print(torch.__version__, f'with {count_here()} of {name()}' if count_here() else 'on the CPU')"
    )
    process = subprocess.run([*PYTHON, "-c", code], capture_output=True, text=True, check=False)
    if process.returncode:
        raise OSError(process.stderr.strip().splitlines()[-1])
    return process.stdout.strip() + "; torchrun knows the backend 'cerebro'"


def _etcd() -> str:
    with (
        Scratch("doctor") as scratch,
        EmbeddedEtcd(scratch.path / "d") as etcd,
        closing(EtcdStore(etcd.settings)) as store,
    ):
        return f"{find_etcd()} version {store.version()} starts and answers"


def _extras() -> dict[str, list[str]]:
    """The packages of each extra, without the extras for developers."""
    extras: dict[str, list[str]] = {}
    for need in extra_needs():
        if need.extra not in _DEVELOPERS:
            extras.setdefault(need.extra, []).append(need.distribution)
    return extras


def _extra(extra: str, distributions: Sequence[str]) -> Finding:
    versions = installed(distributions)
    if len(versions) < len(distributions):
        return Finding(f"{_EXTRA}{extra}", None, "not installed")
    return Finding(
        f"{_EXTRA}{extra}", True, ", ".join(f"{name} {version}" for name, version in versions.items())
    )


def _port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
    return "free ports exist"


def _disk(home: Path) -> Finding:
    folder = home.resolve()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    writable = os.access(folder, os.W_OK)
    detail = f"{free / 2**30:.1f} GiB free at {folder}" + ("" if writable else ", which cannot be written")
    return Finding("disk", writable and free > _ROOM, detail)
