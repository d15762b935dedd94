"""Whether the user's functions make the same again: each is called twice on a few rows, in two processes that
have done different things before.

Two tests decide what is kept. Does a row of ``kept_columns`` stay the same under another seed? Only then is
it opened once for the run; embedded rows must pass. Does a batch stay the same under one seed? Only then do
configs share it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from cerebro_elastic.data.manifest import ROW
from cerebro_elastic.data.ragged import Index
from cerebro_elastic.data.reading.batches import BatchMaker, BatchRows, decoded_rows
from cerebro_elastic.data.reading.column_rows import RowFunction, called, equal_rows
from cerebro_elastic.data.reading.dataset_factory import forget_datasets
from cerebro_elastic.data.reading.embedding import embedded_chunk
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.data.reading.shared_records import encoded
from cerebro_elastic.data.user_state import ForeignGenerators, generator_states
from cerebro_elastic.errors import CerebroError, RecipeError
from cerebro_elastic.generators import seeded

EMBED = "data.embed"
"""Among the columns: the embedded rows."""
BATCHES = ""
"""Among the findings: all batches."""
Call = Callable[[Callable[[], Mapping[str, Any]]], Mapping[str, Any]]
"""Calls a function in a fork of this process, and returns its answer."""


def differing(
    partitions: Mapping[bool, Partition],
    loader: LoaderSettings,
    anew: Callable[[], LoaderSettings],
    rows: int,
    in_fork: Call,
) -> Mapping[str, str]:
    """The differences between two tries, in sentences: by column, of its rows under another seed; by
    ``BATCHES``, of batches under one seed. ``partitions`` are one to train on (``True``) and one to evaluate.
    ``anew`` imports the user's files again, as another process of the run does.

    Raises ``RecipeError`` if a dataset that is said to be ``deterministic`` is not, or if ``embed`` makes
    something else; ``TaskError`` for a generator that cannot be seeded.
    """
    if not loader.calls_user:
        return {}
    ForeignGenerators(loader.objects).seed(0)  # here, since a fork's error would be its own
    once = in_fork(partial(_made, partitions, loader, rows, again=False))
    again = in_fork(partial(_made_again, partitions, anew, rows))
    found = {}
    for name, value in once["kept"].items():
        if name in again["kept"] and again["kept"][name] != value:
            found[name] = again["what"][name]
    if ROW in found:
        raise RecipeError(
            f"data.deterministic is true, and {found[ROW]} returned other rows at a second time, under "
            "another seed: remove the key, or let a row depend on its number alone"
        )
    if EMBED in found:
        raise RecipeError(
            "data.embed returned something else for the same rows at a second time, under another seed: "
            "neither it nor the makers of its rows may draw at random or count; is its model in eval mode?"
        )
    found = {name: _ANOTHER.format(what=what) for name, what in found.items()}
    for name, value in once["made"].items():
        if name in again["made"] and again["made"][name] != value:
            found[BATCHES] = _OTHER_BATCHES.format(what=name)
            break
    return found


_ANOTHER = (
    "{what} made another array of the same bytes a second time, or draws random numbers: its rows are not "
    "kept for the run, and each epoch opens them again; move random parts into `augment`"
)
_OTHER_BATCHES = (
    "{what} returned something else for the same rows under the same seed: no batch is kept or shared, and "
    "nodes and `replay` will differ. It depends on more than its arguments: the time, a counter, a generator "
    "of the system, also while its file is imported, or one that the first call makes, and not the "
    "constructor (how-to/data.md, 'Random numbers')"
)


def _made_again(
    partitions: Mapping[bool, Partition], anew: Callable[[], LoaderSettings], rows: int
) -> dict[str, Any]:
    forget_datasets()
    return _made(partitions, anew(), rows, again=True)


def _made(
    partitions: Mapping[bool, Partition], loader: LoaderSettings, rows: int, *, again: bool
) -> dict[str, Any]:
    """Digests of each function's results for the first rows. The second time other rows are made before, the
    dataset is made again, and kept rows have another seed. Failures are left out: units will show them."""
    kept: dict[str, str] = {}
    made: dict[str, str] = {}
    what: dict[str, str] = {}
    for training, partition in partitions.items():
        of_phase = loader.of_phase(training=training, epoch=0)
        generators = ForeignGenerators(of_phase.objects)
        first = np.arange(min(rows, partition.rows))
        if again:
            for _ in _digests(partition, of_phase, np.arange(partition.rows)[-len(first) :], generators, 1):
                pass
        for name, _, digest in _digests(partition, of_phase, first, generators, 0):
            made.setdefault(f"{name} in {'training' if training else 'validation'}", digest)
        embedded = {EMBED} if of_phase.embed is not None else set()
        said = of_phase.kept_columns | embedded if training else frozenset[str]()
        for name, column, digest in _digests(
            partition, of_phase, first, generators, 2 if again else 0, only=said
        ):
            kept[column], what[column] = digest, name
    return {"kept": kept, "made": made, "what": what}


def _digests(
    partition: Partition,
    loader: LoaderSettings,
    rows: Index,
    generators: ForeignGenerators,
    seed: int,
    only: frozenset[str] | None = None,
) -> Iterator[tuple[str, str, str]]:
    """The name of each function that is called for ``rows``, the column that it opens, and the digest of its
    result; of ``only`` these columns, if given."""
    for name, column, make in _calls(partition, loader, rows):
        if only is not None and column not in only:
            continue
        with seeded(seed), generators.seeded(seed):
            before = generator_states()
            try:
                value = make()
                drew = generator_states() != before
                content = b"".join(map(bytes, encoded(value)))
            except CerebroError:
                return
            except Exception:  # the user's class may raise anything, also when it is pickled
                continue
        # A function that draws counts as different under another seed, even if its value happens to be equal.
        # (A function that makes its model in its first call draws there, too.)
        marked = f"{seed}" if drew and only is not None else ""
        yield name, column, hashlib.sha256(content).hexdigest() + marked


def _calls(
    partition: Partition, loader: LoaderSettings, rows: Index
) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """In the order of their part in a batch: the function's name, the column that it opens, and the call."""
    if loader.dataset is not None:
        datasets = loader.dataset.make()
        numbers = equal_rows(partition, ROW, rows).tolist()
        yield loader.dataset.reference, ROW, partial(datasets.rows, numbers)
    for name in loader.decode:
        opened = partial(decoded_rows, partition, loader, name, rows)
        yield f"`decode` of {name!r}", name, opened
        if (augment := loader.augment.get(name)) is not None:
            yield f"`augment` of {name!r}", "", partial(_augmented, augment, opened, partition, name, rows)
    maker = BatchMaker(partition, loader)
    if (embed := loader.embed) is not None:
        taken = partial(maker.taken, BatchRows(rows, rows))
        yield "`embed`", EMBED, lambda: embedded_chunk(embed, loader.arrays, taken())
        return  # ``transform`` gets embedded rows, and is called in the ranks
    of_batch = " and ".join(key for key in ("collate", "transform") if getattr(loader, key) is not None)
    yield f"`{of_batch}`" if of_batch else "a batch", "", partial(maker.make, BatchRows(rows, rows))


def _augmented(
    augment: RowFunction, opened: Callable[[], list[Any]], partition: Partition, name: str, rows: Index
) -> list[Any]:
    return called(augment, "augment", opened(), partition, name, rows)
