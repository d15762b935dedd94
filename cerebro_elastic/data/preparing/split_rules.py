"""The rules by which a split holds out rows: any rows, a share of each class, or whole groups. The shuffled
order decides wherever the rules leave a choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.categories import canonical, words_in
from cerebro_elastic.data.column_checks import check_given, not_finite
from cerebro_elastic.data.ragged import Columns, Varying
from cerebro_elastic.errors import DataError, did_you_mean
from cerebro_elastic.recipes.data import Preparation
from cerebro_elastic.system.words import counted, some_of

_SHOWN = 3
"""The number of classes or groups that a message names."""


@dataclass(frozen=True, slots=True, eq=False)
class Kinds:
    """A column of classes or groups."""

    name: str
    values: NDArray[Any]
    """Its different values, sorted."""
    codes: NDArray[np.int64]
    """Of each row, the place of its value in ``values``."""

    def named(self, codes: NDArray[np.int64]) -> str:
        """The values with these codes, for messages."""
        return some_of(list(map(repr, self.values[codes].tolist())), _SHOWN)


@dataclass(frozen=True, slots=True)
class RowKeys:
    """The columns by which rows are split."""

    classes: Kinds | None = None
    """The class of each row, if splits are stratified."""
    groups: Kinds | None = None
    """The group of each row, if groups stay together."""

    def held_out(self, order: NDArray[np.int64], count: int, split: str) -> NDArray[np.bool_]:
        """The rows of ``order``, a shuffled order of the remaining ones, that make a ``split`` of about
        ``count`` rows. Raises ``DataError`` if nothing, or a class without rows, were left for training."""
        if not count or (self.classes is None and self.groups is None):
            return np.arange(len(order)) >= len(order) - count
        labels = np.zeros(len(order), np.int64) if self.classes is None else self.classes.codes[order]
        number = 1 if self.classes is None else len(self.classes.values)
        rows_of = np.bincount(labels, minlength=number)
        wanted = _allotted(rows_of, count, _first_places(labels, number))
        if self.groups is None:
            assert self.classes is not None
            if wanted.sum() < count:
                scarce, fewest = np.flatnonzero(rows_of == rows_of.min()), int(rows_of.min())
                raise DataError(
                    f"{split} cannot have {counted(count, 'row')} and leave one of each class of column "
                    f"{self.classes.name!r} for training: class {self.classes.named(scarce)} has "
                    f"{counted(fewest, 'row')} left; take a smaller share, add rows, or leave out `stratify`"
                )
            return _last_of_each(labels, wanted)
        chosen = self._groups_of(order, labels, wanted, split)
        if self.classes is not None:
            gone = np.flatnonzero(np.bincount(labels[~chosen], minlength=number) == 0)
            if len(gone):
                raise DataError(
                    f"{split} leaves no row of class {self.classes.named(gone)} in column "
                    f"{self.classes.name!r} for training: its rows are in too few groups; take a smaller "
                    "share, add groups, or leave the class out"
                )
        return chosen

    def folds(self, order: NDArray[np.int64], folds: int) -> NDArray[np.int64]:
        """The fold of each of the rows ``order``: folds share the rows of each class, and take whole groups,
        the largest first. Raises ``DataError`` if the groups are fewer than the folds."""
        labels = np.zeros(len(order), np.int64) if self.classes is None else self.classes.codes[order]
        if self.groups is None:
            of = np.empty(len(order), np.int64)
            of[np.argsort(labels, kind="stable")] = np.arange(len(order)) % folds
            return of
        present, codes = np.unique(self.groups.codes[order], return_inverse=True)
        if len(present) < folds:
            raise DataError(
                f"{folds} folds, and column {self.groups.name!r} has {counted(len(present), 'group')}: by "
                "`split_by` the rows of a group are in one fold; take fewer folds, or add groups"
            )
        number = int(labels.max()) + 1
        table = np.bincount(codes * number + labels, minlength=len(present) * number).reshape(-1, number)
        shares = table / np.maximum(1, table.sum(axis=0))
        sums, fold_of = np.zeros((folds, number)), np.empty(len(present), np.int64)
        for group in np.argsort(-table.sum(axis=1), kind="stable"):
            # The fold with which the folds' shares differ least.
            fold = int(np.argmin(((2 * sums + shares[group]) * shares[group]).sum(axis=1)))
            fold_of[group], sums[fold] = fold, sums[fold] + shares[group]
        return fold_of[codes]

    def _groups_of(
        self, order: NDArray[np.int64], labels: NDArray[np.int64], wanted: NDArray[np.int64], split: str
    ) -> NDArray[np.bool_]:
        """Whole groups, of each class as near to ``wanted`` rows as groups allow."""
        assert self.groups is not None
        present, first, codes = np.unique(self.groups.codes[order], return_index=True, return_inverse=True)
        shuffled = np.argsort(first)
        rank = np.argsort(shuffled)[codes]  # of each row, its group's place among the shuffled groups
        table = np.bincount(rank * len(wanted) + labels, minlength=len(present) * len(wanted))
        mask = choose_groups(table.reshape(len(present), len(wanted)), wanted)
        if not mask.any():
            raise DataError(
                f"{split} cannot be a share of the rows: by `split_by` the rows of a group of column "
                f"{self.groups.name!r} stay together, and none of {counted(len(present), 'group')} can be "
                f"spared from training; add groups, or give `{split}` separate data"
            )
        return mask[rank]


def row_keys(settings: Preparation, train: Columns, own: Mapping[str, Columns]) -> RowKeys:
    """Class and group of each row of ``train``, by ``stratify`` and ``split_by``.

    ``own`` are splits with separate data, by name. Raises ``DataError`` for columns that have no classes or
    groups, and if ``own`` has a class that ``train`` lacks, or a group of it.
    """
    stratify, split_by = settings.stratify, settings.split_by
    if stratify is not None and stratify == split_by:
        raise DataError(
            f"`stratify` and `split_by` both name {stratify!r}: each class would be a group, and a split "
            "would take all of it; leave one of them out"
        )
    classes = stratify and _kinds("stratify", stratify, train, "the training data")
    groups = split_by and _kinds("split_by", split_by, train, "the training data")
    others = {"the training data": groups} if groups else {}
    for split, columns in own.items():
        what = f"the {split} data"
        if classes:
            _check_classes(classes, _kinds("stratify", classes.name, columns, what), what)
        if groups:
            kinds = _kinds("split_by", groups.name, columns, what)
            for name, other in others.items():
                _check_groups(other, kinds, what, name)
            others[what] = kinds
    return RowKeys(classes or None, groups or None)


def _kinds(key: str, name: str, columns: Columns, what: str) -> Kinds:
    if name not in columns:
        raise DataError(f"{what} have no column {name!r} for `{key}`: {did_you_mean(name, columns)}")
    column = columns[name]
    if isinstance(column, Varying) or column.ndim != 1:
        shape = "rows of varying length" if isinstance(column, Varying) else f"shape {column.shape}"
        raise DataError(f"column {name!r} of {what} has {shape}: `{key}` takes a single value of each row")
    if column.dtype.kind == "O":
        values = column.tolist()
        check_given(name, values, what)
        if len(types := sorted({type(value).__name__ for value in values})) > 1:
            raise DataError(
                f"column {name!r} of {what} has values of type {', '.join(types)}: `{key}` takes values of "
                "one type"
            )
    missing = np.isnat(column).sum() if column.dtype.kind in "mM" else len(not_finite(column))
    if missing:
        raise DataError(
            f"column {name!r} of {what} has no value in {missing} of {counted(len(column), 'row')}: `{key}` "
            "needs one for each; fill or remove these rows"
        )
    if key == "stratify" and column.dtype.kind in "fc" and (column != np.round(column)).any():
        raise DataError(
            f"column {name!r} of {what} has fractions: `stratify` takes a column of classes, such as text or "
            "whole numbers; make a column of ranges, and name that"
        )
    try:
        values, codes = np.unique(column, return_inverse=True)
        if values.dtype.kind in "OU" and isinstance(values[0], str):
            words = np.array(words_in(values.tolist(), f"column {name!r} of {what}"), object)
            codes = np.searchsorted(words, [canonical(value) for value in values.tolist()])[codes]
            values = words
    except TypeError as exc:  # lists, for instance
        raise DataError(f"column {name!r} of {what} cannot be used for `{key}`: {exc}") from exc
    return Kinds(name, values, codes.astype(np.int64))


def _check_classes(train: Kinds, own: Kinds, what: str) -> None:
    if len(new := np.flatnonzero(~np.isin(own.values, train.values))):
        raise DataError(
            f"{what} have {own.named(new)} in column {own.name!r}, and the training data have no row of "
            f"{'that class' if len(new) == 1 else 'these classes'}: add some, or remove these rows"
        )


def _check_groups(other: Kinds, own: Kinds, what: str, of_other: str) -> None:
    if len(both := np.flatnonzero(np.isin(own.values, other.values))):
        raise DataError(
            f"{what} have rows of {own.named(both)} in column {own.name!r}, and so have {of_other} "
            f"({counted(len(both), 'group')} in both): by `split_by` a group is in one split; remove rows "
            "from one of them"
        )


def _first_places(labels: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    """Of each class, where it comes first."""
    places = np.full(number, len(labels), np.int64)
    present, first = np.unique(labels, return_index=True)
    places[present] = first
    return places


def _allotted(rows_of: NDArray[np.int64], count: int, first_places: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many of ``count`` rows each class gets, by the largest remainder; equal ones go by
    ``first_places``. Each class keeps a row."""
    exact = count * rows_of  # in parts of the number of rows
    seats = np.minimum(exact // rows_of.sum(), rows_of - 1)
    by_remainder = np.lexsort((first_places, -(exact % rows_of.sum())))
    while (open_ := int(count - seats.sum())) > 0:
        takers = [at for at in by_remainder if seats[at] < rows_of[at] - 1][:open_]
        if not takers:
            break
        seats[takers] += 1
    return np.asarray(seats)


def _last_of_each(labels: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The last ``wanted`` rows of each class."""
    by_class = np.argsort(labels, kind="stable")
    ends = np.cumsum(np.bincount(labels, minlength=len(wanted)))
    from_end = np.empty(len(labels), np.int64)
    from_end[by_class] = ends[labels[by_class]] - 1 - np.arange(len(labels))
    return np.asarray(from_end < wanted[labels])


_PASSES = 20
"""The most times that all groups are looked at again."""
_MOST_MOVED = 5_000
"""The largest number of groups that are moved one by one; with more, any groups make up for the last rows."""
_MOST_SWAPPED = 500
"""The largest number of groups of which two are also exchanged."""

Table = NDArray[np.int64]


def choose_groups(table: Table, wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The groups to hold out.

    The first groups are taken until they have enough rows. Then single groups, or pairs of them, are moved as
    long as that brings the number of rows of a class nearer to its target.

    Args:
        table: The rows of each class that a group has; shape (groups, classes). The groups are in a shuffled
            order.
        wanted: The rows of each class to hold out.

    Returns:
        A mask of the groups. It holds out at least one group, and leaves a row of each class, if any choice
        that was looked at does.
    """
    chooser = _Chooser(table, wanted)
    for _ in range(_PASSES):
        moved = chooser.move_single()
        if len(table) <= _MOST_SWAPPED:
            moved |= chooser.swap_pairs()
        if not moved:
            break
    return chooser.chosen if chooser.chosen.any() else chooser.nearest_single()


class _Chooser:
    def __init__(self, table: Table, wanted: NDArray[np.int64]) -> None:
        self._table, self._wanted = table, wanted
        self._total = table.sum(axis=0)
        self.chosen = np.cumsum(table.sum(axis=1)) <= wanted.sum()
        self._sum = table[self.chosen].sum(axis=0)

    def move_single(self) -> bool:
        """Hold out a group, or no longer, where that is better."""
        moved = False
        for at in range(min(len(self._table), _MOST_MOVED)):
            other = self._sum + (-self._table[at] if self.chosen[at] else self._table[at])
            if self._cost(other) < self._cost(self._sum):
                self.chosen[at] ^= True
                self._sum, moved = other, True
        return moved

    def swap_pairs(self) -> bool:
        """Exchange a group that is held out for another one, where that is better."""
        moved = False
        for at in np.flatnonzero(self.chosen):
            outside = np.flatnonzero(~self.chosen)
            if not len(outside):
                break
            others = self._sum - self._table[at] + self._table[outside]
            costs = self._cost(others)
            best = int(np.argmin(costs))
            if costs[best] < self._cost(self._sum):
                self.chosen[[at, outside[best]]] = False, True
                self._sum, moved = others[best], True
        return moved

    def nearest_single(self) -> NDArray[np.bool_]:
        """The best single group; none if each has the last rows of a class."""
        mask = np.zeros(len(self._table), bool)
        spared = ~(self._table >= self._total).any(axis=1)
        if spared.any():
            costs = np.where(spared, self._cost(self._table), np.inf)
            mask[int(np.argmin(costs))] = True
        return mask

    def _cost(self, sums: Table) -> NDArray[np.float64]:
        """The distance of ``sums``, of shape (..., classes), from the targets. To take the last row of a
        class is worse than anything else."""
        far = ((sums - self._wanted) ** 2).sum(axis=-1)
        emptied = (sums >= self._total).sum(axis=-1)
        return np.asarray(far + emptied * float(self._total.sum() + 1) ** 2 * 4)
