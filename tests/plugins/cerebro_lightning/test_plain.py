"""Values become trees that a checkpoint holds, and come back into the objects found in their place."""

from __future__ import annotations

import copy
import functools
import random
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from enum import Enum
from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics
from lightning_harness import differences, hop
from torch import nn

from cerebro_elastic.training.objects.decoder import Decoder
from cerebro_elastic.training.objects.encoder import Encoder, NotSerializable, own_attributes
from cerebro_elastic.training.objects.value_types import name_of

CPU = torch.device("cpu")
Point = namedtuple("Point", "x y")


class Colour(Enum):
    RED = 1
    BLUE = 2


class Meter:
    def __init__(self, total: float = 0.0) -> None:
        self.total = total
        self.history = [total]


class Holder:
    """Has its state behind the usual two methods, and something that is not plain."""

    def __init__(self, value: int = 0) -> None:
        self._value = value
        self._function = len

    def state_dict(self) -> dict[str, int]:
        return {"value": self._value}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._value = state["value"]


class Slotted:
    __slots__ = ("x",)


def trip(value: Any, present: Any) -> Any:
    born = Encoder(strict=False)
    born.tree(present)
    classes = {name_of(type(value)): type(value) for value in born.index.objects.values()}
    return Decoder(born.index, CPU, {}, classes).value(hop({"value": Encoder().tree(value)})["value"])


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        2.5,
        1 + 2j,
        "text",
        b"bytes",
        float("inf"),
        torch.float16,
        torch.Size([2, 3]),
        torch.arange(6).reshape(2, 3),
        torch.tensor(1.5, dtype=torch.bfloat16),
        np.arange(3.0),
        np.float32(0.1),
        [1, [2.0, "x"], (3, None)],
        {1: "a", (2, "b"): [torch.ones(2)], None: {}},
        {1, 2},
        frozenset({"a"}),
    ],
)
def test_plain_values_are_their_own_tree(value: Any) -> None:
    assert not differences(value, trip(value, None))


@pytest.mark.parametrize(
    ("value", "present"),
    [
        (Colour.BLUE, Colour.RED),
        (Point(1, [2.0]), Point(0, [])),
        (OrderedDict(b=1, a=2), OrderedDict()),
        (Counter("abca"), Counter("zz")),
        (defaultdict(list, {1: [2.0]}), defaultdict(list)),
        (deque([1, 2], maxlen=2), deque([0], maxlen=2)),
        ({"cerebro.kind": "forged"}, {}),
        ({"inner": deque([1])}, {"inner": deque()}),
        ([Colour.RED, Colour.BLUE], [Colour.BLUE, Colour.BLUE]),
    ],
)
def test_other_containers_are_filled_in_place(value: Any, present: Any) -> None:
    before = type(present)
    found = trip(value, copy.deepcopy(present))
    assert found == value
    assert type(found) is before
    assert not isinstance(found, deque) or found.maxlen == 2


def test_objects_are_filled_in_place() -> None:
    meter, holder = Meter(), Holder()
    assert trip(Meter(2.5), meter) is meter
    assert (meter.total, meter.history) == (2.5, [2.5])
    assert trip(Holder(3), holder) is holder
    assert holder.state_dict() == {"value": 3}


@pytest.mark.parametrize(
    ("make", "draw"),
    [
        (lambda: torch.Generator().manual_seed(1), lambda g: torch.rand((), generator=g).item()),
        (lambda: np.random.default_rng(1), lambda g: g.random()),
        (lambda: np.random.RandomState(1), lambda g: g.rand()),
        (lambda: random.Random(1), lambda g: g.random()),
    ],
)
def test_generators_go_on_where_they_were(make: Any, draw: Any) -> None:
    generator = make()
    draw(generator)
    resumed = trip(generator, make())
    assert [draw(resumed) for _ in range(3)] == [draw(generator) for _ in range(3)]


def test_modules_in_attributes_keep_weights_and_attributes() -> None:
    metric = torchmetrics.MeanMetric()
    metric.update(torch.tensor([1.0, 4.0]))
    assert trip(metric, torchmetrics.MeanMetric()).compute() == 2.5
    layer = nn.Linear(2, 2).requires_grad_(False).eval()
    found = trip(layer, nn.Linear(2, 2))
    assert not differences(dict(layer.state_dict()), dict(found.state_dict()))
    assert not found.training
    assert not found.weight.requires_grad


def test_a_parameter_in_a_list_is_filled_in_place() -> None:
    present = [nn.Parameter(torch.zeros(2))]
    parameter = present[0]
    assert trip([nn.Parameter(torch.ones(2))], present)[0] is parameter
    assert parameter.tolist() == [1.0, 1.0]


def test_attributes_that_training_has_removed_are_removed() -> None:
    module, fresh = nn.Linear(1, 1), nn.Linear(1, 1)
    fresh.extra = 1  # type: ignore[assignment]
    born = Encoder(strict=False)
    born.module(fresh, own_attributes)
    Decoder(born.index, CPU).module(fresh, Encoder().module(module, own_attributes), own_attributes)
    assert not hasattr(fresh, "extra")


def _itself() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(
    "value",
    [
        len,
        lambda: 0,
        functools.partial(len, []),
        {object()},
        nn,
        int,
        [print],
        np.array(["text"]),
        (x for x in ()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_object_that_is_not_plain_has_no_tree(value: Any) -> None:
    with pytest.raises(NotSerializable):
        Encoder().tree(value)


def test_objects_carried_elsewhere_are_named() -> None:
    meter, again = Meter(), Meter()
    tree = Encoder({"the meter": meter}).tree({"mine": [meter]})
    assert Decoder(Encoder().index, CPU, {"the meter": again}).value(tree)["mine"][0] is again


def test_an_object_may_hold_itself() -> None:
    loop = trip(_itself(), [])
    assert loop[0] is loop


@pytest.mark.parametrize("present", [None, 3, Holder(), deque()])
def test_nothing_is_made_from_a_name(present: Any) -> None:
    with pytest.raises(NotSerializable, match=r"was a .*Meter, is now a "):
        trip(Meter(), copy.copy(present))
