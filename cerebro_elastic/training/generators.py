"""The state of the global random number generators of every task: numpy's legacy one and ``random``'s.

It is a part of a config's state and hops with the config. ``rng.py`` adds torch's.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np


def seed_all(seed: int) -> None:
    """Seed both. ``seed`` < 2**32."""
    random.seed(seed)
    np.random.seed(seed)


def capture() -> dict[str, Any]:
    """The generators' state as a tree of arrays and numbers."""
    version, words, gauss = random.getstate()
    return {
        "numpy": np.random.get_state(legacy=False),
        "python": {"version": version, "words": np.array(words, dtype=np.uint32), "gauss": gauss},
    }


def restore(state: Mapping[str, Any]) -> None:
    """Put the generators where ``capture`` found them."""
    np.random.set_state(state["numpy"])
    python = state["python"]
    random.setstate((python["version"], tuple(int(word) for word in python["words"]), python["gauss"]))


@contextmanager
def borrowed() -> Iterator[None]:
    """Put the generators back after the block as they were before."""
    before = capture()
    try:
        yield
    finally:
        restore(before)
