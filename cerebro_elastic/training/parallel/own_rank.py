"""Which rank of its unit this process is. Imports no torch."""

from __future__ import annotations

import sys


def ranks() -> tuple[int, int]:
    """This rank and the number of ranks of the group; (0, 1) if there is none."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_initialized():
        return 0, 1
    return dist.get_rank(), dist.get_world_size()
