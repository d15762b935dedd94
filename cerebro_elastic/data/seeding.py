"""Random numbers of users' code that makes data: the same wherever it runs."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within the block the generators of Python, numpy and torch (on the CPU) begin with ``seed``; behind it
    they go on where they stood. Torch is not imported for it."""
    python, numpy, torch = random.getstate(), np.random.get_state(), sys.modules.get("torch")
    state = torch.get_rng_state() if torch is not None else None
    seed_generators(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        if torch is not None:
            torch.set_rng_state(state)


def seed_generators(seed: int) -> None:
    """Let the generators of Python, numpy and torch (on the CPU) begin with ``seed``."""
    random.seed(seed)
    np.random.seed(seed)
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.manual_seed(seed)


def generator_states() -> tuple[object, ...]:
    """The states of the generators of Python, numpy and torch (on the CPU), to be compared."""
    numpy: Any = np.random.get_state(legacy=False)
    torch = sys.modules.get("torch")
    return (
        random.getstate(),
        numpy["state"]["key"].tobytes(),
        numpy["state"]["pos"],
        numpy["has_gauss"],
        torch and torch.default_generator.get_state().numpy().tobytes(),
    )
