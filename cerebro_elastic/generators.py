"""The global generators of Python, numpy and torch: seeded for a block, and while users' files are imported.

Nodes, workers and replays import a user's file, each for itself. Without a seed its random numbers
(``X, y = sklearn.datasets.make_blobs()`` at its top) would differ in each.
"""

from __future__ import annotations

import random
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within the block the generators of Python, numpy and torch (on the CPU) begin with ``seed``; behind it
    they continue from their former states. Torch is not imported for it."""
    import numpy as np  # the command line does without it

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
    import numpy as np

    random.seed(seed)
    np.random.seed(seed)
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.manual_seed(seed)


def seed_imports(is_library: Callable[[str], bool]) -> None:
    """From now on, give each file that is no library's a seed when it is imported, whatever was imported
    before it."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(is_library))


class _Finder(MetaPathFinder):
    """Finds the modules of the finders behind it, and loads users' files with a seed."""

    def __init__(self, is_library: Callable[[str], bool]) -> None:
        self._is_library = is_library

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in behind)), None)
        loader = spec and spec.loader
        if spec is not None and type(loader) is SourceFileLoader and not self._is_library(loader.path):
            spec.loader = _SeededLoader(loader.name, loader.path)
        return spec


class _SeededLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        with seeded(zlib.crc32(self.name.encode())):
            super().exec_module(module)
