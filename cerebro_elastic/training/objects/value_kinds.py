"""Kinds of values without parts: those of Python's library, and random generators."""

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
import torch

from cerebro_elastic.training.generators import numpy_state, set_numpy_state
from cerebro_elastic.training.objects.kinds import Kind, Tree, name_of, of

_VALUES = (
    datetime.date, datetime.datetime, datetime.time, datetime.timedelta, decimal.Decimal,
    fractions.Fraction, range, slice, pathlib.PurePosixPath, pathlib.PureWindowsPath, type(pathlib.Path()),
)  # fmt: skip
"""Types without an identity, whose ``__reduce__`` is a call of the type with plain arguments."""


def _name_of_member(member: Enum) -> Any:
    return member.value if isinstance(member, Flag) else member.name


def _member(kind: Any, content: Any) -> Enum:
    """A member by its name; of a ``Flag``, which may have several, by its value."""
    return kind[content] if isinstance(content, str) else kind(content)  # type: ignore[no-any-return]


VALUES = (
    Kind("member", of(Enum), _name_of_member, build=_member, identity=False),
    Kind(  # where a config trains is no part of its state
        "device", of(torch.device), str, make=lambda kind, tree: kind(tree["value"]), made=(torch.device,),
        identity=False,
    ),
    Kind(
        "value", _VALUES.__contains__, lambda value: list(value.__reduce__()[1:]),
        build=lambda kind, parts: kind(*parts[0]), made=_VALUES, identity=False,
    ),
)  # fmt: skip

_BITS = (np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64)


def _with_bits(kind: Any, tree: Tree) -> Any:
    return kind(getattr(np.random, tree["value"]["bit_generator"])())


def _generator(kind: type, get: Callable[[Any], Any], put: Callable[[Any, Any], object], **more: Any) -> Kind:
    return Kind(name_of(kind), of(kind), get, put, attributes=True, **{"made": (kind,), **more})


GENERATORS = (
    _generator(torch.Generator, torch.Generator.get_state, torch.Generator.set_state),
    _generator(np.random.Generator, numpy_state, set_numpy_state, make=_with_bits),
    _generator(np.random.BitGenerator, numpy_state, set_numpy_state, made=_BITS),
    _generator(np.random.RandomState, np.random.RandomState.get_state, np.random.RandomState.set_state),
    _generator(random.Random, random.Random.getstate, random.Random.setstate),
)
"""The random generators of torch, numpy and Python."""
