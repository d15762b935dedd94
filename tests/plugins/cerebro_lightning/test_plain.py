"""Values become trees that a checkpoint holds, and come back into the objects found in their place."""

from __future__ import annotations

import copy
import functools
from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from lightning_harness import hop
from torch import Tensor, nn

from cerebro_elastic.training.objects.decoder import Decoder
from cerebro_elastic.training.objects.encoder import Encoder
from cerebro_elastic.training.objects.kinds import NotSerializable
from cerebro_elastic.training.objects.tensor_kinds import own_attributes
from cerebro_lightning.state import plain_tensors

CPU = torch.device("cpu")


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


def trip(value: Any, present: Any) -> Any:
    born = Encoder(strict=False)
    born.tree(present)
    return Decoder(born.index, CPU).value(hop({"value": Encoder().tree(value)})["value"])


def test_attributes_that_training_has_removed_are_removed() -> None:
    module, fresh = nn.Linear(1, 1), nn.Linear(1, 1)
    fresh.extra = 1  # type: ignore[assignment]
    born = Encoder(strict=False)
    born.module(fresh, own_attributes)
    Decoder(born.index, CPU).module(fresh, Encoder().module(module, own_attributes), own_attributes)
    assert not hasattr(fresh, "extra")


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


class Tracked(Tensor):
    """As monai's ``MetaTensor``, what is computed of it is of its class."""


def test_a_logged_tensor_is_one_of_torch() -> None:
    loss = torch.ones(2).as_subclass(Tracked).mean()
    tree = plain_tensors({"loss": {"value": loss, "step": 1}})
    assert (type(loss), type(tree["loss"]["value"]), tree["loss"]["step"]) == (Tracked, Tensor, 1)


def test_objects_carried_elsewhere_are_named() -> None:
    meter, again = Meter(), Meter()
    tree = Encoder({"the meter": meter}).tree({"mine": [meter]})
    assert Decoder(Encoder().index, CPU, {"the meter": again}).value(tree)["mine"][0] is again


class Deletes(Meter):
    """It would act on what a checkpoint says."""

    def __del__(self) -> None:
        self.history.clear()


def local() -> type:
    class Local(Meter):
        pass

    return Local


@pytest.mark.parametrize("kind", [Deletes, local(), nn.Linear, Holder], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("present", [None, 3, deque()])
def test_what_is_no_plain_object_of_an_imported_class_is_not_made(kind: Any, present: Any) -> None:
    value = kind(2, 2) if kind is nn.Linear else kind()
    with pytest.raises(NotSerializable, match=rf"was a .*{kind.__name__}, is now a "):
        trip(value, copy.copy(present))
