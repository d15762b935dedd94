"""The types of values: which are their own tree, which are taken apart, and how each is made again."""

from __future__ import annotations

import argparse
import array
import collections
import datetime
import decimal
import fractions
import functools
import io
import itertools
import pathlib
import random
import sys
import sysconfig
import types
import warnings
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

KNOWN, SAME, VIEW, PLACED, OPAQUE = "known", "same", "view", "placed", "opaque"
FUNCTION, METHOD, CELL, REDUCED = "function", "method", "cell", "reduced"
ORDERED = "set in its order"
ON_ACCELERATOR = "tensor on an accelerator"
LEAF_TENSOR = "tensor that requires grad"

LEAVES = {type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.Size}
"""Types whose values have no parts and no identity."""

CONSTANT = frozenset(("inspect", "logging", "re", "threading", "typing"))
"""Modules whose objects do not affect training."""

_PYTHON_CLASS = 1 << 9  # Py_TPFLAGS_HEAPTYPE: what an instance keeps is in its __dict__ and its slots


def carries_itself(value: object) -> bool:
    """Whether a value's class has ``state_dict`` and ``load_state_dict``, and they are complete: those of
    torch's schedulers leave out what their functions keep."""
    both = all(callable(getattr(type(value), name, None)) for name in ("state_dict", "load_state_dict"))
    return both and not isinstance(value, LRScheduler)


def name_of(kind: type) -> str:
    """A type's full name."""
    return f"{kind.__module__}.{kind.__qualname__}"


def is_users(thing: Any) -> bool:
    """Whether a class or a function was written by the user: it is in no library and not in this package."""
    return _is_users_module(getattr(thing, "__module__", None) or "")


@functools.lru_cache(maxsize=4096)
def _is_users_module(name: str) -> bool:
    if name.partition(".")[0] in {
        "builtins",
        "cerebro_elastic",
        "cerebro_lightning",
        *sys.stdlib_module_names,
    }:
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None:
        return name in sys.modules
    path = Path(file).resolve()
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return not (installed or any(path.is_relative_to(library) for library in _LIBRARIES))


_LIBRARIES = (Path(sysconfig.get_path("stdlib")).resolve(), Path(__file__).resolve().parents[2])


def is_simple(kind: type) -> bool:
    """Whether instances are no more than their ``__dict__`` and their slots."""
    return kind is not functools.partial and all(
        base.__flags__ & _PYTHON_CLASS or base in (object, types.SimpleNamespace) for base in kind.__mro__
    )


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


def _bits_of(generator: Any) -> Any:
    return getattr(generator, "bit_generator", generator)


def _get_numpy(generator: Any) -> dict[str, Any]:
    """Of its seeds, too: ``spawn`` makes generators by them, and counts those that it has made."""
    bits = _bits_of(generator)
    seeds = {"seeds": bits.seed_seq.state} if type(bits.seed_seq) is np.random.SeedSequence else {}
    return {**bits.state, **seeds}


def _set_numpy(generator: Any, state: Mapping[str, Any]) -> None:
    bits = _bits_of(generator)
    own = {name: value for name, value in state.items() if name != "seeds"}
    if (seeds := state.get("seeds")) is not None and (bits.seed_seq is None or bits.seed_seq.state != seeds):
        bits.__setstate__((own, np.random.SeedSequence(**seeds)))
    else:
        bits.state = own


def _make_numpy(state: Mapping[str, Any]) -> np.random.BitGenerator:
    bits: np.random.BitGenerator = getattr(np.random, state["bit_generator"])()
    return bits


class GeneratorKind(NamedTuple):
    """How the random generators of a kind are handled."""

    make: Callable[[Any], Any]
    """Makes one for a state."""
    get: Callable[[Any], Any]
    """Returns the state of one."""
    put: Callable[[Any, Any], object]
    """Sets it."""


GENERATORS: dict[type, GeneratorKind] = {
    torch.Generator: GeneratorKind(
        lambda _: torch.Generator(), torch.Generator.get_state, torch.Generator.set_state
    ),
    np.random.Generator: GeneratorKind(
        lambda state: np.random.Generator(_make_numpy(state)), _get_numpy, _set_numpy
    ),
    np.random.BitGenerator: GeneratorKind(_make_numpy, _get_numpy, _set_numpy),
    np.random.RandomState: GeneratorKind(
        lambda _: np.random.RandomState(), np.random.RandomState.get_state, np.random.RandomState.set_state
    ),
    random.Random: GeneratorKind(lambda _: random.Random(), random.Random.getstate, random.Random.setstate),
}
"""The random generators of torch, numpy and Python, by their class."""

GENERATOR_NAMES: dict[str, GeneratorKind] = {
    **{name_of(kind): how for kind, how in GENERATORS.items()},
    **{
        name_of(kind): GENERATORS[np.random.BitGenerator]
        for kind in (
            np.random.MT19937,
            np.random.PCG64,
            np.random.PCG64DXSM,
            np.random.Philox,
            np.random.SFC64,
        )
    },
}
"""Generators that can be made by the name of their class."""

_IN_ITS_STATE = "gauss_next"
"""The attribute of a ``random.Random`` that is part of its state."""


def generator_kind(value: Any) -> GeneratorKind | None:
    """How to handle a random generator; ``None`` if ``value`` is none."""
    return next((kind for base, kind in GENERATORS.items() if isinstance(value, base)), None)


def is_generator(value: Any) -> bool:
    """Whether ``value`` is a random generator of torch, numpy or Python."""
    return generator_kind(value) is not None


def attributes_of_generator(value: Any) -> dict[str, Any]:
    """What a generator of a class of the user's keeps besides its state."""
    return {name: item for name, item in attributes_of(value).items() if name != _IN_ITS_STATE}


def set_attributes_of_generator(value: Any, attributes: Mapping[str, Any]) -> None:
    """Set them, and remove all others."""
    state = {name: item for name, item in attributes_of(value).items() if name == _IN_ITS_STATE}
    set_attributes(value, {**state, **attributes})


_FACTORIES = {kind.__name__: kind for kind in (list, dict, set, int, float, str, tuple, bool)}

CONTAINERS: dict[str, Callable[[], Any]] = {
    name_of(kind): kind
    for kind in (
        dict, list, set, collections.OrderedDict, collections.Counter, collections.defaultdict,
        collections.deque, types.SimpleNamespace, argparse.Namespace,
    )
}  # fmt: skip
"""What can be made by name, empty."""

_VALUES = (
    datetime.date, datetime.datetime, datetime.time, datetime.timedelta, decimal.Decimal,
    fractions.Fraction, range, slice, pathlib.PurePosixPath, pathlib.PureWindowsPath, type(pathlib.Path()),
)  # fmt: skip
VALUES: dict[str, type] = {name_of(kind): kind for kind in _VALUES}
"""Types without an identity, whose ``__reduce__`` is a call of the type with plain arguments."""
VALUE_TYPES = frozenset(VALUES.values())

_ITERATORS: tuple[Any, ...] = (
    iter, reversed, enumerate, zip, map, filter,
    *(kind for kind in vars(itertools).values() if isinstance(kind, type)),
)  # fmt: skip
ITERATORS: dict[str, Callable[..., Any]] = {
    f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', '')}": kind for kind in _ITERATORS
}
"""What an iterator that can be copied says that it was made by."""

BUFFERS: dict[type, tuple[Callable[[Any], Any], Callable[[Any, Any], None]]] = {
    bytearray: (bytes, lambda present, value: present.__setitem__(slice(None), value)),
    array.array: (
        lambda value: (value.typecode, value.tobytes()),
        lambda present, value: present.__setitem__(slice(None), array.array(value[0], value[1])),
    ),
    io.BytesIO: (io.BytesIO.__getstate__, lambda present, state: present.__setstate__(state)),
    io.StringIO: (io.StringIO.__getstate__, lambda present, state: present.__setstate__(state)),
}
"""Buffers of the standard library: how to read them, and to write into one that is there."""

MADE_BUFFERS: dict[str, Callable[[Any], Any]] = {
    name_of(bytearray): lambda _: bytearray(),
    name_of(array.array): lambda value: array.array(value[0]),
    name_of(io.BytesIO): lambda _: io.BytesIO(),
    name_of(io.StringIO): lambda _: io.StringIO(),
}


_MADE_BY_NAME = {name_of(kind) for kind in (torch.device, nn.Parameter, frozenset)}


def factory_name(value: Any) -> str | None:
    """The name of a defaultdict's factory, if the factory can be found by it."""
    factory = getattr(value, "default_factory", None)
    return next((name for name, kind in _FACTORIES.items() if kind is factory), None)


def factory(name: str | None) -> Any:
    """The factory of this name."""
    return None if name is None else _FACTORIES[name]


def reduced(value: Any) -> tuple[Any, ...] | None:
    """What ``value.__reduce__`` returns, if it is an iterator or a value of the standard library; nothing of
    that is called."""
    kind = type(value)
    iterates = hasattr(kind, "__next__") and not is_users(kind) and not isinstance(value, io.IOBase)
    if not iterates and kind not in VALUE_TYPES:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python is about to take this from its iterators
        try:
            parts = value.__reduce__()
        except Exception:  # it cannot be taken apart
            return None
    return parts if isinstance(parts, tuple) else None


def can_be_made(tag: str, classes: Mapping[str, type]) -> bool:
    """Whether an object with this tag can be made without an existing one."""
    if tag in (KNOWN, SAME, VIEW, PLACED, METHOD, CELL, REDUCED, ORDERED, ON_ACCELERATOR, LEAF_TENSOR):
        return True
    if tag in CONTAINERS or tag in MADE_BUFFERS or tag in _MADE_BY_NAME or tag in GENERATOR_NAMES:
        return True
    return tag in classes and is_made_empty(classes[tag])


def is_made_empty(kind: type) -> bool:
    """Whether an instance, or a value, of a class of the user's can be made without its constructor."""
    if issubclass(kind, nn.Module):
        return False
    if issubclass(kind, Enum | tuple | dict | list | set):
        return True
    return is_simple(kind)


def has_state(function: FunctionType) -> bool:
    """Whether a function keeps anything that may change."""
    closes_over = set(function.__code__.co_freevars) - {"__class__"}
    return bool(closes_over or function.__defaults__ or function.__kwdefaults__ or vars(function))
