"""Tasks without torch refuse what the user's files keep and training changes."""

from __future__ import annotations

import functools
import itertools
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from cerebro_elastic.errors import TaskError
from cerebro_elastic.training.user_objects import UserGlobals, digest


def endless() -> Iterator[int]:
    number = 0
    while True:
        number += 1
        yield number


def counter() -> Callable[[], int]:
    count = 0

    def counted() -> int:
        nonlocal count
        count += 1
        return count

    return counted


class Own:
    calls = 0

    def __init__(self) -> None:
        self.seen: list[int] = []

    def see(self) -> None:
        self.seen.append(1)


def spawned(generator: np.random.Generator) -> None:
    generator.spawn(1)


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ([1], lambda v: v.append(2)),
        ({"a": [1]}, lambda v: v["a"].append(2)),
        ({1}, lambda v: v.add(2)),
        (deque([1]), lambda v: v.append(2)),
        (Counter("a"), lambda v: v.update("b")),
        (defaultdict(int), lambda v: v["a"]),
        (OrderedDict(a=1, b=2), lambda v: v.move_to_end("a")),
        (np.zeros(3), lambda v: v.fill(1.0)),
        (np.random.RandomState(0), lambda v: v.rand()),
        (np.random.default_rng(0), lambda v: v.random()),
        (np.random.default_rng(0), spawned),
        (random.Random(0), lambda v: v.random()),
        (itertools.count(), next),
        (iter([1, 2]), next),
        (endless(), next),
        (counter(), lambda v: v()),
        (functools.partial(counter()), lambda v: v()),
        (Own(), lambda v: v.see()),
        (Own().see, lambda v: v()),
        ((Own(), 1), lambda v: v[0].see()),
    ],
)
def test_a_change_in_place_is_seen(value: Any, change: Callable[[Any], Any]) -> None:
    before = digest(value)
    assert digest(value) == before
    change(value)
    assert digest(value) != before


RATES: dict[str, float] = {}


def train(kind: str) -> None:
    if kind == "dict":
        RATES["lr"] = 0.1
    elif kind == "class":
        Own.calls += 1
    elif kind == "function":
        train.calls = 1  # type: ignore[attr-defined]
    elif kind == "new":
        globals()["NEW"] = 1


@pytest.mark.parametrize(
    ("kind", "name"),
    [("dict", "RATES"), ("class", "Own.calls"), ("function", "train"), ("new", "NEW"), ("nothing", None)],
)
def test_state_kept_in_a_users_file_is_refused_by_name(kind: str, name: str | None) -> None:
    users = UserGlobals([train])
    train(kind)
    if name is None:
        users.check()
        return
    with pytest.raises(TaskError, match=rf"test_user_objects\.{name} changed in training"):
        users.check()
