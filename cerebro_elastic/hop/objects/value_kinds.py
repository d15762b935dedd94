"""Kinds of values without parts: those of Python's library, numpy's, and random generators."""

from __future__ import annotations

import datetime
import decimal
import fractions
import pathlib
import random
from collections.abc import Callable
from enum import Enum, Flag
from typing import Any

import numpy as np

from cerebro_elastic.hop.generators import numpy_state, set_numpy_state
from cerebro_elastic.hop.objects.kinds import SAME, TAG, VIEW, Decodes, Encodes, Kind, Tree, name_of, of
from cerebro_elastic.hop.objects.object_index import into

_NUMBERS = "biufc"
"""The kinds of numpy's dtypes whose values hop."""

PLAIN_VALUES = (
    datetime.date, datetime.datetime, datetime.time, datetime.timedelta, decimal.Decimal,
    fractions.Fraction, range, slice, pathlib.PurePosixPath, pathlib.PureWindowsPath, type(pathlib.Path()),
)  # fmt: skip
"""Types without an identity, whose ``__reduce__`` is a call of the type with plain arguments."""


def _name_of_member(member: Enum) -> Any:
    return member.value if isinstance(member, Flag) else member.name


def _member(kind: Any, content: Any) -> Enum:
    """A member by its name; of a ``Flag``, which may have several, by its value."""
    return kind[content] if isinstance(content, str) else kind(content)  # type: ignore[no-any-return]


def view_of(value: Any, path: str, walk: Encodes) -> Tree | None:
    """The tree of an array or a tensor that is a view; ``None`` if it is the first with its memory."""
    view = walk.memory.view(value)
    if view is None:
        walk.memory.add(value, f"{SAME}:{path}")
        return None
    return {TAG: VIEW, "value": view}


class _Numbers(Kind):
    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        del path, walk
        return value if value.dtype.kind in _NUMBERS else None


class _Arrays(Kind):
    """An array is its own tree; one in Fortran's order, as scikit-learn's dictionaries are, is that of its
    transpose: products of matrices are rounded by the order of their values."""

    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        if type(value) is not np.ndarray or value.dtype.kind not in _NUMBERS:
            return None
        if (view := view_of(value, path, walk)) is not None:
            return view
        if value.flags.c_contiguous or not value.flags.f_contiguous:
            return value
        return {TAG: self.name, "type": name_of(np.ndarray), "value": value.T}

    def value(self, present: Any, tree: Tree, path: str, walk: Decodes) -> Any:
        return walk.keep(path, into(present, tree["value"].T))


VALUES = (
    _Numbers("number", of(np.generic), identity=False),
    _Arrays("numpy's array", of(np.ndarray), made=(np.ndarray,)),
    Kind("member", of(Enum), _name_of_member, build=_member, identity=False),
    Kind(
        "value", PLAIN_VALUES.__contains__, lambda value: list(value.__reduce__()[1:]),
        build=lambda kind, parts: kind(*parts[0]), made=PLAIN_VALUES, identity=False,
    ),
)  # fmt: skip

_BITS = (np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64)


def _with_bits(kind: Any, tree: Tree) -> Any:
    return kind(getattr(np.random, tree["value"]["bit_generator"])())


def generator_kind(
    kind: type, get: Callable[[Any], Any], put: Callable[[Any, Any], object], **more: Any
) -> Kind:
    """The row of a class of random generators."""
    return Kind(name_of(kind), of(kind), get, put, attributes=True, **{"made": (kind,), **more})


GENERATORS = (
    generator_kind(np.random.Generator, numpy_state, set_numpy_state, make=_with_bits),
    generator_kind(np.random.BitGenerator, numpy_state, set_numpy_state, made=_BITS),
    generator_kind(np.random.RandomState, np.random.RandomState.get_state, np.random.RandomState.set_state),
    generator_kind(random.Random, random.Random.getstate, random.Random.setstate),
)
"""The random generators of numpy and Python."""
