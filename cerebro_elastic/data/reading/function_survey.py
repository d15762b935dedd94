"""What the user's functions that make batches draw, keep and cost: tried on a few rows, each twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from cerebro_elastic.data.manifest import ROW
from cerebro_elastic.data.ragged import Index
from cerebro_elastic.data.reading.batches import BatchMaker, BatchRows, decoded_rows
from cerebro_elastic.data.reading.column_rows import called, equal_rows
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.data.reading.shared_records import encoded
from cerebro_elastic.data.user_state import generator_states, kept_state, seeded

_ROWS = 4
_SEED = 1


def survey(partition: Partition, loader: LoaderSettings) -> list[str]:
    """A sentence for each function of the user's that takes part in making training batches.

    ``loader`` has the recipe's number of workers; here nothing is made in workers.
    """
    rows = np.arange(min(_ROWS, partition.rows))
    calls = list(_calls(partition, loader.of_phase(training=True), rows))
    return [f"{name} {_behaviour(call, functions, loader, len(rows))}" for name, functions, call in calls]


def _calls(
    partition: Partition, loader: LoaderSettings, rows: Index
) -> Iterator[tuple[str, list[Any], Callable[[], Any]]]:
    """By name: the functions that are called, and a call of them."""
    if loader.dataset is not None:
        datasets = loader.dataset.make()
        numbers = equal_rows(partition, ROW, rows).tolist()
        yield "the dataset", list(datasets.by_split.values()), partial(datasets.rows, numbers)
    for name, decode in loader.decode.items():
        opened = partial(decoded_rows, partition, loader, name, rows)
        yield f"decode of {name!r}", [decode], opened
        if (augment := loader.augment.get(name)) is not None:
            augmented = partial(called, augment, "augment", opened(), partition, name, rows)
            yield f"augment of {name!r}", [augment], augmented
    plain = BatchMaker(partition, loader)
    if loader.collate is not None or loader.transform is not None:
        of_batch = [function for function in (loader.collate, loader.transform) if function is not None]
        name = " and ".join(key for key in ("collate", "transform") if getattr(loader, key) is not None)
        yield name, of_batch, partial(plain.make, BatchRows(rows, rows))


def _behaviour(call: Callable[[], Any], functions: list[Any], loader: LoaderSettings, rows: int) -> str:
    with seeded(_SEED):
        call()  # what only the first call costs
    with seeded(_SEED):
        drawn, kept = generator_states(), kept_state(functions)[len(generator_states()) :]
        began = time.perf_counter()
        value = call()
        seconds = (time.perf_counter() - began) / rows
        draws = generator_states() != drawn
        keeps = kept_state(functions)[len(generator_states()) :] != kept
    with seeded(_SEED):
        same = _equal(value, call())
    cost = f"({seconds * 1e3:.2g} ms a row)"
    if not same and not keeps:
        return (
            f"returns another value for the same rows and seeds {cost}: results then depend on more than the "
            "config, such as the time, an environment variable or a file; let it depend on its row alone"
        )
    if (why := _why_unkept(value)) is not None:
        return (
            f"returns what cannot be written to a file ({why}) {cost}: each config makes it for itself; "
            "return tensors, arrays, numbers, texts, or lists and dicts of them"
        )
    if keeps:
        return f"changes variables of your files {cost}: without `workers` each config calls it for itself"
    if not draws:
        return f"draws nothing {cost}: its results are kept for the other configs"
    if loader.workers:
        return f"draws at random {cost}: done once per host and epoch, in a worker"
    return (
        f"draws at random {cost}: each config does it for itself; with `workers: 1` once per host and epoch"
    )


def _why_unkept(value: Any) -> str | None:
    try:
        encoded(value)
    except Exception as error:  # whatever the user's class does when it is pickled
        return f"{type(error).__name__}: {error}"
    return None


def _equal(one: Any, other: Any) -> bool:
    """Whether two values are the same, bit for bit; also if that cannot be found out."""
    try:
        return [*map(bytes, encoded(one))] == [*map(bytes, encoded(other))]
    except Exception:  # whatever the user's class does when it is pickled
        return True
