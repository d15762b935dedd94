"""Words and whole numbers as classes: a column's categories, and the codes of its values.

One word may be written in several forms of Unicode: ``é`` is one sign, or ``e`` with an accent behind it.
Categories have the composed form (NFC), and each of its forms has the same code.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.column_checks import check_given, mostly_numbers
from cerebro_elastic.data.manifest import Category
from cerebro_elastic.errors import DataError, brief, did_you_mean


class Coded(np.ndarray[Any, np.dtype[np.int64]]):
    """A vector of codes, int64. Code ``i`` stands for ``categories[i]``."""

    categories: Sequence[Category] = ()
    """The value of each code."""

    @classmethod
    def of(cls, codes: Any, categories: Sequence[Category]) -> Self:
        """The codes of ``categories``."""
        column = np.asarray(codes, np.int64).view(cls)
        column.categories = tuple(categories)
        return column

    def __array_finalize__(self, source: object) -> None:
        self.categories = getattr(source, "categories", ())


def canonical(word: Any) -> Any:
    """The form of text among the categories; other values stay as they are."""
    return unicodedata.normalize("NFC", word) if isinstance(word, str) else word


def words_in(values: Iterable[str], what: str) -> list[str]:
    """The different words among the values, sorted. Raises ``DataError`` if two of them look alike; ``what``
    names the values."""
    words = sorted(set(map(canonical, set(values))))
    seen: dict[str, str] = {}
    for word in words:
        other = seen.setdefault(_as_seen(word), word)
        if other != word:
            raise DataError(
                f"{what} has {brief(ascii(other))} and {brief(ascii(word))}, which look alike: they differ "
                "in spaces, or in signs that are hardly seen; write them alike"
            )
    return words


def _as_seen(word: str) -> str:
    """The word without invisible differences: spaces at its ends, invisible signs, forms of letters."""
    plain = "".join(
        sign for sign in unicodedata.normalize("NFKC", word) if unicodedata.category(sign) != "Cf"
    )
    return " ".join(plain.split())


def coded(values: Sequence[str], what: str) -> Coded:
    """The words as codes, in the sorted order of the different ones."""
    words = words_in(values, what)
    numbers = {word: number for number, word in enumerate(words)}
    return Coded.of([numbers[canonical(value)] for value in values], words)


def categories_of(name: str, column: NDArray[Any], what: str) -> list[Category]:
    """The categories of a column to encode, sorted."""
    if column.dtype.kind in "iub" and column.ndim == 1:
        return list(np.unique(column).tolist())
    values = single_values(name, column, what)
    kinds = {type(value) for value in values}
    if kinds == {str}:
        return list(words_in(values, f"column {name!r} of {what}"))
    if len(kinds) != 1 or not kinds <= {int, bool}:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise DataError(
            f"column {name!r} of {what} has values of type {names}: only text or whole numbers can be encoded"
        )
    return sorted(set(values))


def is_words(column: object) -> bool:
    """Whether these are words, which become codes automatically: text that is not mostly numbers."""
    if not isinstance(column, np.ndarray) or column.dtype.kind not in "OU" or column.ndim != 1:
        return False
    values = [value for value in column.tolist() if value is not None]
    return all(isinstance(value, str) for value in values) and not mostly_numbers(values)


def codes_of(name: str, column: NDArray[Any], categories: Sequence[Category], what: str) -> NDArray[np.int64]:
    """The codes of a column's values. Raises ``DataError`` for a value that is none of the categories."""
    known = np.array(categories)
    if {known.dtype.kind, column.dtype.kind} <= set("iub") and not isinstance(column, Coded):
        codes = np.searchsorted(known, column).clip(max=len(known) - 1)
        if column.ndim == 1 and (known[codes] == column).all():
            return codes
    numbers = {category: number for number, category in enumerate(categories)}
    values = single_values(name, column, what)
    if isinstance(column, Coded):
        if odd := sorted(set(values) - set(range(len(column.categories)))):
            raise DataError(
                f"column {name!r} of {what} has the class {odd[0]}: its {len(column.categories)} classes are "
                "numbered from 0; correct the labels"
            )
        values = [column.categories[value] for value in values]
    forms = {value: numbers.get(canonical(value), -1) for value in set(values)}
    if other := [value for value in values if forms[value] < 0]:
        raise DataError(
            f"column {name!r} of {what} has {brief(repr(other[0]))} in {len(other)} rows, which the training "
            f"data have not: {did_you_mean(str(other[0]), map(str, categories))}"
        )
    return np.array([forms[value] for value in values], np.int64)


def single_values(name: str, column: NDArray[Any], what: str) -> list[Any]:
    """A column's values. Raises ``DataError`` if a row has none, or several."""
    if column.ndim != 1:
        raise DataError(
            f"column {name!r} of {what} has shape {column.shape}: only single values can be encoded"
        )
    values: list[Any] = column.tolist()
    check_given(name, values, what)
    return values
