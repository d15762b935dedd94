"""How are the frozen values stored? As versioned JSON: ``{"v": 1, "kind": "Visit", ...}``.

- Field types come from the dataclasses' annotations: no second description of a value exists.
- Fields at their default are left out. That keeps values in etcd small, and lets a later version add fields.
- A class and its fields have the same names in JSON.
- ``decode`` is total: for any bytes it returns a value whose fields have the annotated types, or raises
  ``UnreadableValue``. Other programs may write to our keys.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeAlias, TypeVar

from cerebro_elastic.errors import CerebroError

VERSION = 1
DEEPEST = 64
"""How deep lists and objects may be nested in a field of type ``Any``. Python could not write deeper ones."""

T = TypeVar("T")
Reader: TypeAlias = Callable[[Any], Any]


class UnreadableValue(CerebroError):
    """A stored value is not of this version or not of the expected kind."""


def encode(value: Any) -> str:
    """Compact JSON of a dataclass instance; equal values give equal text."""
    return _COMPACT.encode({"v": VERSION, "kind": type(value).__name__, **_plain(value)})


def decode(text: str | bytes, kind: type[T]) -> T:
    """Read a value of dataclass ``kind``.

    Raises:
        UnreadableValue: ``text`` is not a value of this kind and version.
    """
    try:
        body = json.loads(text)
        version, name = _of(int, body.pop("v")), _of(str, body.pop("kind"))
    except _DAMAGE as exc:
        raise UnreadableValue(f"{excerpt(text)} is not a {kind.__name__} of this package") from exc
    if version != VERSION:
        raise UnreadableValue(
            f"{excerpt(text)} is of format version {version}, this package reads version {VERSION}; "
            "use one version of cerebro-elastic for the whole run"
        )
    if name != kind.__name__:
        raise UnreadableValue(f"expected a {kind.__name__}, found {excerpt(text)}")
    try:
        return typing.cast(T, _reader(typing.cast(Any, kind))(body))
    except _DAMAGE as exc:
        raise UnreadableValue(f"{excerpt(text)} is a damaged {kind.__name__}: {exc}") from exc


def kind_of(text: str | bytes) -> str:
    """The name of the class whose value ``text`` holds, or "" if it names none."""
    try:
        return str(json.loads(text)["kind"])
    except _DAMAGE:
        return ""


def excerpt(text: str | bytes) -> str:
    """The start of ``text``, for people."""
    begin = text[:_SHOWN]
    shown = begin.decode(errors="replace") if isinstance(begin, bytes) else begin
    return repr(shown if len(text) <= _SHOWN else shown[: _SHOWN - 3] + "...")


_COMPACT = json.JSONEncoder(separators=(",", ":"), sort_keys=True)
_SHOWN = 120
_SCALARS = frozenset({str, int, float, bool, type(None)})
_DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The errors of foreign JSON: it has the wrong shape, is too deep, too large, or not UTF-8."""


def _plain(value: Any) -> Any:
    if type(value) in _SCALARS:
        return value
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if isinstance(value, Enum):
        return value.value
    fields = _defaults(value.__class__)
    if fields is None:
        return value
    plain = {}
    for name, default in fields:
        own = getattr(value, name)
        if own is not default and own != default:
            plain[name] = own if type(own) in _SCALARS else _plain(own)
    return plain


@functools.cache
def _defaults(kind: Any) -> list[tuple[str, Any]] | None:
    """The names of a dataclass's fields, each with the default; ``None`` for another class."""
    if not dataclasses.is_dataclass(kind):
        return None
    return [
        (f.name, f.default if f.default_factory is dataclasses.MISSING else f.default_factory())
        for f in dataclasses.fields(kind)
    ]


@functools.cache
def _reader(kind: Any) -> Reader:
    """A function that turns parsed JSON into a value of type ``kind``, or raises one of ``_DAMAGE``."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        read = _reader(next(a for a in args if a is not type(None)))
        return lambda raw: None if raw is None else read(raw)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _fields(kind)
    if origin is tuple and args[-1] is Ellipsis:
        read = _reader(args[0])
        return lambda raw: tuple([read(value) for value in _of(list, raw)])
    if origin is tuple:
        readers = tuple(map(_reader, args))
        return lambda raw: tuple(of(value) for of, value in zip(readers, _of(list, raw), strict=True))
    if origin is not None and issubclass(origin, Mapping):
        key: Reader = int if args[0] is int else _reader(args[0])  # in JSON, keys are strings
        read = _reader(args[1])
        return lambda raw: {key(name): read(value) for name, value in _of(dict, raw).items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    return _SIMPLE[kind]


def _fields(kind: type) -> Reader:
    hints = typing.get_type_hints(kind)
    readers = {field.name: _reader(hints[field.name]) for field in dataclasses.fields(kind)}

    def read(raw: Any) -> Any:
        return kind(**{name: readers[name](value) for name, value in _of(dict, raw).items()})

    return read


def _of(kind: type, raw: Any) -> Any:
    if type(raw) is not kind:
        raise TypeError(f"{excerpt(str(raw))} is no {kind.__name__}")
    return raw


def _number(raw: Any) -> float:
    return raw if type(raw) is float else float(_of(int, raw))


def _anything(raw: Any, depth: int = 0) -> Any:
    if depth > DEEPEST:
        raise ValueError(f"it is nested deeper than {DEEPEST}")
    if isinstance(raw, dict | list):
        for value in raw.values() if isinstance(raw, dict) else raw:
            if isinstance(value, dict | list):
                _anything(value, depth + 1)
    return raw


_SIMPLE: Mapping[Any, Reader] = {
    str: functools.partial(_of, str),
    int: functools.partial(_of, int),
    bool: functools.partial(_of, bool),
    float: _number,
    Any: _anything,
}
