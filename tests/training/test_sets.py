"""Sets come back in their order, or it shows that they do not."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cerebro_elastic.training.objects import sets
from cerebro_elastic.training.objects.decoder import Decoder
from cerebro_elastic.training.objects.encoder import Encoder
from cerebro_elastic.training.objects.object_index import ObjectIndex

CPU = torch.device("cpu")


@pytest.mark.parametrize("size", [3, 50, 3000])
def test_a_set_from_which_items_were_taken_goes_on_with_the_next(size: int) -> None:
    taken, present = set(range(100, 100 + size)), set(range(100, 100 + size))
    for _ in range(size // 2):
        taken.pop()
    sets.refill(present, list(taken))
    assert list(present) == list(taken)
    assert [present.pop() for _ in range(3 % len(taken))] == [taken.pop() for _ in range(3 % len(taken))]


@pytest.mark.parametrize("size", [3, 50, 3000])
def test_a_set_that_is_put_back_has_no_past(size: int) -> None:
    new, present = set(range(100, 100 + size)), set(range(100, 100 + size))
    for _ in range(size // 2 + 1):
        present.pop()
    sets.refill(present, list(new), as_new=True)
    assert [present.pop() for _ in range(size)] == [new.pop() for _ in range(size)]


def test_few_items_come_back_in_any_order_that_they_can_have() -> None:
    there = {8, 0, 16}
    present = {0, 8}
    sets.refill(present, list(there))
    assert list(present) == list(there)


@pytest.mark.parametrize("kind", ["small", "large", "float", "pairs"])
@pytest.mark.parametrize("past", ["made at once", "of a dict", "removed", "popped"])
@pytest.mark.parametrize("size", [5, 10, 76, 300])
def test_any_set_of_numbers_is_built_again_place_by_place(kind: str, past: str, size: int) -> None:
    """The same items then come next, whatever is added."""
    draw = random.Random(f"{kind} {past} {size}")
    values: list[Any] = {
        "small": lambda: draw.sample(range(3 * size), size),
        "large": lambda: [draw.randrange(-(10**15), 10**15) for _ in range(size)],
        "float": lambda: [draw.random() for _ in range(size)],
        "pairs": lambda: [(draw.randrange(1000), draw.randrange(1000)) for _ in range(size)],
    }[kind]()
    there = set(dict.fromkeys(values)) if past == "of a dict" else set(values)
    if past == "removed":
        there -= set(values[: size // 4])
        for value in values[size // 4 : size // 2]:
            there.discard(value)
    if past == "popped":
        for _ in range(size // 2):
            there.pop()
    tree = Encoder().tree(there)
    present: set[Any] = Decoder(ObjectIndex({}, {"": set(values[:3])}), CPU, as_new=True).value(tree)
    assert list(present) == list(there)
    assert Encoder().tree(present) == tree
    for value in range(10_000, 10_000 + size):
        there.add(value)
        present.add(value)
        assert list(present) == list(there)


PASTS: dict[str, Callable[[list[int]], frozenset[int]]] = {
    "of a list": frozenset,
    "of a dict": lambda values: frozenset(dict.fromkeys(values)),
    "of a set": lambda values: frozenset(set(values)),
    "a union": lambda values: frozenset(values[:2]) | set(values[2:]),
    "without one": lambda values: frozenset(values) - {values[0]},
    "a difference": lambda values: frozenset(values) - set(values[: len(values) // 3]),
}


@pytest.mark.parametrize("past", PASTS)
@pytest.mark.parametrize("size", [3, 5, 10, 76, 300])
def test_any_frozen_set_of_numbers_is_built_again_in_its_order(past: str, size: int) -> None:
    draw = random.Random(f"{past} {size}")
    for _ in range(10):
        there = PASTS[past]([draw.randrange(-(10**15), 10**15) for _ in range(size)])
        again = Decoder(ObjectIndex(), CPU).value(Encoder().tree(there))
        assert type(again) is frozenset
        assert list(again) == list(there)


def test_only_numbers_have_an_order_that_is_the_same_in_every_process() -> None:
    assert sets.has_order([1, 2.5, (3, True)])
    assert not sets.has_order([1, "a"])
    assert not sets.has_order([(1, "a")])
