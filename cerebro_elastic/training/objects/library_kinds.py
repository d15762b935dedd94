"""Kinds of values of Python's library, of numpy and of torch that keep something of their own."""

from __future__ import annotations

import array
import contextvars
import ctypes
import datetime
import decimal
import fractions
import io
import itertools
import pathlib
import queue
import random
import threading
import warnings
from collections.abc import Callable, Mapping
from enum import Enum, Flag
from typing import Any

import numpy as np
import torch

from cerebro_elastic.registry import is_users
from cerebro_elastic.training.objects.kinds import Kind, Tree, name_of, nothing, of

_VALUES = (
    datetime.date, datetime.datetime, datetime.time, datetime.timedelta, decimal.Decimal,
    fractions.Fraction, range, slice, pathlib.PurePosixPath, pathlib.PureWindowsPath, type(pathlib.Path()),
)  # fmt: skip
"""Types without an identity, whose ``__reduce__`` is a call of the type with plain arguments."""
_REFER_TO_OTHERS = (datetime.datetime, datetime.time, slice)

_ITERATORS: tuple[Any, ...] = (
    iter, reversed, enumerate, zip, map, filter,
    *(kind for kind in vars(itertools).values() if isinstance(kind, type)),
)  # fmt: skip
"""What an iterator that can be copied says that it was made by."""

_CTYPES: tuple[type, ...] = (ctypes.c_int.__mro__[1], ctypes.Array, ctypes.Structure, ctypes.Union)
"""The bases of all ctypes objects but pointers and functions."""


def _name_of_member(member: Enum) -> Any:
    return member.value if isinstance(member, Flag) else member.name


def _member(kind: Any, content: Any) -> Enum:
    """A member by its name; of a ``Flag``, which may have several, by its value."""
    return kind[content] if isinstance(content, str) else kind(content)  # type: ignore[no-any-return]


def _reduce(value: Any) -> list[Any]:
    """What ``value`` says that it was made by, its arguments, and its state; nothing of that is called. Only
    ``None`` if it cannot be taken apart."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python is about to take this from its iterators
        try:
            return list(value.__reduce__())
        except Exception:  # whatever it raises
            return [None]


def _reduced(value: Any) -> list[Any] | None:
    maker, *parts = _reduce(value)
    return parts if maker is type(value) or maker in _ITERATORS else None


def _maker(value: Any) -> Any:
    return _reduce(value)[0]


def _again(maker: Any, parts: list[Any]) -> Any:
    arguments, *state = parts
    value = maker(*arguments)
    if state and state[0] is not None:
        value.__setstate__(state[0])
    return value


def _iterates(kind: type) -> bool:
    return hasattr(kind, "__next__") and not is_users(kind) and not issubclass(kind, io.IOBase)


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


_BITS = (np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64)


def _with_bits(kind: Any, tree: Tree) -> Any:
    return kind(getattr(np.random, tree["value"]["bit_generator"])())


def _generator(kind: type, get: Callable[[Any], Any], put: Callable[[Any, Any], object], **more: Any) -> Kind:
    return Kind(name_of(kind), of(kind), get, put, attributes=True, **{"made": (kind,), **more})


GENERATORS = (
    _generator(torch.Generator, torch.Generator.get_state, torch.Generator.set_state),
    _generator(np.random.Generator, _get_numpy, _set_numpy, make=_with_bits),
    _generator(np.random.BitGenerator, _get_numpy, _set_numpy, made=_BITS),
    _generator(np.random.RandomState, np.random.RandomState.get_state, np.random.RandomState.set_state),
    _generator(random.Random, random.Random.getstate, random.Random.setstate),
)
"""The random generators of torch, numpy and Python."""


def is_generator(value: Any) -> bool:
    """Whether ``value`` is a random generator of torch, numpy or Python."""
    return any(kind.matches(type(value)) for kind in GENERATORS)


def _has_no_pointers(value: Any) -> bool:
    try:
        value.__reduce__()
    except ValueError:
        return False
    return True


def _in_ctypes(value: Any) -> bytes | None:
    return bytes(value) if _has_no_pointers(value) else None


def _put_bytes(value: Any, content: bytes) -> None:
    ctypes.memmove(ctypes.addressof(value), content, len(content))


def _put_local(local: threading.local, values: Mapping[str, Any]) -> None:
    vars(local).clear()
    vars(local).update(values)


def _in_view(view: memoryview) -> bytes | None:
    try:
        return view.tobytes() if view.c_contiguous and not view.readonly else None
    except ValueError:  # it is released
        return None


def _put_view(view: memoryview, content: bytes) -> None:
    view.cast("B")[:] = content


def _is_event(kind: type) -> bool:
    known = issubclass(kind, threading.Event) or kind.__module__ == "multiprocessing.synchronize"
    return known and hasattr(kind, "is_set")


def _is_shared(kind: type) -> bool:
    return kind.__module__ == "multiprocessing.sharedctypes" and hasattr(kind, "get_obj")


def _in_variable(variable: contextvars.ContextVar[Any]) -> list[Any] | None:
    try:
        return [variable.get()]
    except LookupError:
        return None


def _set_event(event: threading.Event, is_set: bool) -> None:
    (event.set if is_set else event.clear)()


KEEPERS = (
    Kind(
        "shared ctypes", _is_shared, lambda value: _in_ctypes(value.get_obj()),
        lambda value, content: _put_bytes(value.get_obj(), content),
    ),
    Kind("event", _is_event, lambda event: event.is_set(), _set_event),
    Kind("ctypes", of(*_CTYPES), _in_ctypes, _put_bytes),
    Kind("local", of(threading.local), lambda local: dict(vars(local)), _put_local),
    Kind("memory view", of(memoryview), _in_view, _put_view),
    Kind("context variable", of(contextvars.ContextVar), _in_variable, lambda var, parts: var.set(parts[0])),
)  # fmt: skip
"""What keeps a value which its users read and set."""


def _exactly(kind: type) -> Callable[[type], bool]:
    return lambda own: own is kind


def _fill(present: Any, content: Any) -> None:
    present[:] = content if isinstance(present, bytearray) else array.array(present.typecode, content)


_STREAMS: tuple[Any, ...] = (io.BytesIO, io.StringIO)

BUFFERS = (
    Kind("bytearray", _exactly(bytearray), bytes, _fill, made=(bytearray,)),
    Kind(
        "array", _exactly(array.array), array.array.tobytes, _fill, lambda kind, tree: kind(tree["typecode"]),
        options=lambda value: {"typecode": value.typecode}, made=(array.array,),
    ),
    *(
        Kind(kind.__name__, _exactly(kind), kind.__getstate__, kind.__setstate__, made=(kind,))
        for kind in _STREAMS
    ),
    Kind(
        "queue", of(queue.Queue), lambda value: {"queue": value.queue},
        lambda value, parts: vars(value).update(parts),
    ),
)  # fmt: skip

VALUES = (
    Kind("member", of(Enum), _name_of_member, build=_member, identity=False, watch=nothing),
    Kind(  # where a config trains is no part of its state
        "device", of(torch.device), str, make=lambda kind, tree: kind(tree["value"]), made=(torch.device,),
        identity=False, watch=nothing,
    ),
    Kind(
        "value", _VALUES.__contains__, _reduced, build=_again, made=_VALUES, identity=False,
        watch=lambda value: None if isinstance(value, _REFER_TO_OTHERS) else [],
    ),
)  # fmt: skip

ITERATOR = Kind("iterator", _iterates, _reduced, build=_again, made=_ITERATORS, type_of=_maker)
