"""Two values are the same if no bit of them differs."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch

from cerebro_elastic.hop.equality import values_equal

NAN = float("nan")


class Rows:
    """Compares item by item, as tables do."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, _: object) -> Any:
        return np.array([True, False])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (NAN, float("nan")),
        ([1, (2.5, None)], [1, (2.5, None)]),
        ({"a": np.arange(3), "b": {1, 2}}, {"a": np.arange(3), "b": {2, 1}}),
        (np.array([1, None], object), np.array([1, None], object)),
        (torch.tensor([NAN, 1]), torch.tensor([NAN, 1])),
        (torch.arange(6).reshape(2, 3).T, torch.arange(6).reshape(2, 3).T.contiguous()),
        (len, len),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_same(one: Any, other: Any) -> None:
    assert values_equal(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (0.0, -0.0),
        (complex(1, 0.0), complex(1, -0.0)),
        (1, True),
        (1, 1.0),
        ([1], (1,)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": 1}, OrderedDict(a=1)),
        (np.zeros(1), -np.zeros(1)),
        (np.zeros(2), np.zeros(2, np.float32)),
        (np.float32(0.0), np.float32(-0.0)),
        (torch.zeros(2), torch.zeros(2, 1)),
        (torch.zeros(1), -torch.zeros(1)),
        (object(), object()),
        (lambda: 1, lambda: 1),
        (Rows(), Rows()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_not_the_same(one: Any, other: Any) -> None:
    assert not values_equal(one, other)
