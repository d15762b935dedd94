"""Versioned JSON for the frozen values: ``{"v": 1, "kind": "Visit", ...}``.

Field types come from the dataclasses' own annotations, so there is no second description of a
value. Fields at their default are left out, which keeps values in etcd small and lets a later
version add fields.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from cerebro_elastic.errors import CerebroError

VERSION = 1

T = TypeVar("T")


class UnreadableValue(CerebroError):
    """A stored value is not of this version or not of the expected kind."""


def encode(value: Any) -> str:
    """Compact JSON of a dataclass instance; equal values give equal text."""
    body = {"v": VERSION, "kind": type(value).__name__, **_plain(value)}
    return json.dumps(body, separators=(",", ":"), sort_keys=True)


def decode(text: str | bytes, kind: type[T]) -> T:
    """The value of dataclass ``kind`` that ``text`` holds; ``UnreadableValue`` if it holds none."""
    try:
        body = json.loads(text)
        version, name = body.pop("v"), body.pop("kind")
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise UnreadableValue(f"{_excerpt(text)} is not a {kind.__name__} of this package") from exc
    if version != VERSION:
        raise UnreadableValue(
            f"a {name} of format version {version!r} was found, this package reads version {VERSION}; "
            "use one version of cerebro-elastic for the whole run"
        )
    if name != kind.__name__:
        raise UnreadableValue(f"expected a {kind.__name__}, found a {name}: {_excerpt(text)}")
    try:
        return typing.cast(T, _build(body, kind))
    except (KeyError, TypeError, ValueError) as exc:
        raise UnreadableValue(f"{_excerpt(text)} is a damaged {kind.__name__}: {exc}") from exc


def kind_of(text: str | bytes) -> str:
    """The kind's name that ``text`` bears, or "" if it bears none."""
    try:
        return str(json.loads(text)["kind"])
    except (ValueError, KeyError, TypeError):
        return ""


def _excerpt(text: str | bytes) -> str:
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text
    return repr(shown if len(shown) <= 120 else shown[:117] + "...")


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: _plain(getattr(value, f.name))
            for f in dataclasses.fields(value)
            if getattr(value, f.name) != _default(f)
        }
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return value.value if isinstance(value, Enum) else value


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _build(raw: Any, kind: Any) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if raw is None else _build(raw, next(a for a in args if a is not type(None)))
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = _hints(kind)
        return kind(**{name: _build(v, hints[name]) for name, v in raw.items()})
    if origin is tuple:
        kinds = [args[0]] * len(raw) if args[-1] is Ellipsis else args
        return tuple(_build(v, kind) for v, kind in zip(raw, kinds, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        return {_build(k, args[0]): _build(v, args[1]) for k, v in raw.items()}
    if isinstance(kind, type) and (issubclass(kind, Enum) or kind in (int, float)):
        return kind(raw)
    return raw
