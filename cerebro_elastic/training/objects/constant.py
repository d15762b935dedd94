"""Objects that do not hop. One that a constructor has made may not change in a unit, as far as is cheap to
see."""

from __future__ import annotations

import array
import io
from typing import Any

import numpy as np

from cerebro_elastic.training.objects.kinds import name_of

_LARGEST = 1 << 20
"""In bytes: what is larger is compared by its length."""


def token(value: Any) -> tuple[Any, ...]:
    """Another one if ``value`` is another object, or has another length, or a small one other content."""
    return type(value).__qualname__, id(value), _length(value), _content(value)


def is_iterator(value: Any) -> bool:
    """Whether ``value`` moves each time that it is used, and has no position that can be read."""
    return hasattr(type(value), "__next__") and not isinstance(value, io.IOBase)


def refusal_of_iterator(name: str, value: Any) -> str:
    return (
        f"{name} is a {name_of(type(value))}: its position can neither be read nor hop to another node. Keep "
        "what it iterates over and a number, take the iterator in the method that uses it, or give its class "
        "state_dict and load_state_dict"
    )


def _length(value: Any) -> Any:
    try:
        return len(value)
    except Exception:  # whatever an object of a library raises
        return None


def _content(value: Any) -> Any:
    if isinstance(value, bytearray | array.array) and len(value) <= _LARGEST:
        return bytes(value)
    size = getattr(value, "nbytes", None)
    if isinstance(size, int | np.integer) and size > _LARGEST:
        return None
    if isinstance(value, np.ndarray) or type(value).__module__.partition(".")[0] == "pandas":
        return _items(value)
    return None


def _items(value: Any) -> Any:
    """Those of an array, or of a table of pandas."""
    try:
        content = np.asarray(value)
    except Exception:  # whatever a class of a library raises
        return None
    if content.nbytes > _LARGEST:
        return None
    return [*map(id, content.flat)] if content.dtype.hasobject else content.tobytes()
