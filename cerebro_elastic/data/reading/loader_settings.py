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
    embed: Callable[..., Any] | None = None
    """Called with chunks of a partition's rows; batches are made of its results."""
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
    deterministic: bool = False
    """The user says that the dataset's rows are always the same."""
    anew: frozenset[str] = frozenset()
    """The columns whose rows are not kept for the run, since they differed a second time."""
    arrays: Arrays = "torch"
    """The type of columns in a batch: tensors of torch, or numpy's arrays."""
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

    def with_hparams(self, hparams: Mapping[str, Any]) -> LoaderSettings:
        """The settings for a config: functions get the hyper-parameters that they take by name. A data module
        settles more of them."""
        own = replace(self._given(hparams), embed=self.embed and _given(self.embed, hparams))
        if self.dataset is None:
            return own
        dataset = self.dataset.with_hparams(hparams)
        return replace(own, dataset=dataset, **dataset.make().loader)

    def of_phase(self, *, training: bool, epoch: int) -> LoaderSettings:
        """The settings for training or for evaluation in this epoch: functions that take them get
        ``training`` and ``epoch``."""
        phase = self._given({"training": training, "epoch": epoch})
        if training:
            return phase
        both = {name for name, function in self.augment.items() if "training" in _taken(function)}
        return replace(phase, augment={name: phase.augment[name] for name in both})

    def _given(self, values: Mapping[str, Any]) -> LoaderSettings:
        return replace(
            self,
            transform=self.transform and _given(self.transform, values),
            collate=self.collate and _given(self.collate, values),
            decode={name: _given(function, values) for name, function in self.decode.items()},
            augment={name: _given(function, values) for name, function in self.augment.items()},
        )

    @property
    def parameters(self) -> frozenset[str]:
        """The hyper-parameters that the user's functions and dataset take by name."""
        taken = frozenset[str]().union(*map(_taken, self.functions.values())) - _PHASE
        return taken if self.dataset is None else taken | self.dataset.parameters

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """The user's functions, by their names in messages."""
        named: dict[str, Callable[..., Any] | None] = {
            name: getattr(self, name) for name in ("transform", "collate", "embed")
        }
        named |= {f"decode of {name}": function for name, function in self.decode.items()}
        named |= {f"augment of {name}": function for name, function in self.augment.items()}
        return {name: function for name, function in named.items() if function is not None}

    @property
    def calls_user(self) -> bool:
        """Whether the user's code takes part in making a batch."""
        return bool(self.dataset or self.transform or self.collate or self.embed or self.decode)

    @property
    def kept_columns(self) -> frozenset[str]:
        """The columns whose rows are opened once for the run, as the user has declared: those of a ``decode``
        that depends on its value alone, and of a ``deterministic`` dataset."""
        said = [name for name, function in self.decode.items() if not isinstance(function, _Given)]
        if self.dataset is not None:
            said = [ROW] if self.deterministic else []
        return frozenset(said) - self.anew

    @property
    def dataset_args(self) -> str:
        """The arguments of the dataset, in which configs may differ."""
        return "" if self.dataset is None else json.dumps(dict(self.dataset.args), sort_keys=True)

    @property
    def data_args(self) -> str:
        """All that the dataset and the functions get besides rows: batches with other ones differ."""
        given = [
            (name, sorted(function.keywords.items()))
            for name, function in self.functions.items()
            if isinstance(function, _Given)
        ]
        return f"{self.dataset_args}{given or ''}"

    @property
    def objects(self) -> Mapping[str, object]:
        """The user's functions and datasets, by their names in messages."""
        if self.dataset is None:
            return self.functions
        datasets = self.dataset.make()
        by_split = {f"{split} dataset": data for split, data in datasets.by_split.items()}
        return {"collate": datasets.collate, **self.functions, **by_split}

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


class _Given(partial[Any]):
    """A function of the user's that was given more than rows."""


_PHASE = frozenset({"training", "epoch"})


def _given(function: Callable[..., Any], values: Mapping[str, Any]) -> Callable[..., Any]:
    """The function with those of the ``values`` that it takes by name."""
    taken = {name: values[name] for name in sorted(_taken(function) & values.keys())}
    if isinstance(function, _Given):
        return _Given(function.func, **{**function.keywords, **taken})
    return _Given(function, **taken) if taken else function


def _taken(function: Callable[..., Any]) -> frozenset[str]:
    """The names that a function takes besides the rows, which come first."""
    try:
        return (arguments.accepted(function) or frozenset()) - {arguments.first(function)}
    except ValueError:  # a function in C without a signature
        return frozenset()


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
