"""What types and functions are, without a look at what they hold: whose they are, and their attributes."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from enum import Enum
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

LEAVES = {type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.Size}
"""Types whose values have no parts and no identity."""

CONSTANT = frozenset(("inspect", "logging", "re", "threading", "typing"))
"""Modules whose objects do not affect training."""

_PYTHON_CLASS = 1 << 9  # Py_TPFLAGS_HEAPTYPE: what an instance keeps is in its __dict__ and its slots


def is_key(key: Any) -> bool:
    """Whether a dict's key or a set's item is its own tree."""
    return type(key) in LEAVES or (type(key) is tuple and all(map(is_key, key)))


def carries_itself(kind: type) -> bool:
    """Whether a class has ``state_dict`` and ``load_state_dict``, and they are complete: those of torch's
    schedulers leave out what their functions keep."""
    both = all(callable(getattr(kind, name, None)) for name in ("state_dict", "load_state_dict"))
    return both and not issubclass(kind, LRScheduler)


def name_of(kind: Any) -> str:
    """A type's full name."""
    return f"{kind.__module__}.{kind.__qualname__}"


def is_simple(kind: type) -> bool:
    """Whether instances are no more than their ``__dict__`` and their slots."""
    return kind is not functools.partial and all(
        base.__flags__ & _PYTHON_CLASS or base in (object, types.SimpleNamespace) for base in kind.__mro__
    )


def is_made_empty(kind: type) -> bool:
    """Whether an instance, or a value, of a class of the user's can be made without its constructor."""
    if issubclass(kind, nn.Module):
        return False
    return issubclass(kind, Enum | tuple | dict | list | set) or is_simple(kind)


def slots_of(kind: type) -> list[str]:
    """The names of all slots but ``__dict__`` and ``__weakref__``."""
    names: list[str] = []
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name in ("__dict__", "__weakref__"):
                continue
            private = name.startswith("__") and not name.endswith("__")
            names.append(f"_{base.__name__.lstrip('_')}{name}" if private else name)
    return names


def attributes_of(value: object) -> dict[str, Any]:
    """The attributes of an instance, by name."""
    kept = dict(getattr(value, "__dict__", {}))
    for name in slots_of(type(value)):
        try:
            kept[name] = object.__getattribute__(value, name)
        except AttributeError:
            continue
    return kept


def set_attributes(value: object, attributes: Mapping[str, Any]) -> None:
    """Set these attributes of ``value`` and remove all others, without running its own code."""
    slots = set(slots_of(type(value)))
    for name in attributes_of(value).keys() - attributes.keys():
        if name in slots:
            object.__delattr__(value, name)
        else:
            del vars(value)[name]
    for name, item in attributes.items():
        if name in slots:
            object.__setattr__(value, name, item)
        else:
            vars(value)[name] = item


def has_state(function: FunctionType) -> bool:
    """Whether a function keeps anything that may change."""
    closes_over = set(function.__code__.co_freevars) - {"__class__"}
    return bool(closes_over or function.__defaults__ or function.__kwdefaults__ or vars(function))
