"""torch's optimizers without torch's compiler, until something compiles.

The first step of an optimizer imports ``torch._dynamo``, which takes a second of each start. It only tells
the compiler what not to trace, by two functions that do nothing outside of compiled code. A module with these
two stands in for it. Whatever else needs ``torch._dynamo``, such as ``torch.compile``, imports it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch

_COMPILER = "torch._dynamo"
_CACHED = "__dynamo_disable"
"""The attribute of a function in which torch keeps the result of ``disable``."""


def defer() -> None:
    """Have ``torch._dynamo`` imported at its first real use, unless it is there already."""
    spec = None if _COMPILER in sys.modules else find_spec(_COMPILER)
    if spec is not None:
        compiler: Any = _Deferred(spec)
        sys.modules[_COMPILER] = torch._dynamo = compiler  # as an import does
        sys.meta_path.insert(0, compiler.submodules)


class _Deferred(ModuleType):
    """Stands in for ``torch._dynamo``."""

    def __init__(self, spec: ModuleSpec) -> None:
        super().__init__(spec.name)
        self.__spec__ = spec
        self.__path__ = spec.submodule_search_locations or []
        self.__file__ = spec.origin
        self.submodules = _Submodules(self.imported)
        self._passed: list[Callable[..., Any]] = []

    def graph_break(self, msg: str = "") -> None:
        """Nothing: what is not compiled has no graph."""

    def disable(self, fn: Any = None, recursive: bool = True, **options: Any) -> Any:
        """As torch's own functions ask: the function as it is, for nothing traces it. What the user's code
        disables stays so when something compiles, and needs the compiler."""
        if options != {"wrapping": False}:
            return self.imported().disable(fn, recursive, **options)
        self._passed.append(fn)
        return fn

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked of every module, by `inspect` for example
            raise AttributeError(name)
        return getattr(self.imported(), name)

    def imported(self) -> ModuleType:
        """``torch._dynamo`` itself, from now on in this one's place."""
        if sys.modules.get(_COMPILER) is self:
            sys.meta_path.remove(self.submodules)
            del sys.modules[_COMPILER], torch._dynamo
            for function in self._passed:
                vars(function).pop(_CACHED, None)
        return importlib.import_module(_COMPILER)


class _Submodules(MetaPathFinder, Loader):
    """Finds the compiler's submodules: they need the whole of it, whose import imports them, too."""

    def __init__(self, import_compiler: Callable[[], object]) -> None:
        self._import_compiler = import_compiler

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        """A spec of the submodule as it is imported by now; ``None`` for other modules."""
        if not fullname.startswith(f"{_COMPILER}."):
            return None
        self._import_compiler()
        importlib.import_module(fullname)
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The imported submodule."""
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: it has run."""
