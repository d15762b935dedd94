"""The packages ``lightning`` and ``pytorch-lightning`` hold the same code under two names, and libraries use
either: here both names mean the modules that this process has imported first. Nothing is imported yet."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_NAMES = {"pytorch_lightning": "lightning.pytorch", "lightning_fabric": "lightning.fabric"}


class _OtherName(MetaPathFinder, Loader):
    """Finds modules of one package by the names that they have in the other."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        for given, meant in self._names.items():
            if name == given or name.startswith(given + "."):
                return ModuleSpec(name, self, origin=meant + name.removeprefix(given))
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        assert spec.origin is not None
        module = import_module(spec.origin)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The module is there; Python has only replaced its spec."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def use_one_name() -> None:
    """From now on imports by either name give the same modules."""
    if any(isinstance(finder, _OtherName) for finder in sys.meta_path):
        return
    pytorch_first = not _NAMES.keys().isdisjoint(sys.modules)
    names = {meant: given for given, meant in _NAMES.items()} if pytorch_first else _NAMES
    sys.meta_path.insert(0, _OtherName(names))


def both_loaded() -> bool:
    """Whether this process had imported both packages, each as its own."""
    one, other = (sys.modules.get(name) for name in ("pytorch_lightning", "lightning.pytorch"))
    return one is not None and other is not None and one is not other
