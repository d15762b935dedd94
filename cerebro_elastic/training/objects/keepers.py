"""Objects of the standard library that keep a value which their users read and set."""

from __future__ import annotations

import contextvars
import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CTYPES: tuple[type, ...] = (ctypes.c_int.__mro__[1], ctypes.Array, ctypes.Structure, ctypes.Union)
"""The bases of all ctypes objects but pointers and functions."""


@dataclass(frozen=True)
class Keeper:
    """How to read and to set what the objects of a kind keep."""

    read: Callable[[Any], Any]
    """Returns it."""
    write: Callable[[Any, Any], None]
    """Sets it."""


def keeper_of(value: Any) -> Keeper | None:
    """The keeper of an object; ``None`` if it is of no such kind, or does not let its value be set."""
    kind = type(value)
    if kind.__module__ == "multiprocessing.sharedctypes" and hasattr(value, "get_obj"):
        return _SHARED if _has_no_pointers(value.get_obj()) else None
    if isinstance(value, threading.Event) or kind.__module__ == "multiprocessing.synchronize":
        return _EVENT if hasattr(value, "is_set") else None
    if isinstance(value, CTYPES):
        return _CTYPES if _has_no_pointers(value) else None
    if isinstance(value, threading.local):
        return _LOCAL
    if isinstance(value, memoryview):
        return _VIEW if _can_be_written(value) else None
    if isinstance(value, contextvars.ContextVar):
        return _VARIABLE if _has_value(value) else None
    return None


def _has_no_pointers(value: Any) -> bool:
    try:
        value.__reduce__()
    except ValueError:
        return False
    return True


def _can_be_written(view: memoryview) -> bool:
    try:
        return view.c_contiguous and not view.readonly
    except ValueError:  # it is released
        return False


def _has_value(variable: contextvars.ContextVar[Any]) -> bool:
    try:
        variable.get()
    except LookupError:
        return False
    return True


def _write_bytes(value: Any, content: bytes) -> None:
    ctypes.memmove(ctypes.addressof(value), content, len(content))


def _write_local(local: threading.local, values: dict[str, Any]) -> None:
    vars(local).clear()
    vars(local).update(values)


def _write_view(view: memoryview, content: bytes) -> None:
    view.cast("B")[:] = content


_CTYPES = Keeper(bytes, _write_bytes)
_SHARED = Keeper(
    lambda value: bytes(value.get_obj()), lambda value, content: _write_bytes(value.get_obj(), content)
)
_EVENT = Keeper(lambda event: event.is_set(), lambda event, is_set: (event.set if is_set else event.clear)())
_LOCAL = Keeper(lambda local: dict(vars(local)), _write_local)
_VIEW = Keeper(memoryview.tobytes, _write_view)
_VARIABLE = Keeper(contextvars.ContextVar.get, lambda variable, content: (variable.set(content), None)[1])
