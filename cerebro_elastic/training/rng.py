"""The state of the global random number generators: torch's, numpy's legacy one and ``random``'s.

It is a part of a config's state and hops with the config. A unit uses one GPU, and the next unit may have
another: the state of that one's generator is kept, without the GPU's number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from cerebro_elastic.training import generators

_CPU = torch.device("cpu")


def seed_all(seed: int) -> None:
    """Seed every generator, as ``lightning.seed_everything(seed)`` does. ``seed`` < 2**32."""
    generators.seed_all(seed)
    if torch.cuda.is_available():
        torch.manual_seed(seed)
    else:  # that would note down a traceback for a GPU to come
        torch.default_generator.manual_seed(seed)


def capture(device: torch.device = _CPU) -> dict[str, Any]:
    """The generators' state, that of ``device`` among them, as a tree of tensors, arrays and numbers."""
    state: dict[str, Any] = {"torch": torch.get_rng_state(), **generators.capture()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore(state: Mapping[str, Any], device: torch.device = _CPU) -> None:
    """Put the generators where ``capture`` found them; ``device``'s too, if a GPU's state was kept."""
    torch.set_rng_state(state["torch"])
    generators.restore(state)
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


@contextmanager
def borrowed(device: torch.device = _CPU) -> Iterator[None]:
    """Put the generators back after the block as they were before."""
    before = capture(device)
    try:
        yield
    finally:
        restore(before, device)
