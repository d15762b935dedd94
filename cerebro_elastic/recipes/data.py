"""A recipe's ``data``: the source, its rows and columns, and how batches are made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from cerebro_elastic.recipes.fields import (
    Arguments,
    CountOrShare,
    Names,
    Partitions,
    Positive,
    Reference,
    Section,
    ShareOrSource,
    Url,
    test_data,
    validation_data,
)
from cerebro_elastic.system.words import counted


class Origin(Section):
    """Where the rows come from."""

    url: Url | None = None
    """A dataset that `cerebro prepare` wrote: a folder or an fsspec URL."""
    source: Url | None = None
    """Data that the run prepares itself: a file, a folder, a glob, a URL, or a function `module:name`; see
    [your data](../how-to/data.md)."""
    shards: Url | None = None
    """Files of rows that are read where they lie, and written nowhere but into the caches of nodes: a folder,
    a glob, or a URL such as `s3://bucket/train/*.parquet`. A partition is a set of them; see
    [shards](../how-to/shards.md)."""
    datamodule: Reference | None = None
    """A `LightningDataModule`, as `module:Class`. Its loaders say how batches are made; see
    [data modules](../how-to/datasets.md#data-modules)."""
    dataset: Reference | None = None
    """A function or class that returns a map-style torch `Dataset`, or `{train: ..., valid: ...}`. Its rows
    are read where they are; see [datasets](../how-to/datasets.md#torch-datasets)."""
    args: Arguments = Field(default={})
    """Only with `dataset` or `datamodule`: its arguments that are not searched. A hyper-parameter of the name
    of another one is given to it."""
    materialize: bool = False
    """Only with `dataset`: its rows are read once, and written to partitions as columns, as of a `source`."""
    deterministic: bool = False
    """Only with `dataset` or `datamodule`: its training rows are the same in each epoch, so each is opened
    once for the run; see [made once](../how-to/data.md#made-once)."""


class Preparation(Section):
    """How rows become a dataset. Recipes have these keys in ``data``, and ``cerebro prepare`` as options.

    A key's description is the help of its option. The recipe's reference has that too, and the docstring
    below the field. ``shown`` is the option's default in words, ``option`` its name if that differs.
    """

    partitions: Partitions = Field(4, description="Number of training partitions.")
    """`auto`, the default of a recipe: one, with a replica on each node, where each has room for all rows
    ([how many](../how-to/data.md#how-many-partitions))."""
    valid: ShareOrSource = Field(0.2, description="Share of rows for validation, or a separate source.")
    """A share is `0.2` or `20%`. A `dataset` takes a share, or returns validation data itself."""
    test: ShareOrSource | None = Field(
        None,
        description="Share of rows for a test set, or a separate source.",
        json_schema_extra={"shown": "none"},
    )
    """No unit, search or stopping rule reads it: the best config is measured on it once, when the run has
    ended; see [a test set](../how-to/folds.md#a-test-set)."""
    valid_partitions: Partitions = Field(1, description="Number of validation partitions.")
    """With several, a separate source is shuffled, too."""
    labels: Names = Field(
        (), description="Columns that must not hold NaN.", json_schema_extra={"shown": "all"}
    )
    """If the list is empty, no column may."""
    columns: Names | None = Field(None, description="Columns to keep.", json_schema_extra={"shown": "all"})
    """Without it, all columns are."""
    features: Names | None = Field(None, description="Columns that are joined into one matrix, `features`.")
    """See [tables](../how-to/data.md#tables)."""
    label: str | None = Field(
        None,
        description="The column to predict; the features are all other columns, or those of `features`.",
    )
    encode: Names | None = Field(None, description="Columns of text that are encoded as numbers.")
    """Whole numbers can be encoded, too."""
    text: Names = Field(
        (), description="Columns of text that are kept, as bytes.", json_schema_extra={"shown": "none"}
    )
    """A `decode` function opens them."""
    stratify: str | None = Field(
        None, description="A column of classes; each split gets of each class its share."
    )
    """With `dataset`: its attribute that has the class of each row, such as `targets`."""
    split_by: str | None = Field(None, description="A column of groups; all rows of a group go to one split.")
    """A group is a patient, for instance. The column is left out of the batches, unless it is named in
    another key. With `dataset`: its attribute."""
    sample_weight: str | None = Field(None, description="A column that weighs the loss of each row.")
    """It becomes the last column; see [weights](../how-to/data.md#class-and-sample-weights)."""
    fill: Mapping[str, str | int | float | bool] = Field(
        default={},
        description="By column, the value of rows that have none.",
        json_schema_extra={"shown": "none"},
    )
    max_bad_rows: CountOrShare = Field(
        0,
        description="The most rows that may fail, or have a broken picture: a number, or a share such as 1%.",
        json_schema_extra={"option": "bad"},
    )
    """They are left out."""

    @model_validator(mode="after")
    def _columns_or_features(self) -> Self:
        if self.columns is not None and self.features is not None:
            raise ValueError("`features` names the columns to use: give it or `columns`, not both")
        return self

    @model_validator(mode="after")
    def _rows_left(self) -> Self:
        if self.test == 0:
            raise ValueError(
                "`test` is 0, and a test set without rows measures nothing: give a share such as 10%, or "
                "leave it out"
            )
        shares = {"valid": self.valid, "test": self.test}
        given = {name: share for name, share in shares.items() if isinstance(share, float)}
        for name, share in given.items():
            if share >= 1:
                rule = "it must be a fraction from 0 to below 1, such as 20%, or a source"
                raise ValueError(f"`{name}` is {share:.4g}: {rule}")
        if sum(given.values()) >= 1:
            each = " and ".join(f"{name} {share:.4g}" for name, share in given.items())
            raise ValueError(f"{each} take all rows: nothing is left for training; give smaller shares")
        return self


OF_SOURCE = frozenset(Preparation.model_fields)
"""Keys that cannot change once a dataset is prepared."""
OF_ROWS = frozenset({"stratify", "split_by"})
"""Those of them that with a `dataset` name its attributes."""
OF_COLUMNS = OF_SOURCE - {"partitions", "valid", "test", "valid_partitions"}
"""Those of them that are about the columns of a `source`."""
_NAMING = OF_COLUMNS - {"max_bad_rows"}
"""Those of them that name columns."""
_OF_ALL_ROWS = frozenset({"encode", "stratify", "split_by", "max_bad_rows"})
"""Those of them that need all rows before the start."""
_OF_DATASET = frozenset({"args", "materialize", "deterministic"})
_OF_BATCHES = frozenset({"layout", "ragged", "pad_value", "decode", "augment", "bucket"})
"""Keys that say how columns become batches."""
_OF_LOADER = frozenset(
    {
        "valid",
        "test",
        "valid_partitions",
        "batch_size",
        "valid_batch_size",
        "shuffle",
        "collate",
        "embed",
        "workers",
        "prefetch",
        "pin_memory",
        "drop_last",
    }
)
"""Keys that a `datamodule` settles."""
_FOREIGN = {
    "url": "settled when the dataset at `url` was prepared",
    "source": "only with `dataset` or `datamodule`",
    "shards": "not with `shards`, of which no row is read before the start (with `source` all are)",
    "dataset": "only with `source`, since a `dataset` makes whole rows",
    "datamodule": "a `datamodule` says this itself, by its loaders",
}
"""By the key that names the data: why the keys of others are refused."""


class Data(Preparation, Origin):
    """The data, and how batches are made of them."""

    batch_size: Positive = 32
    """Rows of a batch. A hyper-parameter `batch_size` overrides it."""
    valid_batch_size: Positive | None = None
    """Rows of a batch in validation. Without it, as many as in training."""
    layout: Literal["tuple", "dict"] = "tuple"
    """A batch is the `tuple` of its columns, or a `dict` by column name."""
    shuffle: bool = True
    """Rows of a partition come in another order in each epoch."""
    transform: Reference | None = None
    """A function that maps each batch to another."""
    embed: Reference | None = None
    """A function, usually of a frozen model, that maps a batch of rows to another with as many rows. It is
    called once for each row and host, and batches are made of its results; see
    [a frozen model](../how-to/models.md#a-frozen-model)."""
    collate: Reference | None = None
    """A function that makes a batch of a list of rows. It is slow: it sees one row at a time."""
    drop_last: bool = False
    """A training partition's last batch is left out if it is short."""
    workers: Annotated[int, Field(ge=0, le=1024)] = 0
    """Processes of each rank that make batches, for an expensive `dataset`, `decode`, `transform` or
    `collate`."""
    prefetch: Annotated[int, Field(ge=1, le=1024)] = 2
    """Batches that each of the `workers` makes ahead."""
    pin_memory: bool = False
    """Batches come in page-locked memory, from where a GPU takes them faster."""
    license: str | None = None
    """The licence of the data. Cards of exported models show it."""
    ragged: Literal["pad", "list"] = "pad"
    """Sequences of varying length are padded to the longest of the batch, with their lengths beside them, or
    a `list` of tensors; see [varying lengths](../how-to/data.md#varying-lengths)."""
    pad_value: Mapping[str, int | float] = Field(default={})
    """By column, the value that sequences are padded with. The default is 0."""
    decode: Mapping[str, Reference] = Field(default={})
    """By column of encoded values (`bytes`), a function that makes an array of one value. The same bytes give
    the same array, so it is called once for each row; see [made once](../how-to/data.md#made-once)."""
    augment: Mapping[str, Reference] = Field(default={})
    """By column of `decode`, a function that makes another array of the decoded one in each epoch. It is
    called in training; with a parameter `training`, in validation too."""
    bucket: str | None = None
    """Rows of similar length in this column share a batch, so that little is padded. With `dataset`: its
    attribute that has the length of each row."""

    @model_validator(mode="before")
    @classmethod
    def _auto_partitions(cls, value: Any) -> Any:
        """``auto`` stands for the default: ``partitions.choose`` replaces it by a number."""
        if isinstance(value, Mapping) and value.get("partitions") == "auto":
            return {key: known for key, known in value.items() if key != "partitions"}
        return value

    _valid_in_a_recipe = field_validator("valid", mode="before")(validation_data)
    _test_in_a_recipe = field_validator("test", mode="before")(test_data)

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if sum(getattr(self, origin) is not None for origin in _FOREIGN) != 1:
            raise ValueError(
                "needs exactly one of `url` (a prepared dataset), `source` (data to prepare), `shards` "
                "(files that are read where they lie), `dataset` (a torch Dataset) and `datamodule`"
            )
        if misplaced := ", ".join(sorted(self.model_fields_set & self.foreign_keys)):
            (origin,) = (origin for origin in _FOREIGN if getattr(self, origin) is not None)
            raise ValueError(f"{misplaced}: {_FOREIGN[origin]}; remove it here")
        for split, named in (("valid", self.valid), ("test", self.test)):
            if self.dataset is not None and isinstance(named, str):
                raise ValueError(
                    f"{split}: with a `dataset` it is a share of the rows; or let it return "
                    f"{{train, {split}}}"
                )
        return self

    @model_validator(mode="after")
    def _embeds_rows_that_stay(self) -> Self:
        if self.embed is not None and self.augment:
            raise ValueError(
                "`embed` is called once for each row, and `augment` changes rows in each epoch: remove one "
                "of the two, or change the embedded rows in `transform`"
            )
        return self

    @property
    def foreign_keys(self) -> frozenset[str]:
        """The keys that are about data of another origin."""
        if self.dataset is not None:
            return frozenset() if self.materialize else OF_COLUMNS - OF_ROWS | _OF_BATCHES - {"bucket"}
        if self.datamodule is not None:
            return OF_COLUMNS | _OF_BATCHES | _OF_LOADER | {"materialize"}
        if self.shards is not None:
            return _OF_DATASET | _OF_ALL_ROWS
        return _OF_DATASET | (OF_SOURCE if self.url is not None else frozenset())


@dataclass(frozen=True, slots=True)
class PartitionChoice:
    """The chosen number of partitions of a recipe that names none."""

    partitions: int
    replicas: int | None
    """``None`` if the recipe names the number of replicas."""
    reason: str

    @property
    def values(self) -> Mapping[str, Any]:
        """The chosen values by their keys in a recipe."""
        replicas = {} if self.replicas is None else {"replicas": self.replicas}
        return {"data": {"partitions": self.partitions}, **replicas}

    def __str__(self) -> str:
        return f"{counted(self.partitions, 'partition')}: {self.reason}"


def named_columns(data: Mapping[str, Any]) -> frozenset[str] | None:
    """The columns that the keys of a section name; ``None`` if all columns are used."""
    if data.get("columns") is None and data.get("features") is None:
        return None
    named = [data[key] for key in _NAMING if data.get(key) is not None]
    single = [names for names in named if isinstance(names, str)]
    return frozenset(single).union(*(names for names in named if isinstance(names, list | tuple | Mapping)))
