"""Each row of the table of kinds: a value changes, becomes a tree, and the tree a value again."""

from __future__ import annotations

import argparse
import copy
import datetime
import decimal
import functools
import json
import random
import types
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from enum import Enum, Flag
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cerebro_elastic.errors import TaskError
from cerebro_elastic.hop.checkpoint.tree import flatten, unflatten
from cerebro_elastic.hop.equality import values_equal
from cerebro_elastic.hop.objects.decoder import Decoder
from cerebro_elastic.hop.objects.encoder import Encoder
from cerebro_elastic.hop.objects.kinds import TAG, Kind, NotSerializable, Tree
from cerebro_elastic.hop.objects.object_graph import made_again, tree_of
from cerebro_elastic.hop.objects.object_index import ObjectIndex
from cerebro_elastic.hop.objects.table import kinds_by_name

CPU = torch.device("cpu")
Point = namedtuple("Point", "x y")


class Colour(Enum):
    RED = 1
    BLUE = 2


class Style(Flag):
    BOLD = 1
    WIDE = 2


class Meter:
    def __init__(self) -> None:
        self.total = 0.0
        self.history: list[float] = []

    def add(self) -> None:
        self.total += 0.5
        self.history.append(self.total)


class Slotted:
    """Also a slot whose name Python changes."""

    __slots__ = ("__total", "x")

    def add(self) -> None:
        self.x, self.__total = [1], 2.0


class Holder:
    """Has its state behind the usual two methods."""

    def __init__(self) -> None:
        self._value = 0

    def state_dict(self) -> dict[str, int]:
        return {"value": self._value}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._value = state["value"]


class OwnList(list[Any]):
    pass


class OwnDict(dict[str, Any]):
    """As people write it: its items are its attributes."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


class OwnRandom(random.Random):
    draws = 0


KEY = Meter()
PARAMETERS = [nn.Parameter(torch.zeros(2)) for _ in range(3)]
KNOWN = {"the key": KEY, **{f"parameter {at}": parameter for at, parameter in enumerate(PARAMETERS)}}
"""They are carried elsewhere."""


def step(parameter: Any) -> None:
    parameter.data.fill_(2.0)
    parameter.grad = torch.ones(2)


def each(owner: Any, **attributes: Any) -> None:
    for name, value in attributes.items():
        setattr(owner, name, value)


EXAMPLES: dict[str, list[tuple[Callable[[], Any], Callable[[Any], Any]]]] = {
    "torch's value": [(lambda: torch.float16, lambda _: torch.float32)],
    "tensor": [
        (lambda: torch.zeros(2), lambda v: v.fill_(1)),
        (lambda: torch.zeros(2, requires_grad=True), step),
        (lambda: nn.Parameter(torch.zeros(2)), step),
        (lambda: nn.Parameter(torch.zeros(2)), lambda v: v.requires_grad_(False)),
    ],
    "module": [
        (lambda: nn.Linear(2, 2), lambda v: nn.init.ones_(v.weight)),
        (lambda: nn.Linear(2, 2), lambda v: v.requires_grad_(False).eval()),
    ],
    "device": [(lambda: torch.device("cpu"), lambda v: v)],
    "torch._C.Generator": [(torch.Generator, lambda v: v.manual_seed(3))],
    "number": [
        (lambda: np.float32(0.1), lambda _: np.float32(0.2)),
        (lambda: np.int8(1), lambda _: np.int8(2)),
    ],
    "numpy's array": [
        (lambda: np.arange(3.0), lambda v: v.__setitem__(0, 5)),
        (lambda: np.zeros((2, 3)).T, lambda v: v.__setitem__((1, 0), 5)),
    ],
    "member": [(lambda: Colour.RED, lambda _: Colour.BLUE), (lambda: Style.BOLD, lambda v: v | Style.WIDE)],
    "value": [
        (lambda: datetime.date(2000, 1, 1), lambda _: datetime.date(2000, 1, 2)),
        (lambda: decimal.Decimal("0.1"), lambda v: v + 1),
        (lambda: range(3), lambda _: range(4)),
        (lambda: slice(1, 2), lambda _: slice(2, 3)),
    ],
    "numpy.random._generator.Generator": [
        (lambda: np.random.default_rng(1), lambda v: v.random()),
        (lambda: np.random.default_rng(1), lambda v: v.spawn(1)),
    ],
    "numpy.random.bit_generator.BitGenerator": [(lambda: np.random.PCG64(1), lambda v: v.random_raw())],
    "numpy.random.mtrand.RandomState": [(lambda: np.random.RandomState(1), lambda v: v.rand())],
    "random.Random": [
        (lambda: random.Random(1), lambda v: v.gauss(0, 1)),
        (lambda: OwnRandom(1), lambda v: each(v, draws=3)),
    ],
    "dict": [
        (dict, lambda v: v.update({1: "a", (2, "b"): [torch.ones(2)], None: {}})),
        (dict, lambda v: v.update({TAG: "forged"})),
        (dict, lambda v: v.update({Colour.RED: [1]})),
        (lambda: {"a": 1, "b": 2}, lambda v: v.update(a=v.pop("a"))),
        (lambda: OrderedDict(a=1, b=2), lambda v: v.move_to_end("a")),
        (OrderedDict, lambda v: each(v, metadata=[1])),
        (lambda: Counter("zz"), lambda v: v.update("abca")),
        (lambda: defaultdict(list), lambda v: v[1].append(2.0)),
        (lambda: OwnDict(a=1), lambda v: v.update(a=2)),
    ],
    "list": [
        (
            lambda: [1],
            lambda v: v.append((3, None, [2.0, "x", b"y", 1 + 2j, torch.float16, torch.Size([2])])),
        ),
        (list, lambda v: v.append(v)),
        (lambda: OwnList([1]), lambda v: (v.append([2]), each(v, more={}))),
    ],
    "tuple": [(lambda: (0, [1]), lambda _: (1, [2])), (lambda: Point(0, []), lambda _: Point(1, [2.0]))],
    "set": [
        (set, lambda v: v.update((1, 17, 33))),
        (set, lambda v: v.update("ab")),
        (lambda: {1}, lambda v: v.update(Colour)),
        (lambda: {PARAMETERS[0]}, lambda v: v.update(PARAMETERS)),
    ],
    "frozenset": [
        (frozenset, lambda _: frozenset((33, 1, 17))),
        (frozenset, lambda _: frozenset("ab")),
        (frozenset, lambda _: frozenset(Colour)),
        (frozenset, lambda _: frozenset(PARAMETERS)),
    ],
    "deque": [(lambda: deque([1], maxlen=2), lambda v: v.extend((2, 3)))],
    "state dict": [(Holder, lambda v: each(v, _value=3))],
    "object": [
        (Meter, lambda v: v.add()),
        (Meter, lambda v: delattr(v, "history")),
        (Slotted, lambda v: v.add()),
    ],
    "object of a library": [
        (lambda: types.SimpleNamespace(a=1), lambda v: each(v, b=[2])),
        (lambda: argparse.Namespace(a=1), lambda v: each(v, b=[2])),
    ],
    "opaque": [(lambda: (x for x in ()), lambda v: v)],
}
CASES = [
    pytest.param(kinds_by_name()[name], *example, id=f"{name} {number}")
    for name, examples in EXAMPLES.items()
    for number, example in enumerate(examples)
]
STAYS = ("device", "opaque")
"""Where a config trains is no part of its state; nor is what only a constructor makes."""


def encoded(value: Any) -> Tree:
    return Encoder(KNOWN, strict=False).tree([value])


def hop(tree: Tree) -> Tree:
    """Through the text and the named tensors of a checkpoint."""
    plain, tensors = flatten({"tree": tree})
    return unflatten(json.loads(json.dumps(plain)), copy.deepcopy(tensors))["tree"]


def decoded(tree: Tree, index: ObjectIndex) -> Any:
    return Decoder(index, CPU, KNOWN).value(tree)[0]


def test_every_kind_has_an_example() -> None:
    assert list(EXAMPLES) == list(kinds_by_name())


@pytest.mark.parametrize(("kind", "make", "change"), CASES)
def test_a_value_comes_back_into_the_object_at_its_place(kind: Kind, make: Any, change: Any) -> None:
    before, value, present = make(), make(), make()
    changed = change(value)
    value = value if kind.identity or changed is None else changed
    assert values_equal(encoded(before), encoded(value)) == (kind.name in STAYS)
    tree = hop(encoded(value))
    assert type(tree[0]) is not dict or tree[0].get(TAG, kind.name) == kind.name
    setup = Encoder(KNOWN, strict=False)
    setup.tree([present])
    again = decoded(tree, setup.index)
    assert (again is present) == (kind.build is None and kind.identity) or kind.name in (
        "device",
        "frozenset",
    )
    assert type(again) is type(value)
    assert values_equal(encoded(again), encoded(value))


@pytest.mark.parametrize(("kind", "make", "change"), CASES)
def test_a_value_is_made_again_or_missed(kind: Kind, make: Any, change: Any) -> None:
    value = make()
    changed = change(value)
    value = value if kind.identity or changed is None else changed
    encoder = Encoder(KNOWN, ObjectIndex(), strict=False)
    tree = hop(encoder.tree([value]))
    if encoder.lost:
        with pytest.raises(NotSerializable):
            decoded(tree, ObjectIndex())
    else:
        assert values_equal(encoded(decoded(tree, ObjectIndex())), encoded(value))


@pytest.mark.parametrize(
    "value",
    [
        *(len, lambda: 0, functools.partial(len, []), {object()}, nn, int, [print], np.array(["text"])),
        (x for x in ()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_object_that_is_not_plain_has_no_tree(value: Any) -> None:
    with pytest.raises(NotSerializable):
        Encoder().tree(value)


class Deletes(Meter):
    """It would act on what a checkpoint says."""

    def __del__(self) -> None:
        self.history.clear()


def local() -> type:
    class Local(Meter):
        pass

    return Local


@pytest.mark.parametrize(
    "value", [Deletes(), local()(), nn.Linear(2, 2), Holder()], ids=lambda value: type(value).__name__
)
@pytest.mark.parametrize("present", [None, 3, deque()])
def test_what_is_no_plain_object_of_an_imported_class_is_not_made(value: Any, present: Any) -> None:
    setup = Encoder(strict=False)
    setup.tree([copy.copy(present)])
    with pytest.raises(NotSerializable, match=rf"was a .*{type(value).__name__}, is now a "):
        decoded(hop(encoded(value)), setup.index)


def test_values_are_made_again_with_their_identity_or_refused_by_name() -> None:
    shared = np.arange(3.0)
    turned = np.zeros((2, 3)).T
    values = {"one": [shared], "other": shared, "meter": Meter(), "turned": turned}
    made = made_again(hop(tree_of(values)))
    assert made["turned"].flags.f_contiguous
    assert made["one"][0] is made["other"]
    assert made["meter"].history == []
    for value in (lambda: 0, [nn.Linear(2, 2)]):
        with pytest.raises(TaskError, match=r"net\.kept holds a .*(function|Linear), which cannot hop"):
            tree_of({"net.kept": value})
