"""The state of the global random number generators: numpy's legacy one and ``random``'s, and torch's.

It is a part of a config's state and hops with the config. A unit uses one GPU, and the next unit may have
another: the state of that one's generator is kept, without the GPU's number. Torch is imported on use.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from cerebro_elastic.system import devices

if TYPE_CHECKING:
    import torch


class Generators:
    """The generators of every task."""

    def seed_all(self, seed: int) -> None:
        """Seed every generator, as ``lightning.seed_everything(seed)`` does. ``seed`` < 2**32."""
        random.seed(seed)
        np.random.seed(seed)

    def capture(self, device: torch.device | None = None) -> dict[str, Any]:  # noqa: ARG002
        """The generators' state, that of ``device`` among them, as a tree of tensors, arrays and numbers."""
        version, words, gauss = random.getstate()
        return {
            "numpy": np.random.get_state(legacy=False),
            "python": {"version": version, "words": np.array(words, dtype=np.uint32), "gauss": gauss},
        }

    def restore(self, state: Mapping[str, Any], device: torch.device | None = None) -> None:  # noqa: ARG002
        """Put the generators where ``capture`` found them; ``device``'s too, if a GPU's state was kept."""
        np.random.set_state(state["numpy"])
        python = state["python"]
        random.setstate((python["version"], tuple(int(word) for word in python["words"]), python["gauss"]))

    @contextmanager
    def borrowed(self, device: torch.device | None = None) -> Iterator[None]:
        """Put the generators back after the block as they were before."""
        before = self.capture(device)
        try:
            yield
        finally:
            self.restore(before, device)


class _WithTorch(Generators):
    def seed_all(self, seed: int) -> None:
        import torch

        super().seed_all(seed)
        if devices.kind_here() != devices.CPU:
            torch.manual_seed(seed)
        else:  # that would note down a traceback for a GPU to come
            torch.default_generator.manual_seed(seed)

    def capture(self, device: torch.device | None = None) -> dict[str, Any]:
        import torch

        state: dict[str, Any] = {"torch": torch.get_rng_state(), **super().capture()}
        if device is not None and device.type != devices.CPU:
            state[device.type] = devices.generator_state(str(device))
        return state

    def restore(self, state: Mapping[str, Any], device: torch.device | None = None) -> None:
        import torch

        torch.set_rng_state(state["torch"])
        super().restore(state)
        if device is not None and device.type in state:
            devices.put_generator_state(state[device.type], str(device))


def numpy_state(generator: Any) -> dict[str, Any]:
    """The state of a ``numpy.random.Generator`` or ``BitGenerator``, with its seeds: ``spawn`` makes
    generators from them, and counts these."""
    bits = _bits_of(generator)
    seeds = {"seeds": bits.seed_seq.state} if type(bits.seed_seq) is np.random.SeedSequence else {}
    return {**bits.state, **seeds}


def set_numpy_state(generator: Any, state: Mapping[str, Any]) -> None:
    """Put a generator where ``numpy_state`` found it."""
    bits = _bits_of(generator)
    own = {name: value for name, value in state.items() if name != "seeds"}
    if (seeds := state.get("seeds")) is not None and (bits.seed_seq is None or bits.seed_seq.state != seeds):
        bits.__setstate__((own, np.random.SeedSequence(**seeds)))
    else:
        bits.state = own


def _bits_of(generator: Any) -> Any:
    return getattr(generator, "bit_generator", generator)


generators, rng = Generators(), _WithTorch()
"""Those of tasks of arrays, and those of tasks of torch."""
