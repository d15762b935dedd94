"""What the user's files keep: a unit that changes it is refused by name, and its process ends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cerebro_elastic.errors import TaskError
from cerebro_elastic.hop import spoiled
from cerebro_elastic.hop.objects import unchanged
from cerebro_elastic.hop.user_globals import UserGlobals
from cerebro_elastic.registry import import_object


def counter() -> Callable[[], int]:
    count = 0

    def counted() -> int:
        nonlocal count
        count += 1
        return count

    return counted


class Own:
    def __init__(self) -> None:
        self.seen: list[int] = []

    def see(self) -> None:
        self.seen.append(1)


class Slotted:
    __slots__ = ("x",)


VALUES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "a list": (lambda: [1], lambda v: v.append(2)),
    "an array": (lambda: np.zeros(3), lambda v: v.fill(1.0)),
    "a tensor": (lambda: torch.zeros(3), lambda v: v.fill_(1.0)),
    "a layer": (lambda: nn.BatchNorm1d(2), lambda v: v(torch.ones(3, 2))),
    "a generator": (lambda: np.random.default_rng(0), lambda v: v.random()),
    "a closure": (counter, lambda v: v()),
    "an object": (Own, lambda v: v.see()),
}


@pytest.fixture
def spoilt(monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    monkeypatch.setattr(spoiled, "_stories", [])
    return spoiled.spoiled


@pytest.mark.parametrize("name", VALUES)
def test_a_change_in_place_is_refused_and_ends_the_process(name: str, spoilt: Callable[[], bool]) -> None:
    make, change = VALUES[name]
    value = make()
    file = ModuleType("a_file")
    sys.modules["a_file"] = file
    file.VALUE = value  # type: ignore[attr-defined]
    users = UserGlobals([type("Made", (), {"__module__": "a_file"})])
    try:
        for _ in range(2):
            with users.borrowed():
                pass
        assert not spoilt()
        with pytest.raises(TaskError, match=r"a_file\.VALUE changed in training"), users.borrowed():
            change(value)
        assert spoilt()
    finally:
        del sys.modules["a_file"]


FILE = """
COUNT = 1
SEEN = ["a"]

def step():
    return COUNT

class Net:
    width = 4
    best = None

    class Inner:
        names = []

    def count(self):
        return self.width
"""
CHANGES = {
    "COUNT": "COUNT = 2",
    "step": "step.calls = 3",
    "Net.width": "Net.width = 5",
    "Net.Inner.names": "Net.Inner.names.append(1)",
    "MORE": "MORE = 7",
}


@pytest.fixture
def module(tmp_path: Path, imports_as_found: None) -> ModuleType:
    del imports_as_found
    (tmp_path / "their_file.py").write_text(FILE)
    import_object("their_file:Net", tmp_path)
    return sys.modules["their_file"]


@pytest.mark.parametrize("name", CHANGES)
def test_only_the_unit_that_changes_a_file_fails(
    module: ModuleType, tmp_path: Path, name: str, spoilt: Callable[[], bool]
) -> None:
    users = UserGlobals([], tmp_path)
    with pytest.raises(TaskError, match=rf"their_file\.{name} changed in training"), users.borrowed():
        exec(CHANGES[name], vars(module))
    assert spoilt()
    with users.borrowed():
        exec("COUNT = COUNT; new = 1; del new; list(SEEN)", vars(module))


def test_a_units_own_error_goes_first_and_its_process_ends(
    module: ModuleType, tmp_path: Path, spoilt: Callable[[], bool]
) -> None:
    with pytest.raises(ZeroDivisionError), UserGlobals([], tmp_path).borrowed():
        exec("COUNT = 2; 1 / 0", vars(module))
    assert spoilt()


def test_a_cached_function_is_where_what_is_made_once_may_stay(module: ModuleType, tmp_path: Path) -> None:
    exec("import functools\n@functools.cache\ndef table():\n    return [1]", vars(module))
    with UserGlobals([], tmp_path).borrowed():
        exec("table().append(2)", vars(module))


def tables() -> dict[str, Any]:
    import pandas as pd

    days = pd.to_datetime(["2020-01-01", None])
    return {
        "numbers and texts": pd.DataFrame({"n": np.random.default_rng(0).random(2), "t": ["a", "b"]}),
        "days": pd.DataFrame({"day": days, "t": ["a", None], "lag": days - days[0]}),
        "classes": pd.Series(["a", "b"], dtype="category"),
        "periods": pd.DataFrame({"p": pd.period_range("2020", periods=2, freq="M"), "t": ["a", "b"]}),
        "objects": np.array([1.5, "a"], object),
        "bytes": bytearray(b"ab"),
    }


@pytest.mark.parametrize("name", tables())
def test_a_table_has_one_token_until_it_changes(name: str) -> None:
    value = tables()[name]
    first, kept = unchanged.token(value), [float(at) for at in range(1000)]  # which take addresses
    assert unchanged.token(value) == first
    assert len(kept) == 1000
    if isinstance(value, bytearray | np.ndarray):
        value[0] = 7
    else:
        value.iloc[0] = value.iloc[1]
    assert unchanged.token(value) != first
