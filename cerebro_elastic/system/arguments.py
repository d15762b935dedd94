"""Which arguments does a user's function take? It gets those by name, and no others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any


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
