"""The names in a user's code: its functions behind wrappers, and the variables that they read."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from cerebro_elastic.data.user_state import in_cell
from cerebro_elastic.registry import is_users_module

_WRAPPERS = {
    property: "fget",
    staticmethod: "__func__",
    classmethod: "__func__",
    MethodType: "__func__",
    functools.partial: "func",
    functools.partialmethod: "func",
    functools.cached_property: "func",
}
"""By kind of object: the attribute with the function that it runs."""


def functions_of(value: Any) -> Iterator[FunctionType]:
    """The functions that run when ``value`` is called, or read as an attribute of its class: itself, and
    those behind caches, partial calls and other wrappers."""
    if isinstance(value, FunctionType):
        yield value
    behind = [getattr(value, name) for kind, name in _WRAPPERS.items() if isinstance(value, kind)]
    for inner in (*behind, getattr(value, "__dict__", {}).get("__wrapped__")):
        if inner is not None:
            yield from functions_of(inner)


def names_in(function: FunctionType) -> set[str]:
    """The names in a function, and in those inside it, besides their own variables."""
    return {name for code in _codes(function) for name in code.co_names}


def _codes(function: FunctionType) -> list[CodeType]:
    codes = [function.__code__]
    for each in codes:  # the list grows
        codes += [constant for constant in each.co_consts if isinstance(constant, CodeType)]
    return codes


def variables_of(function: FunctionType) -> Iterator[tuple[str, str, Any]]:
    """The variables in a function's closure, and those of the user's files that it names: each with the name
    of its file."""
    own = str(function.__globals__.get("__name__"))
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield from ((own, name, item) for item in in_cell(cell))
    names = names_in(function)
    files = [own]
    for file in files:  # the list grows by the named modules
        if is_users_module(file):
            for name in sorted(names & vars(sys.modules[file]).keys()):
                value = vars(sys.modules[file])[name]
                yield file, name, value
                if isinstance(value, ModuleType) and value.__name__ not in files:
                    files.append(value.__name__)
