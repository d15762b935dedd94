"""The state of the global random number generators: torch (CPU, and CUDA once it is in use),
numpy's legacy generator and ``random``. A part of a config's state, for it hops with the config."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def seed_all(seed: int) -> None:
    """Seed every generator, as ``lightning.seed_everything(seed)`` does. ``seed`` < 2**32."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def capture() -> dict[str, Any]:
    """The generators' state as a tree of tensors, arrays and numbers."""
    version, words, gauss = random.getstate()
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state(legacy=False),
        "python": {"version": version, "words": np.array(words, dtype=np.uint32), "gauss": gauss},
    }
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore(state: Mapping[str, Any]) -> None:
    """Put the generators where ``capture`` found them.

    CUDA devices are matched by number; where a device has no saved state, it keeps its own.
    """
    torch.set_rng_state(state["torch"])
    np.random.set_state(state["numpy"])
    python = state["python"]
    random.setstate((python["version"], tuple(int(word) for word in python["words"]), python["gauss"]))
    if torch.cuda.is_available():
        for device, saved in enumerate(state.get("cuda", [])[: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(saved, device)
