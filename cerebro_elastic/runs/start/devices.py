"""Which GPUs of this machine each of its nodes sees. Found without torch: who leads does not import it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

VISIBLE = "CUDA_VISIBLE_DEVICES"


def visible_devices(env: Mapping[str, str] = os.environ, files: Path = Path("/dev")) -> tuple[str, ...]:
    """This machine's GPUs, as CUDA numbers those that this process may use; none on a machine without."""
    named = env.get(VISIBLE)
    if named is not None:
        return tuple(name.strip() for name in named.split(",") if name.strip())
    # In a container only those that were given to it have such a file.
    return tuple(str(index) for index, _ in enumerate(files.glob("nvidia[0-9]*")))


def share_devices(devices: Sequence[str], nodes: int) -> list[tuple[str, ...]]:
    """The devices of each of ``nodes`` nodes: equally many, all different; where there are fewer devices than
    nodes, one for each, in turn."""
    each = len(devices) // nodes
    if each:
        return [tuple(devices[i * each : (i + 1) * each]) for i in range(nodes)]
    return [(devices[i % len(devices)],) if devices else () for i in range(nodes)]
