"""What of this machine works: one line for each thing that a run may need."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import CerebroError
from cerebro_elastic.scratch import Scratch
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.client.etcd_program import find_etcd

_EXTRAS = {
    "lightning": "lightning",
    "deepspeed": "deepspeed",
    "parquet": "pyarrow",
    "s3": "s3fs",
    "search": "optuna",
    "exact": "ortools",
    "tensorboard": "tensorboard",
    "metrics": "prometheus_client",
    "plots": "matplotlib",
    "torchx": "torchx",
    "examples": "sklearn",
}
_ROOM = 2 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """``ok`` is ``None`` for what is merely not there and only some runs need."""

    what: str
    ok: bool | None
    told: str


def examine(home: Path, store: StoreSettings | None = None) -> Iterator[Finding]:
    """Look at everything; slow looks (torch, etcd) are really done, not guessed."""
    yield Finding("python", True, f"{platform.python_version()} on {platform.platform()}")
    yield _tried("torch", _torch)
    yield _tried("etcd", _etcd)
    if store is not None:
        yield _tried(f"etcd at {', '.join(store.endpoints)}", lambda: f"version {EtcdStore(store).version()}")
    for extra, package in _EXTRAS.items():
        yield _extra(extra, package)
    yield _tried("loopback ports", _port)
    yield _disk(home)


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
        "print(torch.__version__, 'with', torch.cuda.device_count(), 'GPUs')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(done.stderr.strip().splitlines()[-1])
    return done.stdout.strip() + "; torchrun knows the backend 'cerebro'"


def _etcd() -> str:
    with (
        Scratch("doctor") as scratch,
        EmbeddedEtcd(scratch.path / "d") as etcd,
    ):
        store = EtcdStore(etcd.settings)
        try:
            return f"{find_etcd()} version {store.version()} starts and answers"
        finally:
            store.close()


def _extra(extra: str, package: str) -> Finding:
    if importlib.util.find_spec(package) is None:
        return Finding(f"extra {extra}", None, f"not installed: pip install 'cerebro-elastic[{extra}]'")
    name = "scikit-learn" if package == "sklearn" else package
    try:
        return Finding(f"extra {extra}", True, f"{name} {version(name)}")
    except PackageNotFoundError:
        return Finding(f"extra {extra}", True, name)


def _port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
    return "free ports can be had"


def _disk(home: Path) -> Finding:
    there = home.resolve()
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    writable = os.access(there, os.W_OK)
    told = f"{free / 2**30:.1f} GiB free at {there}" + ("" if writable else ", which cannot be written")
    return Finding("disk", writable and free > _ROOM, told)
