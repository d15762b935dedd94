"""The generators that objects carry are found wherever they are, and begin with a seed."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset

from cerebro_elastic.data.user_state import ForeignGenerators
from cerebro_elastic.errors import TaskError

KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], float]]] = {
    "python": (random.Random, lambda own: own.random()),
    "numpy": (np.random.default_rng, lambda own: own.random()),
    "numpy, philox": (lambda: np.random.Generator(np.random.Philox()), lambda own: own.normal()),
    "numpy, old": (np.random.RandomState, lambda own: own.randn()),
    "torch": (torch.Generator, lambda own: float(torch.rand(1, generator=own))),
}


class Holder:
    """An object of a library, say a ``Compose``."""

    def __init__(self, *transforms: Any, **named: Any) -> None:
        self.transforms = transforms
        vars(self).update(named)

    def __getitem__(self, row: int) -> int:
        return row

    def __len__(self) -> int:
        return 4


class Slotted:
    __slots__ = ("own",)

    def __init__(self, own: Any) -> None:
        self.own = own


def shared_by_class(own: Any) -> Any:
    return type("WithClassAttribute", (Holder,), {"R": own})()


def closure(own: Any) -> Any:
    return lambda row: (row, own)


def default(own: Any) -> Any:
    def transform(row: Any, *, rng: Any = own) -> Any:
        return row, rng

    return transform


PLACES: dict[str, Callable[[Any], Any]] = {
    "an attribute": lambda own: Holder(own=own),
    "a Compose in a Compose": lambda own: Holder(Holder(1), Holder(Holder(rng=own))),
    "a Subset of a ConcatDataset": lambda own: Subset(ConcatDataset([Holder(rng=own)]), [0]),  # type: ignore[list-item]
    "a dict": lambda own: {"train": [Holder(own)]},
    "a class": shared_by_class,
    "a slot": Slotted,
    "a closure": closure,
    "a default": default,
    "a partial call": lambda own: partial(print, Holder(), rng=own),
    "a method": lambda own: Holder(rng=own).__getitem__,
    "a module": lambda own: torch.nn.Sequential(torch.nn.Identity(), _Module(own)),
}


class _Module(torch.nn.Module):
    def __init__(self, own: Any) -> None:
        super().__init__()
        self.own = own


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_generator_begins_with_the_seed_wherever_it_is(place: str, kind: str) -> None:
    make, draw = KINDS[kind]
    own = make()
    found = ForeignGenerators({"transform": PLACES[place](own)})
    assert any(each is own for each in found.by_path.values()), found.by_path
    with found.seeded(3):
        first = [draw(own), draw(own)]
    expected = draw(own)
    with found.seeded(3):
        draw(own)
        assert draw(own) == first[1]
    assert draw(own) != expected  # it has gone on behind the block
    found.seed(4)
    assert draw(own) != first[0]


def test_two_generators_get_different_seeds() -> None:
    one, other = np.random.default_rng(), np.random.default_rng()
    ForeignGenerators({"transform": [one, other]}).seed(1)
    assert one.random() != other.random()


def test_the_global_generators_are_not_foreign() -> None:
    drawn = [random.random, np.random.random, torch.default_generator, threading.Lock()]
    assert ForeignGenerators({"transform": Holder(*drawn, seed=np.random.seed)}).by_path == {}


def test_a_generator_without_a_seed_is_refused_by_name() -> None:
    found = ForeignGenerators({"transform": Holder(rng=random.SystemRandom())})
    with pytest.raises(TaskError, match=r"transform\.rng, a SystemRandom, cannot be seeded"), found.seeded(1):
        pass
