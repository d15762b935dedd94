"""What a snapshot of objects sees: every change that identity can show, and nothing that it cannot."""

from __future__ import annotations

import functools
import itertools
import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from cerebro_elastic.training.objects.object_index import ObjectIndex
from cerebro_elastic.training.objects.pristine import CannotWatch, Snapshot


class Plain:
    def __init__(self) -> None:
        self.inner = [1]


class Other(Plain): ...


class Slotted:
    __slots__ = ("one", "two")

    def __init__(self) -> None:
        self.one = {"a": 1}


def closes_over(value: Any) -> Any:
    def function(default: Any = [value], *, keyword: Any = {"k": value}) -> Any:  # noqa: B006
        return value, default, keyword

    return function


def _set_cell(function: Any) -> None:
    function.__closure__[0].cell_contents = 2


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "a list grows": (lambda: [1], lambda v: v.append(2)),
    "an item of a list in a tuple": (lambda: ([1],), lambda v: v[0].__setitem__(0, 2)),
    "a dict's value": (lambda: {"a": 1}, lambda v: v.update(a=2)),
    "a dict's key": (lambda: {"a": None}, lambda v: (v.pop("a"), v.update(b=None))),
    "a dict's order": (lambda: {"a": 1, "b": 1}, lambda v: v.update(a=v.pop("a"))),
    "a set": (lambda: {1}, lambda v: v.add(2)),
    "a dict in a dict": (lambda: {"a": {"b": 1}}, lambda v: v["a"].clear()),
    "an attribute": (Plain, lambda v: setattr(v, "inner", [1])),
    "a new attribute": (Plain, lambda v: setattr(v, "more", None)),
    "in an attribute": (Plain, lambda v: v.inner.append(2)),
    "a class": (Plain, lambda v: setattr(v, "__class__", Other)),
    "a slot": (Slotted, lambda v: setattr(v, "two", 2)),
    "in a slot": (Slotted, lambda v: v.one.clear()),
    "a closure": (lambda: closes_over(1), _set_cell),
    "in a closure": (lambda: closes_over([1]), lambda v: v()[0].append(2)),
    "in a default": (lambda: closes_over(1), lambda v: v.__defaults__[0].append(2)),
    "a default": (lambda: closes_over(1), lambda v: setattr(v, "__defaults__", ([1],))),
    "in a keyword's default": (lambda: closes_over(1), lambda v: v.__kwdefaults__.clear()),
    "a function's attribute": (lambda: {"f": closes_over}, lambda _: setattr(closes_over, "calls", 1)),
    "a partial's argument": (lambda: functools.partial(print, [1]), lambda v: v.args[0].append(2)),
    "a method's owner": (lambda: [Plain().__init__], lambda v: v[0].__self__.inner.append(2)),  # type: ignore[misc]
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name: str) -> None:
    make, change = CHANGES[name]
    value, beside = make(), make()
    snapshot = Snapshot(value, ObjectIndex())
    assert snapshot.shows(value)
    assert not snapshot.shows(beside), "it is another object"
    change(value)
    try:
        assert not snapshot.shows(value)
    finally:
        vars(closes_over).pop("calls", None)


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(1), np.zeros(1), torch.nn.Linear(1, 1), torch.Generator(), random.Random(0),
        np.random.default_rng(0), iter([1]), itertools.count(), bytearray(1), Counter("a"), deque([1]),
        torch.optim.SGD([torch.zeros(1)]), slice([1], None),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_values_that_change_unseen_are_not_watched(value: Any) -> None:
    with pytest.raises(CannotWatch):
        Snapshot({"deep": [value]}, ObjectIndex())
