"""The table of kinds: a row for each kind of value that a user's code may keep, tried in this order."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from cerebro_elastic.registry import is_users
from cerebro_elastic.training.objects.container_kinds import CONTAINERS
from cerebro_elastic.training.objects.kinds import Kind
from cerebro_elastic.training.objects.library_kinds import BUFFERS, GENERATORS, ITERATOR, KEEPERS, VALUES
from cerebro_elastic.training.objects.object_kinds import FUNCTIONS, OBJECTS
from cerebro_elastic.training.objects.tensor_kinds import TENSORS
from cerebro_elastic.training.objects.value_types import is_made_empty, name_of

KINDS: tuple[Kind, ...] = (
    *TENSORS, *VALUES, *GENERATORS, *KEEPERS, *BUFFERS, *CONTAINERS, ITERATOR, *FUNCTIONS, *OBJECTS
)  # fmt: skip

BY_NAME = {kind.name: kind for kind in KINDS}

_MADE = {name_of(made): made for kind in KINDS for made in kind.made}


class Rows(dict[type, tuple[Kind, ...]]):
    """The rows that fit the values of a type. One walk looks for those of each type once."""

    def __missing__(self, kind: type) -> tuple[Kind, ...]:
        self[kind] = rows = _fitting(kind) if is_users(kind) else _fitting_library(kind)
        return rows


def _fitting(kind: type) -> tuple[Kind, ...]:
    return tuple(row for row in KINDS if row.matches(kind))


_fitting_library = functools.lru_cache(maxsize=4096)(_fitting)
"""Not of classes of the user's: they come and go, with all that their files keep."""


def makeable(name: str, classes: Mapping[str, type]) -> Any:
    """What makes values without a constructor: a type of libraries, or one of the user's ``classes``, by its
    name. ``None`` if there is none."""
    defined = classes.get(name)
    return defined if defined is not None and is_made_empty(defined) else _MADE.get(name)
