"""The columns of a shard, as the manifest describes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.column_checks import check_columns, check_finite, columns_of, described
from cerebro_elastic.data.kinds.arrow_columns import schema_in
from cerebro_elastic.data.kinds.registry import kind_of_file
from cerebro_elastic.data.manifest import Column, Manifest, Vocabulary
from cerebro_elastic.data.preparing.defects import filled
from cerebro_elastic.data.preparing.selection import Selection
from cerebro_elastic.data.preparing.settings import PrepareSettings
from cerebro_elastic.data.ragged import Columns, Ragged, Varying, as_ragged, offsets_of, parts
from cerebro_elastic.errors import DataError
from cerebro_elastic.recipes.data import named_columns
from cerebro_elastic.system.files import Place, translated


def read_shard(place: Place, manifest: Manifest, most: int | None = None) -> Iterator[Columns]:
    """The columns of the dataset's shard at ``place``, or of a copy of it, a piece of the rows at a time; of
    no more than its first ``most`` rows. Raises ``DataError`` if it cannot be read, or has other columns."""
    settings = PrepareSettings(**manifest.reading)
    schema = schema_in(manifest.types) if manifest.types else None
    with translated(DataError, f"cannot read the shard {place}"):
        for piece in kind_of_file(str(place)).read(place, named_columns(dict(settings)), most, schema):
            # The lists of these rows may all be empty by chance.
            raw = {name: as_ragged(rows) if _is_of_empty(rows) else rows for name, rows in piece.items()}
            chosen = selected(raw, settings, manifest.vocabulary, str(place))
            yield fitted(chosen, manifest.columns, str(place))


def selected(raw: Columns, settings: PrepareSettings, vocabulary: Vocabulary, what: str) -> Columns:
    """Of a shard's columns ``raw`` the dataset's. Raises ``DataError`` if they cannot be used."""
    selection = Selection(settings)
    given = filled(raw, settings.fill)
    chosen = selection.select(given, vocabulary, what)
    check_columns({name: column for name, column in chosen.items() if not _is_empty(column)}, what)
    check_finite(chosen, settings.labels, what, selection.feature_names(given))
    return chosen


def _is_of_empty(column: NDArray[Any] | Varying) -> bool:
    return not isinstance(column, Varying) and column.shape[1:2] == (0,)


def _is_empty(column: NDArray[Any] | Varying) -> bool:
    """Whether these rows of a ragged column all have no values; others may."""
    return isinstance(column, Varying) and not column.missing and not column.lengths.any()


def fitted(columns: Columns, like: Sequence[Column], what: str) -> Columns:
    """The columns in the dtypes and kinds that the dataset has. Raises ``DataError`` if that would change a
    value, or if other columns are there."""
    by_name = {column.name: column for column in like}
    fitting = {
        name: _fitted(values, by_name[name]) if name in by_name else values
        for name, values in columns.items()
    }
    if columns_of(fitting) != tuple(like):
        found = {column.name: column for column in columns_of(fitting)}
        name = next(
            (each.name for each in like if found.get(each.name) != each),
            next((name for name in found if name not in by_name), "in another order"),
        )
        raise DataError(
            f"the shard {what} has {_shown(found.get(name))} for column {name!r}, and the first shard has "
            f"{_shown(by_name.get(name))}: write it as the others are, leave the column out by `columns`, or "
            "name the shards as `source`"
        )
    return fitting


def parts_in_memory(values: NDArray[Any] | Varying) -> Iterator[NDArray[Any] | Ragged]:
    """The values, a part at a time if they lie in files."""
    if not isinstance(values, Varying) or isinstance(values, Ragged):
        yield values
        return
    for part in parts(values.lengths):
        rows = np.arange(part.start, part.stop)
        content = np.concatenate(list(values.pieces(rows)))
        yield Ragged(content, offsets_of(values.lengths[rows]), values.kind)


def _fitted(values: NDArray[Any] | Varying, like: Column) -> NDArray[Any] | Varying:
    if like.kind == "ragged":
        values = as_ragged(values)  # these rows may have one length by chance
        if isinstance(values, Ragged) and not values.lengths.any():
            return replace(values, values=np.empty((0, *like.shape), like.dtype))
    elif isinstance(values, Ragged):
        values = values.as_rows()
    if isinstance(values, Varying) or not np.can_cast(values.dtype, like.dtype, "safe"):
        return values
    return values.astype(like.dtype, copy=False)


def _shown(column: Column | None) -> str:
    return "nothing" if column is None else described(column)
