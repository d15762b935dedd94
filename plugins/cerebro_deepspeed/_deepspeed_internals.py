"""What is private to DeepSpeed, and to torch for its import. Tried with DeepSpeed 0.19.8 and torch 2.13.

``tests/parallel/test_deepspeed_internals.py`` names what an upgrade takes away.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed.distributed_c10d as c10d


@contextmanager
def without_a_default_group() -> Iterator[None]:
    """Hide the group of all ranks: an import of DeepSpeed would keep it for its functions' default
    arguments."""
    default = c10d._world.default_pg
    c10d._world.default_pg = None
    try:
        yield
    finally:
        c10d._world.default_pg = default


def link_optimizer_state(zero: Any) -> None:
    """Let a ZeRO optimizer find the slots: with several groups it does so too early, in the first one's
    step."""
    zero._hp_optimizer_states_linked = False
    zero._lazy_init_hp_params_optimizer_state()
