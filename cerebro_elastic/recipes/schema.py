"""The schema of a recipe: frozen values with their defaults, each checking itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    PrivateAttr,
    SerializeAsAny,
    ValidationInfo,
    WrapValidator,
    field_validator,
    model_validator,
)

from cerebro_elastic.recipes.fields import (
    Arguments,
    Bytes,
    BytesOrNone,
    Endpoints,
    Epochs,
    Names,
    NodeRange,
    Nodes,
    Partitions,
    PerHost,
    Positive,
    Reference,
    RunName,
    Scheduler,
    Seconds,
    Section,
    Url,
    ValidationData,
)
from cerebro_elastic.recipes.loggers import Loggers
from cerebro_elastic.recipes.parallelism import AUTO, Parallelisms, check_ranks
from cerebro_elastic.recipes.search import (
    Budget,
    Domain,
    KnownConfig,
    Objective,
    SearchSection,
    Stage,
    Start,
    search_section,
    search_type,
)
from cerebro_elastic.recipes.source import Source
from cerebro_elastic.recipes.tasks import TaskSection, task_section, task_type
from cerebro_elastic.registry import is_reference, module_of
from cerebro_elastic.system.words import counted

OF_COLUMNS = frozenset(
    {
        "labels",
        "columns",
        "features",
        "label",
        "encode",
        "text",
        "fill",
        "max_bad_rows",
        "stratify",
        "split_by",
        "sample_weight",
    }
)
"""Keys of ``data`` that are about the columns of a `source`."""
OF_ROWS = frozenset({"stratify", "split_by"})
"""Those that with a `dataset` name its attributes."""
OF_SOURCE = OF_COLUMNS | {"partitions", "valid"}
"""Keys of ``data`` that cannot change once a dataset is prepared."""
OF_DATASET = frozenset({"args", "materialize"})
"""Keys of ``data`` that are about a `dataset`."""
OF_BATCHES = frozenset({"layout", "ragged", "pad_value", "decode", "augment", "bucket"})
"""Keys of ``data`` that say how columns become batches."""
OF_LOADER = frozenset(
    {
        "valid",
        "batch_size",
        "valid_batch_size",
        "shuffle",
        "collate",
        "workers",
        "prefetch",
        "pin_memory",
        "drop_last",
    }
)
"""Keys of ``data`` that a `datamodule` settles."""
_FOREIGN = {
    "url": "settled when the dataset at `url` was prepared",
    "source": "only with `dataset` or `datamodule`",
    "dataset": "only with `source`, since a `dataset` makes whole rows",
    "datamodule": "a `datamodule` says this itself, by its loaders",
}
"""By the key that names the data: why the keys of others are refused."""


class Data(Section):
    """The data, and how batches are made of them."""

    url: Url | None = None
    """A dataset that `cerebro prepare` wrote: a folder or an fsspec URL."""
    source: Url | None = None
    """Data that the run prepares itself: a file, a folder, a glob, a URL, or a function `module:name`; see
    [your data](../how-to/data.md)."""
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
    partitions: Partitions = 4
    """Not with `url`: the number of partitions of the training rows."""
    valid: ValidationData = 0.2
    """Not with `url`: the share of rows kept for validation (`0.2` or `20%`). With `source` also a source of
    its own. A `dataset` may return validation data itself."""
    labels: Names = ()
    """Only with `source`: the columns that must be finite. If the list is empty, all columns must be."""
    columns: Names | None = None
    """Only with `source`: the columns to use. The others are dropped."""
    features: Names | None = None
    """Only with `source`: the columns that become one matrix; see [tables](../how-to/data.md#tables)."""
    label: str | None = None
    """Only with `source`: the column to predict. Without `features`, all other columns are the features."""
    encode: Names | None = None
    """Only with `source`: columns of text or whole numbers that become codes."""
    stratify: str | None = None
    """A column of classes. Each split gets of each class its share. With `dataset`: its attribute that has
    the class of each row, such as `targets`."""
    split_by: str | None = None
    """A column of groups, such as patients. All rows of a group are in one split. The column is left out of
    the batches, unless it is named in another key. With `dataset`: its attribute."""
    sample_weight: str | None = None
    """Only with `source`: a column whose values weigh the loss of each row. It becomes the last column; see
    [weights](../how-to/data.md#class-and-sample-weights)."""
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
    pad_value: Mapping[str, int | float] = Field(default_factory=dict)
    """By column, the value that sequences are padded with. The default is 0."""
    decode: Mapping[str, Reference] = Field(default_factory=dict)
    """By column of encoded values (`bytes`), a function that makes an array of one value. If it draws nothing
    at random, it is called once for each row; see [made once](../how-to/data.md#made-once)."""
    augment: Mapping[str, Reference] = Field(default_factory=dict)
    """By column of `decode`, a function that makes another array of the decoded one in each epoch. It is
    called in training; with a parameter `training`, in validation too."""
    bucket: str | None = None
    """The column by whose length rows come into batches, so that little is padded. With `dataset`: its
    attribute that has the length of each row."""
    text: Names = ()
    """Only with `source`: columns of text that are kept as they are, for a `decode` function."""
    fill: Mapping[str, str | int | float | bool] = Field(default_factory=dict)
    """Only with `source`: by column, the value of rows that have none."""
    max_bad_rows: Annotated[int, Field(ge=0)] = 0
    """Only with `source`: how many rows may have a picture that cannot be opened. They are left out."""

    @model_validator(mode="after")
    def _one_origin(self) -> Data:
        if sum(getattr(self, origin) is not None for origin in _FOREIGN) != 1:
            raise ValueError(
                "needs exactly one of `url` (a prepared dataset), `source` (data to prepare), `dataset` (a "
                "torch Dataset) and `datamodule`"
            )
        if misplaced := ", ".join(sorted(self.model_fields_set & self.foreign_keys)):
            (origin,) = (origin for origin in _FOREIGN if getattr(self, origin) is not None)
            raise ValueError(f"{misplaced}: {_FOREIGN[origin]}; remove it here")
        if self.dataset is not None and isinstance(self.valid, str):
            raise ValueError(
                "valid: with a `dataset` it is a share of the rows; or let it return {train, valid}"
            )
        if self.columns is not None and self.features is not None:
            raise ValueError("`features` names the columns to use: give it or `columns`, not both")
        return self

    @property
    def foreign_keys(self) -> frozenset[str]:
        """The keys that are about data of another origin."""
        if self.dataset is not None:
            return frozenset() if self.materialize else OF_COLUMNS - OF_ROWS | OF_BATCHES - {"bucket"}
        if self.datamodule is not None:
            return OF_COLUMNS | OF_BATCHES | OF_LOADER | {"materialize"}
        return OF_DATASET | (OF_SOURCE if self.url is not None else frozenset())


class Limits(Section):
    """Bounds on attempts, on configs, and on the time that a unit may go without progress."""

    tries: Positive = 3
    """Attempts at a unit before its config fails. They run on different nodes where possible."""
    configs: Positive = 1000
    """A recipe with more configs than this is refused before anything starts."""
    not_finite: Literal["fail", "go-on"] = "fail"
    """What happens if a loss or a trained parameter is NaN or infinite at the end of a unit: the config
    fails (`fail`; another try would give the same), or continues (`go-on`)."""
    hang_factor: Annotated[float, Field(ge=1, le=1e6)] = 10.0
    """A unit without progress (no batch trained, nothing fetched) for this many times its expected seconds
    counts as hanging. Its process ends, and the unit is tried again."""
    hang_seconds: Seconds = 600.0
    """Seconds without progress before which no unit counts as hanging."""


class NodeSection(Section):
    """The worker ranks of a node, and their CPU threads."""

    threads: PerHost = 1
    """CPU threads of a rank. More ranks times threads than cores slow everything down."""
    ranks: PerHost = 1
    """Worker processes of a node. `parallelism` says how many of them a unit uses."""
    cache_bytes: Bytes | None = None
    """What the partitions that a host has cached may take, such as `200G`; see
    [larger than a disk](../how-to/data.md#larger-than-a-disk)."""
    batch_cache_bytes: BytesOrNone | None = None
    """What a host may keep of batches that were made and rows that were opened, such as `20G`; `0`: nothing.
    Without it, a quarter of the free space on the cache's disk, and at most half of the free memory; see
    [made once](../how-to/data.md#made-once)."""


_EVEN = ("auto", "exact", "longest-remaining")
"""Schedulers that can keep progress even."""


class Recipe(Section):
    """A checked recipe. ``load_recipe`` makes it.

    Example:
        >>> recipe = load_recipe("sweep.yaml")
        >>> recipe.name, recipe.epochs, recipe.objective.metric
        ('sweep', 2, 'val_acc')
        >>> load_recipe(recipe.resolved()) == recipe
        True
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    name: RunName
    """The run's id, unless `--run-id` gives another: a folder, and keys in etcd."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """The seed of everything random: partitions, orders, initial weights, random search."""
    epochs: Epochs = 1
    """Passes of each config over all partitions."""
    nodes: Nodes = NodeRange(1, 1)
    """Nodes on this machine. A range `'2:8'` starts with 2 and uses up to 8 that join."""
    etcd: Endpoints | None = None
    """`HOST:PORT` of an etcd (several separated by commas) instead of one of the run's own. Login and TLS
    come from the [environment](environment.md#etcd)."""
    task: Annotated[SerializeAsAny[TaskSection], WrapValidator(task_section)]
    """What is trained: a section with a `kind`."""
    data: Data
    """The data."""
    search: Annotated[SerializeAsAny[SearchSection], WrapValidator(search_section)]
    """The configs."""
    objective: Objective = Objective()
    """The metric that sorts the leaderboard."""
    scheduler: Scheduler = "auto"
    """The policy that decides which config an idle node trains: `auto`, `longest-remaining`, `random`,
    ...; see [scheduling](../design/scheduling.md#policies)."""
    limits: Limits = Limits()
    """Bounds on tries and configs."""
    node: NodeSection = NodeSection()
    """What one node is."""
    replicas: Positive = 1
    """The number of nodes that keep a copy of each partition (all nodes, if they are fewer); see
    [scheduling](../design/scheduling.md#replicas)."""
    fetch: Literal["home", "on-demand"] = "home"
    """`on-demand`: an idle node may fetch a partition of another node if that costs less than waiting; see
    [scheduling](../design/scheduling.md#fetching-on-demand)."""
    progress: Literal["even", "free"] | None = None
    """`even` keeps configs within an epoch of each other. `free` takes whatever ends the run first.
    Without it, progress is even where that costs nothing; see
    [scheduling](../design/scheduling.md#even-progress)."""
    gang: Annotated[int, Field(ge=1, le=32)] = 1
    """The most nodes that train one unit together."""
    parallelism: Parallelisms = Field(default="single", validate_default=True)
    """How units use the ranks that they get; see [below](#parallelism)."""
    checkpoints: Url | None = None
    """URL for checkpoints and logs instead of the run's folder: `s3://bucket/path`. Each run has a folder
    of its id there."""
    validation: Literal["epoch", "evaluate"] = "epoch"
    """`epoch`: at the end of each epoch's last unit. `evaluate`: in units of their own (not with
    Lightning)."""
    check: Literal["warn", "stop", "off"] = "warn"
    """What a run does if its [check](../how-to/repeat.md#check-your-own-module) finds that units differ
    from one ordinary fit: `warn` or `stop`. `off`: no check."""
    loggers: Loggers | None = None
    """Where logged rows go during the run, instead of TensorBoard: `tensorboard`, `mlflow`, `wandb`, or one
    of Lightning's; see [loggers](../how-to/watching.md#loggers) and [trackers](../how-to/trackers.md)."""
    cells: Literal["cloudpickle"] | None = None
    """What a notebook's cells define is written to files as source. `cloudpickle`: what has no source is
    pickled beside it; see [notebooks](../how-to/notebook.md#what-cells-define)."""

    @field_validator("gang")
    @classmethod
    def _gang_fits(cls, value: int, info: ValidationInfo) -> int:
        nodes = info.data.get("nodes")
        if nodes is not None and value > nodes.max:
            raise ValueError(
                f"the run has at most {counted(nodes.max, 'node')} (`nodes`): ask for more, or a smaller gang"
            )
        return value

    @field_validator("progress")
    @classmethod
    def _scheduler_knows_progress(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value == "even" and info.data.get("scheduler") not in _EVEN:
            raise ValueError(f"only {', '.join(_EVEN)} keep progress even: take one of them as `scheduler`")
        return value

    _ranks_fit = field_validator("parallelism")(check_ranks)

    @model_validator(mode="before")
    @classmethod
    def _epochs_of_the_search(cls, value: Any) -> Any:
        """Accept ``search.max_epochs``, which searches call so, as another name for ``epochs``."""
        search = value.get("search") if isinstance(value, Mapping) else None
        most = search.get("max_epochs") if isinstance(search, Mapping) else None
        if most is None or value.get("epochs", most) == most:
            return value if most is None else {**value, "epochs": most}
        raise ValueError(f"epochs is {value['epochs']}, search.max_epochs {most}: give one of them")

    _root: Path = PrivateAttr(default_factory=Path.cwd)
    _source: Source = PrivateAttr(default_factory=lambda: Source("recipe", {}))

    @property
    def root(self) -> Path:
        """The folder that users' modules are imported from and relative paths start from."""
        return self._root

    def rooted(self, url: str) -> str:
        """A URL as it is; a path relative to the recipe's folder."""
        return (url if "://" in url else str(self.root / url)).rstrip("/")

    def placed(self, root: Path, source: Source) -> Self:
        """This recipe with its folder, and with the places of its values for messages."""
        self._root, self._source = root.resolve(), source
        return self

    @property
    def source(self) -> Source:
        """The recipe as it was written: ``source.where(path)`` names the line in later checks' messages."""
        return self._source

    def resolved(self) -> dict[str, Any]:
        """All values with all defaults, as JSON values. ``load_recipe`` of it gives an equal recipe."""
        excluded = {"data": set(self.data.foreign_keys)}
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=excluded)

    @property
    def digest(self) -> str:
        """SHA-256 of ``resolved()``: equal recipes have equal digests, wherever their files lie."""
        return hashlib.sha256(json.dumps(self.resolved(), sort_keys=True).encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self.resolved() == other.resolved()

    def __hash__(self) -> int:
        return hash(self.digest)


def section_type(path: tuple[str | int, ...], kind: object, method: object) -> type[Section]:
    """The schema of the section at ``path`` of a recipe, whose task has this ``kind`` and whose search this
    ``method``."""
    match path:
        case ():
            return Recipe
        case ("task",):
            return task_type(kind)
        case ("search",):
            return search_type(method)
        case ("search", "space", _):
            return Domain
        case ("search", "budget"):
            return Budget
        case ("search", "schedule", _):
            return Stage
        case ("search", "start"):
            return Start
        case ("search", "known", *_):
            return KnownConfig
        case _:
            section = Recipe.model_fields[str(path[0])].annotation
            assert isinstance(section, type)
            assert issubclass(section, Section)
            return section


def differences(old: Mapping[str, Any], new: Mapping[str, Any], _prefix: str = "") -> list[str]:
    """What changed between two resolved recipes, one line each: ``epochs: 5 -> 6``."""
    lines = []
    for key in [*old, *(key for key in new if key not in old)]:
        before, after = old.get(key, "(absent)"), new.get(key, "(absent)")
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            lines += differences(before, after, f"{_prefix}{key}.")
        elif before != after:
            lines.append(f"{_prefix}{key}: {before} -> {after}")
    return lines


def modules_of(recipe: Recipe) -> list[str]:
    """The modules of the task's kind and of the parallelisms, and the user's own. A task of numpy's arrays
    needs no parallelism: all of them import torch."""
    used = () if recipe.parallelism == AUTO else [section.use for section in recipe.parallelism]
    if recipe.task.ARRAYS == "numpy":
        used = ()
    parts = [
        module_of("cerebro.tasks", recipe.task.kind),
        *(module_of("cerebro.parallel", name) for name in used),
    ]
    own = [text.partition(":")[0] for text in _texts(recipe.resolved()) if is_reference(text)]
    return list(dict.fromkeys([*(module for module in parts if module), *own]))


def _texts(value: Any) -> Iterator[str]:
    """All texts in a recipe's values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
