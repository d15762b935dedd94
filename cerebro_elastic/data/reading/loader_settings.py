"""How batches are made: the recipe's settings, checked."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from cerebro_elastic.data.manifest import ROW, Column, Kind
from cerebro_elastic.data.reading.column_rows import Arrays, RowFunction
from cerebro_elastic.data.reading.dataset_factory import DatasetFactory
from cerebro_elastic.errors import RecipeError, did_you_mean
from cerebro_elastic.system import arguments

LENGTHS = "_lengths"
"""Behind a column's name: the lengths of its rows."""


@dataclass(frozen=True)
class LoaderSettings:
    """How batches are made: the keys of a recipe's ``data``, with functions in place of their names.

    Raises ``RecipeError`` for a batch size that a config sets out of range, and for settings that do not fit
    together.
    """

    batch_size: int
    layout: Literal["tuple", "dict"] = "tuple"
    """``tuple``: the columns in the manifest's order; a lone column's tensor as it is."""
    shuffle: bool = True
    transform: Callable[..., Any] | None = None
    collate: Callable[..., Any] | None = None
    workers: int = 0
    """0: batches are made in this process. Workers start once for all units of a rank."""
    dataset: DatasetFactory | None = None
    """Makes the dataset whose rows the partitions name by number; ``None``: the partitions hold the rows."""
    prefetch: int = 2
    pin_memory: bool = False
    drop_last: bool = False
    ragged: Literal["pad", "list"] = "pad"
    """``pad``: to the longest row of the batch, on all ranks alike. With ``collate``, each row has its
    sequence."""
    pad_value: Mapping[str, float] = field(default_factory=dict)
    decode: Mapping[str, RowFunction] = field(default_factory=dict)
    augment: Mapping[str, RowFunction] = field(default_factory=dict)
    bucket: str | None = None
    arrays: Arrays = "torch"
    """What columns are in a batch: tensors of torch, or numpy's arrays."""
    valid_batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise RecipeError(f"batch_size is {self.batch_size}: it must be at least 1")
        if self.bucket is not None and not self.shuffle:
            raise RecipeError("bucket shuffles the batches: leave it out, or set shuffle: true")
        if self.workers:
            self._check_sendable()

    def _check_sendable(self) -> None:
        for name, function in self.functions.items():
            try:
                pickle.dumps(function)
            except (pickle.PicklingError, AttributeError, TypeError) as exc:
                raise RecipeError(
                    f"{name} cannot be sent to worker processes ({exc}): define it at the top level of a "
                    "module that can be imported, or set workers: 0"
                ) from exc

    def of_phase(self, *, training: bool) -> LoaderSettings:
        """The settings for training or for evaluation: a function with a parameter ``training`` gets that."""
        return replace(
            self,
            transform=self.transform and _informed(self.transform, training),
            collate=self.collate and _informed(self.collate, training),
            decode={name: _informed(function, training) for name, function in self.decode.items()},
            augment={
                name: _informed(function, training)
                for name, function in self.augment.items()
                if training or _takes_phase(function)
            },
        )

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """The user's functions, by what messages call them."""
        named: dict[str, Callable[..., Any] | None] = {"transform": self.transform, "collate": self.collate}
        named |= {f"decode of {name}": function for name, function in self.decode.items()}
        named |= {f"augment of {name}": function for name, function in self.augment.items()}
        return {name: function for name, function in named.items() if function is not None}

    @property
    def calls_user(self) -> bool:
        """Whether the user's code takes part in making a batch."""
        return bool(self.dataset or self.transform or self.collate or self.decode)

    @property
    def opened_columns(self) -> list[str]:
        """The columns whose rows the user's code opens, in the same way for training and evaluation."""
        if self.dataset is not None:
            return [ROW]
        return [name for name, function in self.decode.items() if not isinstance(function, _Informed)]

    @property
    def data_args(self) -> str:
        """The arguments of the dataset, by which those of configs differ."""
        return "" if self.dataset is None else json.dumps(dict(self.dataset.args), sort_keys=True)

    def check(self, columns: Iterable[Column]) -> None:
        """Raise ``RecipeError`` if a dataset of these columns cannot be read so."""
        known = {column.name: column for column in columns}
        _check_kinds("pad_value", self.pad_value, known, ["ragged"])
        _check_kinds("decode", self.decode, known, ["bytes"])
        for name in self.augment:
            if name not in self.decode:
                near = did_you_mean(name, self.decode)
                raise RecipeError(
                    f"augment names {name!r}, which has no `decode`: {near}, or give it a `decode`"
                )
        if self.bucket and self.dataset is None:
            _check_kinds("bucket", [self.bucket], known, ["ragged", "bytes"])
        for name, value in self.pad_value.items():
            dtype = np.dtype(known[name].dtype)
            if dtype.kind not in "fc" and not _has(dtype, value):
                raise RecipeError(f"pad_value of {name!r} is {value}: its dtype {dtype} has no such value")
        lengths = [name + LENGTHS for name, column in known.items() if column.kind == "ragged"]
        taken = [name for name in lengths if name in known]
        if taken and self.layout == "dict" and self.ragged == "pad":
            raise RecipeError(
                f"the batch would have the lengths {taken[0]!r}, which is a column, too: use layout: tuple, "
                "or rename the column"
            )


class _Informed(partial[Any]):
    """A function of the user's that was given the phase."""


def _informed(function: Callable[..., Any], training: bool) -> Callable[..., Any]:
    return _Informed(function, training=training) if _takes_phase(function) else function


def _takes_phase(function: Callable[..., Any]) -> bool:
    try:
        return "training" in (arguments.accepted(function) or ())
    except ValueError:  # a function in C without a signature
        return False


def _check_kinds(key: str, names: Iterable[str], known: Mapping[str, Column], kinds: Sequence[Kind]) -> None:
    """Raise ``RecipeError`` if the key names a column that is of none of the ``kinds``."""
    fitting = [name for name, column in known.items() if column.kind in kinds]
    for name in names:
        if name not in fitting:
            reason = f"has {known[name].kind}" if name in known else "is no column"
            raise RecipeError(
                f"{key} names {name!r}, which {reason}: it takes a column of {' or '.join(kinds)}; "
                f"{did_you_mean(name, fitting)}"
            )


def _has(dtype: np.dtype[Any], value: float) -> bool:
    try:
        return bool(dtype.type(value) == value)
    except OverflowError:
        return False
