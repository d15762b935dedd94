"""What cannot be carried is watched: every change of it is seen, or that none could be."""

from __future__ import annotations

import csv
import ctypes
import functools
import io
import itertools
import logging
import mmap
import multiprocessing as mp
import queue
import re
import sqlite3
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from cerebro_elastic.training.fingerprint import fingerprints
from cerebro_elastic.training.objects.opaque import Unseen, fingerprint


def counting() -> Iterator[int]:
    """Its variables stay the same objects."""
    total = [0]
    while True:
        total[0] += 1
        yield total[0]


def begun(generator: Iterator[Any]) -> Iterator[Any]:
    next(generator)
    return generator


def delegating() -> Iterator[int]:
    """It has no variables."""
    yield from iter(range(100))


def database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute("create table seen (value)")
    return connection


def loader(generator: torch.Generator | None = None) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.zeros(10)), batch_size=2, shuffle=True, generator=generator)


def closes_over(value: Any) -> Callable[[], Any]:
    return lambda: value


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "a generator": (counting, next),
    "a generator that has begun": (lambda: begun(counting()), next),
    "a generator without variables": (lambda: begun(delegating()), next),
    "a table": (lambda: pd.DataFrame({"n": np.zeros(600_000)}), lambda v: v.iloc.__setitem__((5, 0), 1)),
    "an array of objects": (lambda: np.array([1, None], object), lambda v: v.__setitem__(0, 2)),
    "an array of dates": (lambda: np.zeros(2, "M8[D]"), lambda v: v.__setitem__(0, 3)),
    "a database in memory": (database, lambda v: v.execute("insert into seen values (1)")),
    "a map of memory": (lambda: mmap.mmap(-1, 16), lambda v: v.write(b"x")),
    "a shared value": (lambda: mp.Value("i", 0), lambda v: setattr(v, "value", 1)),
    "a shared event": (mp.Event, lambda v: v.set()),
    "an event": (threading.Event, lambda v: v.set()),
    "a semaphore": (lambda: threading.Semaphore(2), lambda v: v.acquire()),
    "a structure of C": (lambda: (ctypes.c_int * 3)(), lambda v: v.__setitem__(0, 1)),
    "a method of an iterator": (lambda: itertools.count().__next__, lambda v: v()),
    "iterators that share one": (lambda: itertools.tee(range(9))[0], next),
    "a loader's own generator": (lambda: loader(torch.Generator()), list),
    "seeds that were spawned": (lambda: np.random.SeedSequence(3), lambda v: v.spawn(1)),
    "in a closure": (lambda: functools.partial(closes_over([1])), lambda v: v.func().append(2)),
    "in a view of a dict": (lambda: types.MappingProxyType({"a": []}), lambda v: v["a"].append(1)),
    "a set of weak references": (weakref.WeakSet, lambda v: v.add(counting)),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name: str) -> None:
    make, change = CHANGES[name]
    value = make()
    before = fingerprint(value, {})
    assert isinstance(before, str)
    assert fingerprint(value, {}) == before
    change(value)
    assert fingerprint(value, {}) != before


UNSEEN: dict[str, Callable[[], Any]] = {
    "queue.SimpleQueue": queue.SimpleQueue,
    "multiprocessing.Queue": mp.SimpleQueue,
    "a cursor": lambda: database().cursor(),
    "csv.reader": lambda: csv.reader(io.StringIO("1")),
    "matches": lambda: re.finditer("a", "aa"),
    "a pointer": lambda: ctypes.pointer(ctypes.c_int(3)),
    "a loader's iterator": lambda: iter(loader()),
}


@pytest.mark.parametrize("name", UNSEEN)
def test_a_value_whose_changes_would_not_show_is_called_unseen(name: str) -> None:
    assert isinstance(fingerprint(UNSEEN[name](), {}), Unseen)


@pytest.mark.parametrize(
    "value",
    [
        len, np, int, logging.getLogger("x"), re.compile("x"), threading.Lock(), np.add,
        functools.lru_cache(len),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_values_that_do_not_matter_to_training_have_no_fingerprint(value: Any) -> None:
    assert fingerprint(value, {}) is None


def test_it_does_not_look_into_what_is_carried() -> None:
    carried: list[int] = []
    push = carried.append
    before = fingerprint(push, {id(carried): "module/carried"})
    push(1)
    assert fingerprint(push, {id(carried): "module/carried"}) == before


def test_a_check_compares_layers_that_have_not_seen_a_batch() -> None:
    found = fingerprints(
        {"attribute": {"parts": [nn.LazyLinear(2)]}, "weight": dict(nn.LazyLinear(2).named_parameters())}
    )
    assert found["weight bias"] == found["attribute parts.0.weight"] == "uninitialized"
