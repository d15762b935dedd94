"""An accelerator without hardware, for processes that a test starts: see ``device.cpp``."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch

_HERE = Path(__file__).parent
_SOURCE = _HERE / "device.cpp"
_KEPT = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cerebro-pretended-device"

Key = Literal["CUDA", "PrivateUse1"]
"""Whether torch takes it for CUDA, or for a device of another maker (``pretend``)."""


def why_not() -> str | None:
    """Why no device can be pretended here; ``None`` if one can."""
    if shutil.which("g++") is None:
        return "there is no g++, which compiles the pretended device"
    if torch.version.cuda is not None or torch.version.hip is not None:
        return "this torch is no CPU build: it has a CUDA of its own"
    return None


def environment(key: Key, folder: Path, *, devices: int = 2, memory_bytes: int = 0) -> Mapping[str, str]:
    """The environment of a process that is to have ``devices`` of ``memory_bytes`` each (0: no limit). The
    processes that share them have one ``folder``. Compiles the library, once."""
    return {
        "PRETENDED_LIBRARY": str(library(key)),
        "PRETENDED_FOLDER": str(folder),
        "PRETENDED_DEVICES": str(devices),
        "PRETENDED_MEMORY": str(memory_bytes),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(_HERE / "hook"), os.environ.get("PYTHONPATH")))),
    }


def library(key: Key) -> Path:
    """The compiled library. It is kept by the digest of torch and source."""
    digest = hashlib.sha256(f"{torch.__version__} {torch.__path__}".encode() + _SOURCE.read_bytes())
    file = _KEPT / digest.hexdigest()[:16] / f"pretended_{key}.so"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        made = file.with_name(f"{os.getpid()}-{file.name}")
        subprocess.run(_command(key, made), check=True)
        made.rename(file)
    return file


def _command(key: Key, file: Path) -> list[str]:
    package = Path(torch.__path__[0])
    headers = package / "include"
    return [
        *("g++", "-O0", "-w", "-std=c++20", "-fPIC", "-shared", f"-DKEY={key}"),
        *(("-DPRETENDS_CUDA",) if key == "CUDA" else ()),
        f"-DTORCH_EXTENSION_NAME=pretended_{key}",
        *(f"-I{folder}" for folder in (headers, headers / "torch/csrc/api/include")),
        f"-I{sysconfig.get_path('include')}",
        *(str(_SOURCE), "-o", str(file), f"-L{package / 'lib'}"),
        *("-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"),
    ]
