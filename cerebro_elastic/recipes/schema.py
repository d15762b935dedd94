"""The schema of a recipe: frozen values with their defaults, each checking itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
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
    RUN_ID,
    Callback,
    Endpoints,
    Epochs,
    Names,
    NodeRange,
    Nodes,
    Partitions,
    PerHost,
    Positive,
    Reference,
    Scheduler,
    Seconds,
    Section,
    Url,
    ValidationData,
)
from cerebro_elastic.recipes.parallelism import Parallelisms, check_ranks
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
from cerebro_elastic.words import counted

OF_SOURCE = frozenset({"partitions", "valid", "labels", "columns", "features", "label", "encode"})
"""Keys of ``data`` that are settled once a dataset is prepared."""


class Data(Section):
    """Where the data are and how batches are made of them.

    ``url`` names a dataset that ``cerebro prepare`` wrote; ``source`` (a file, a URL, or a function
    ``module:name``) is prepared by the run itself: the keys up to ``encode`` belong to it.
    ``license`` is what the data are under, for the cards of models that are trained on them.
    """

    url: Url | None = None
    source: Url | None = None
    partitions: Partitions = 4
    valid: ValidationData = 0.2
    labels: Names = ()
    columns: Names | None = None
    features: Names | None = None
    label: str | None = None
    encode: Names | None = None
    batch_size: Positive = 32
    layout: Literal["tuple", "dict"] = "tuple"
    shuffle: bool = True
    transform: Reference | None = None
    collate: Reference | None = None
    workers: Annotated[int, Field(ge=0, le=1024)] = 0
    license: str | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> Data:
        if (self.url is None) == (self.source is None):
            raise ValueError("needs exactly one of `url` (a prepared dataset) and `source` (data to prepare)")
        misplaced = ", ".join(sorted(self.model_fields_set & OF_SOURCE))
        if self.url is not None and misplaced:
            raise ValueError(f"{misplaced}: settled when the dataset at `url` was prepared; remove it here")
        if self.columns is not None and self.features is not None:
            raise ValueError("`features` names the columns to use: give it or `columns`, not both")
        return self


class Limits(Section):
    """``tries`` attempts at a unit before its config fails; at most ``configs`` configs. A config with a
    loss or parameter that is NaN or infinite fails at once (another try would give the same), or goes on.
    A unit in which nothing happens for ``hang_factor`` times its expected seconds, and at least
    ``hang_seconds``, hangs."""

    tries: Positive = 3
    configs: Positive = 1000
    not_finite: Literal["fail", "go-on"] = "fail"
    hang_factor: Annotated[float, Field(ge=1, le=1e6)] = 10.0
    hang_seconds: Seconds = 600.0


class NodeSection(Section):
    """What one node is: its worker ranks, and the CPU threads of each."""

    threads: PerHost = 1
    ranks: PerHost = 1


_EVEN = ("auto", "exact", "longest-remaining")
"""Schedulers that know of evenness."""


class Recipe(Section):
    """A whole run."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    name: Annotated[str, Field(pattern=RUN_ID)]
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    epochs: Epochs = 1
    nodes: Nodes = NodeRange(1, 1)
    etcd: Endpoints | None = None
    task: Annotated[SerializeAsAny[TaskSection], WrapValidator(task_section)]
    data: Data
    search: Annotated[SerializeAsAny[SearchSection], WrapValidator(search_section)]
    objective: Objective = Objective()
    scheduler: Scheduler = "auto"
    limits: Limits = Limits()
    node: NodeSection = NodeSection()
    replicas: Positive = 1
    fetch: Literal["home", "on-demand"] = "home"
    progress: Literal["even", "free"] | None = None
    gang: Annotated[int, Field(ge=1, le=32)] = 1
    parallelism: Parallelisms = Field(default="single", validate_default=True)
    checkpoints: Url | None = None
    validation: Literal["epoch", "evaluate"] = "epoch"
    check: Literal["warn", "stop", "off"] = "warn"
    loggers: Annotated[tuple[Callback, ...] | None, Field(strict=False)] = None

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
        """``search.max_epochs`` is another name for ``epochs``, as searches have it."""
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
        """A URL as it is; a path from the recipe's folder on."""
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
        prepared = OF_SOURCE if self.data.url is not None else frozenset()
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"data": set(prepared)})

    @property
    def digest(self) -> str:
        """SHA-256 of ``resolved()``: equal recipes have equal digests, wherever their files lie."""
        return hashlib.sha256(json.dumps(self.resolved(), sort_keys=True).encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self.resolved() == other.resolved()

    def __hash__(self) -> int:
        return hash(self.digest)


def section_type(path: tuple[str | int, ...], kind: object, method: object) -> type[Section]:
    """The schema that holds at ``path``, for a recipe whose task is of ``kind`` and whose search of
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
