"""The attributes of an instance, in its ``__dict__`` and its slots. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OF_PROCESS = frozenset({"_original_object_hash"})
"""Attributes that a library makes by ``hash``, which differs from process to process: that of a
``GenerationConfig`` of transformers."""


_COMPILERS_MARKS = ("_dynamo", "_torchdynamo")


def made_by_compiler(name: str) -> bool:
    """Whether ``torch.compile`` has set an attribute of this name, on a module, a function or a tensor. Some
    hold an ``id``, and some are there only in the process that has compiled."""
    return name.startswith(_COMPILERS_MARKS)


def attributes_of(value: object) -> dict[str, Any]:
    """The attributes of an instance, by name, without those that are valid in this process only."""
    kept = {n: item for n, item in getattr(value, "__dict__", {}).items() if n not in _OF_PROCESS}
    for name in _slots_of(type(value)):
        try:
            kept[name] = object.__getattribute__(value, name)
        except AttributeError:
            continue
    return kept


def set_attributes(value: object, attributes: Mapping[str, Any]) -> None:
    """Set these attributes of ``value`` and remove all others, without running its own code."""
    slots = set(_slots_of(type(value)))
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


def _slots_of(kind: type) -> list[str]:
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
