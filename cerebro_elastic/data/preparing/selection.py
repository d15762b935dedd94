"""Turns columns of a source into columns of the dataset: one matrix of features, one vector of labels, and
text as numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.categories import Coded, categories_of, codes_of, is_words, single_values
from cerebro_elastic.data.column_checks import (
    FEATURES,
    check_column,
    check_lengths,
    leave_out,
)
from cerebro_elastic.data.manifest import Vocabulary
from cerebro_elastic.data.ragged import Arrays, Columns, Ragged, Varying, encoded
from cerebro_elastic.errors import DataError, did_you_mean
from cerebro_elastic.recipes.data import Preparation
from cerebro_elastic.system.words import counted

_INDEX = ("", "Unnamed: 0", "__index_level_0__")
_LARGEST_EXACT = 2**24
"""Up to here float32 has every whole number."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The columns of a source that are used, and how."""

    keys: Preparation
    """The keys that name columns. ``features`` become one float32 matrix; ``label`` becomes one vector, of
    int64 if it has whole numbers or codes, else of float32; columns to ``encode`` become int64 codes, in the
    sorted order of the categories; ``sample_weight`` becomes the last column, of float32; ``text`` bytes of
    UTF-8."""

    def vocabulary(self, columns: Columns, what: str) -> Vocabulary:
        """The categories of the columns to encode, sorted, and of columns that have codes already. Raises
        ``DataError`` if a column has none."""
        encode = dict.fromkeys(self.keys.encode or ())
        if self.keys.label is not None and is_words(columns.get(self.keys.label)):
            encode |= {self.keys.label: None}
        coded = {
            name: list(column.categories)
            for name in self._kept(columns)
            if name not in encode and isinstance(column := columns.get(name), Coded)
        }
        return coded | {name: categories_of(name, _plain(columns, name, "encode"), what) for name in encode}

    def select(self, columns: Columns, vocabulary: Vocabulary, what: str) -> Columns:
        """The dataset's columns. Raises ``DataError`` for columns that do not exist, do not fit into a
        matrix, or have values outside the ``vocabulary``."""
        keys = self.keys
        if columns:
            check_lengths(columns, what)
        kept = {name: _known(columns, name, "columns") for name in self._kept(columns)}
        for name, categories in vocabulary.items():
            kept[name] = codes_of(name, _plain(kept, name, "encode"), categories, what)
        for name in keys.text:
            kept[name] = _text(name, _plain(kept, name, "text"), what)
        if keys.sample_weight is None:
            return self._arranged(kept, what)
        weights = _weights(keys.sample_weight, _plain(columns, keys.sample_weight, "sample_weight"), what)
        if keys.sample_weight in (keys.label, *(keys.features or ()), *(keys.encode or ())):
            raise DataError(
                f"the `sample_weight` {keys.sample_weight!r} is in `features`, `label` or `encode`, "
                "too: it weighs rows, and nothing else; remove it there"
            )
        without = {name: column for name, column in kept.items() if name != keys.sample_weight}
        return {**self._arranged(without, what), keys.sample_weight: weights}

    def _arranged(self, kept: Columns, what: str) -> Columns:
        """The columns as they are, or those of matrix and label."""
        keys = self.keys
        if keys.label is None and keys.features is None:
            return kept
        if keys.label == FEATURES:
            raise DataError(f"the label is {FEATURES!r}, which is the name of the matrix: rename the column")
        if keys.label in (keys.features or ()):
            raise DataError(f"the label {keys.label!r} is among the `features`: remove it there")
        if keys.label is None:
            return {FEATURES: _matrix(self._features(kept), what)}
        label = _vector(keys.label, _plain(kept, keys.label, "label"), what)
        return {FEATURES: _matrix(self._features(kept), what), keys.label: label}

    def feature_names(self, columns: Columns) -> tuple[str, ...]:
        """The names of the matrix's columns, from left to right; ``a[0]``, ``a[1]`` if ``a`` has vectors."""
        if self.keys.label is None and self.keys.features is None:
            return ()
        return tuple(
            name if column.ndim == 1 else f"{name}[{at}]"
            for name, column in self._features({name: columns[name] for name in self._kept(columns)}).items()
            for at in range(1 if column.ndim == 1 else column.shape[1])
        )

    def _kept(self, columns: Columns) -> Iterable[str]:
        if self.keys.columns is not None:
            return self.keys.columns
        named = {self.keys.label, *(self.keys.features or ()), *(self.keys.encode or ())}
        return [name for name in columns if name != self.keys.split_by or name in named]

    def _features(self, kept: Columns) -> Arrays:
        ours = (self.keys.label, self.keys.sample_weight)
        names = (
            [name for name in kept if name not in ours] if self.keys.features is None else self.keys.features
        )
        features = {name: _plain(kept, name, "features") for name in names}
        if self.keys.features is not None:
            return features
        # An index that pandas has written numbers the rows: a model can learn nothing from it.
        if index := [name for name in features if name in _INDEX]:
            raise DataError(
                f"column {index[0]!r} seems to be an index that pandas has written: name the `features`, or "
                "the `columns` to use"
            )
        return features


def _plain(columns: Columns, name: str, key: str) -> NDArray[Any]:
    column = _known(columns, name, key)
    if isinstance(column, Varying):
        raise DataError(
            f"column {name!r} for `{key}` has rows of varying length: leave it out there, or leave `label` "
            "and `features` out and give the columns as they are"
        )
    return column


def _known(columns: Columns, name: str, key: str) -> NDArray[Any] | Varying:
    if name not in columns:
        raise DataError(f"`{key}` names {name!r}, which is no column: {did_you_mean(name, columns)}")
    return columns[name]


def _text(name: str, column: NDArray[Any], what: str) -> Ragged:
    values = single_values(name, column, what)
    if other := [row for row, value in enumerate(values) if not isinstance(value, str)]:
        raise DataError(
            f"column {name!r} of {what} for `text` has {values[other[0]]!r} in row {other[0]} (the first is "
            "0), which is no text: leave it out there"
        )
    return encoded([value.encode() for value in values], name)


def _matrix(features: Arrays, what: str) -> NDArray[np.float32]:
    if not features:
        raise DataError(f"{what} have no column for `features`")
    for name, column in features.items():
        leave = leave_out(name, features, FEATURES)
        check_column(name, column, what, leave, of_matrix=True)
        if column.ndim > 2 or column.dtype.kind == "c":
            raise DataError(
                f"column {name!r} of {what} is {column.dtype}{list(column.shape[1:])}: `features` are "
                f"numbers or vectors of numbers; {leave}, or use a function as the source"
            )
        if column.dtype.kind in "iu" and max(abs(int(column.min())), abs(int(column.max()))) > _LARGEST_EXACT:
            raise DataError(
                f"column {name!r} of {what} has whole numbers above {_LARGEST_EXACT}, which float32 cannot "
                f"tell apart (an identifier?): {leave}, or scale it"
            )
    with np.errstate(over="ignore"):  # a value that is too large becomes infinite, and the check reports it
        return np.column_stack([column.astype(np.float32) for column in features.values()])


def _weights(name: str, column: NDArray[Any], what: str) -> NDArray[np.float32]:
    check_column(name, column, what, "leave `sample_weight` out")
    if column.ndim != 1 or column.dtype.kind == "c":
        raise DataError(
            f"column {name!r} of {what} is {column.dtype}{list(column.shape[1:])}: a `sample_weight` is one "
            "number for each row"
        )
    with np.errstate(over="ignore"):
        weights = column.astype(np.float32)
    if len(bad := np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))):
        raise DataError(
            f"column {name!r} of {what} has {weights[bad[0]]} in row {bad[0]} (the first is 0), and "
            f"{counted(len(bad), 'such value')} in all: a `sample_weight` is a finite number of at least 0"
        )
    if not weights.any():
        raise DataError(
            f"column {name!r} of {what} is 0 in every row: a `sample_weight` of 0 leaves a row out"
        )
    return weights


def _vector(name: str, column: NDArray[Any], what: str) -> NDArray[Any]:
    check_column(name, column, what, "name another `label`")
    too_large = column.dtype.kind == "u" and int(column.max()) > np.iinfo(np.int64).max
    if column.dtype.kind == "c" or too_large:
        raise DataError(
            f"column {name!r} of {what} is {column.dtype}: a `label` has numbers that fit int64 or float32"
        )
    with np.errstate(over="ignore"):
        return column.astype(np.int64 if column.dtype.kind in "biu" else np.float32)
