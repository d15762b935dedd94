"""The arguments of a user's function: it gets those by name, and no others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cerebro_elastic.errors import TaskError, did_you_mean


def accepted(function: Callable[..., Any]) -> frozenset[str] | None:
    """The names that ``function`` takes by keyword; ``None`` if it takes any (``**kwargs``)."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return frozenset(parameter.name for parameter in parameters if parameter.kind in by_keyword)


def required(function: Callable[..., Any]) -> frozenset[str]:
    """The names that ``function`` must be given: those without a default."""
    varied = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return frozenset(
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty and parameter.kind not in varied
    )


def argument_of(name: str) -> str:
    """The argument that a value of this name belongs to: ``model.lr`` is a key inside of ``model``."""
    return name.partition(".")[0]


def combined(args: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments by name: ``values`` on top of ``args``, and dotted names inside of their argument.

    Raises ``TaskError`` if ``args`` has the argument, and no such key in it.
    """
    taken = {**args, **{name: value for name, value in values.items() if "." not in name}}
    for name, value in values.items():
        if "." in name:
            first_key, *path = name.split(".")
            inside = taken.get(first_key, {})
            taken[first_key] = _with(inside, path, value, name, strict=first_key in args)
    return taken


def _with(mapping: Any, path: Sequence[str], value: Any, name: str, *, strict: bool) -> Any:
    """A copy of the ``mapping`` that has the ``value`` at the ``path``."""
    if not path:
        return value
    if not isinstance(mapping, Mapping) or (strict and path[0] not in mapping):
        near = did_you_mean(path[0], mapping) if isinstance(mapping, Mapping) else f"it has {mapping!r}"
        raise TaskError(f"hyper-parameter {name!r}: that argument has no key {path[0]!r}; {near}")
    inner = _with(mapping.get(path[0], {}), path[1:], value, name, strict=strict)
    return {**mapping, path[0]: inner}


def first(function: Callable[..., Any]) -> str:
    """The name of the first parameter; empty without one."""
    return next(iter(inspect.signature(function).parameters), "")


def select(function: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The ``values`` that ``function`` takes. Lists and dicts are copies: the function may change them,
    and other configs get the same ones."""
    names = accepted(function)
    return {name: _own(value) for name, value in values.items() if names is None or name in names}


def _own(value: Any) -> Any:
    if type(value) is dict:
        return {key: _own(item) for key, item in value.items()}
    return list(map(_own, value)) if type(value) is list else value
