"""The schema of a recipe: frozen values with their defaults, each checking itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

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

from cerebro_elastic import registry
from cerebro_elastic.recipes.data import Data, PartitionChoice
from cerebro_elastic.recipes.fields import (
    AUTO_NODES,
    MOST_CONFIGS,
    Bytes,
    BytesOrNone,
    Endpoints,
    Epochs,
    Nodes,
    PerHost,
    Positive,
    RunName,
    Scheduler,
    Seconds,
    Section,
    Seed,
    Url,
)
from cerebro_elastic.recipes.folds import (
    Folds,
    Repeats,
    check_members,
    check_trainings,
    check_valid,
    deals,
    validation_section,
)
from cerebro_elastic.recipes.loggers import Loggers
from cerebro_elastic.recipes.parallelism import AUTO, Parallelisms, check_ranks
from cerebro_elastic.recipes.search import (
    Objective,
    SearchSection,
    search_section,
    search_type,
)
from cerebro_elastic.recipes.source import Source
from cerebro_elastic.recipes.tasks import TaskSection, check_arrays, task_section, task_type
from cerebro_elastic.registry import is_reference, module_of
from cerebro_elastic.system.words import counted


class Limits(Section):
    """Bounds on attempts, on configs, and on the time that a unit may go without progress."""

    tries: Positive = 3
    """Attempts at a unit before its config fails. They run on different nodes where possible."""
    configs: Annotated[int, Field(ge=1, le=MOST_CONFIGS)] = 1000
    """A recipe with more configs than this is refused before anything starts."""
    not_finite: Literal["fail", "go-on"] = "fail"
    """If a loss or a trained parameter is NaN or infinite at the end of a unit, the config fails (`fail`;
    another try would give the same), or continues (`go-on`)."""
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
    """The most bytes of a host's cached partitions and bases, such as `200G`; see [larger than a
    disk](../how-to/data.md#larger-than-a-disk)."""
    batch_cache_bytes: BytesOrNone | None = None
    """The most bytes of made batches and opened rows that a host keeps, such as `20G`; `0`: none. Without it,
    a quarter of the free space on the cache's disk, and at most half of the free memory; see [made
    once](../how-to/data.md#made-once)."""


_EVEN = ("auto", "longest-remaining")
"""The built-in schedulers that can keep progress even. One of a plugin answers for itself."""


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
    seed: Seed = 0
    """The seed of everything random: partitions, orders, initial weights, random search."""
    epochs: Epochs = 1
    """Passes of each config over all partitions."""
    nodes: Nodes = AUTO_NODES
    """Nodes on this machine. `auto`: one for each of its accelerators, or for each `node.ranks` of them; one
    without any. A range `'2:8'` starts with 2 and uses up to 8 that join."""
    etcd: Endpoints | None = None
    """`HOST:PORT` of an etcd (several separated by commas) instead of one of the run's own. Login and TLS
    come from the [environment](environment.md#etcd)."""
    task: Annotated[SerializeAsAny[TaskSection], WrapValidator(task_section)]
    """The model and its training: a section with a `kind`."""
    data: Data
    """The data."""
    search: Annotated[SerializeAsAny[SearchSection], WrapValidator(search_section)]
    """The configs."""
    objective: Objective = Objective()
    """The metric that sorts the leaderboard, or a list of several: the first sorts it, and all of them have a
    front; see [several objectives](../how-to/search.md#several-objectives). A key `constraint` beside it
    bounds other metrics."""
    scheduler: Scheduler = "auto"
    """The policy that decides which config an idle node trains: `auto`, `longest-remaining`, `random`,
    ...; see [scheduling](../design/scheduling.md#policies)."""
    limits: Limits = Limits()
    """Bounds on tries and configs."""
    node: NodeSection = NodeSection()
    """The resources of one node."""
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
    keep: Literal["epochs"] | None = None
    """`epochs`: the state at the end of each epoch stays, not only the last two states and the best epoch's,
    for [later runs](../how-to/runs.md#train-only-what-is-new) to begin with."""
    validation: Annotated[Literal["epoch", "evaluate"] | Folds, WrapValidator(validation_section)] = "epoch"
    """`epoch`: at the end of each epoch's last unit. `evaluate`: in separate units (with Lightning [outside
    of the fit](../how-to/folds.md#folds-of-a-lightningmodule)). `folds: 5`:
    [cross-validation](../how-to/folds.md)."""
    repeats: Repeats | None = None
    """Train each config with several seeds: `3`, or `{min: 1, max: 5}` for more of them for the best
    configs; see [repeats](../how-to/folds.md#repeats-over-seeds)."""
    check: Literal["warn", "stop", "off"] = "warn"
    """If the run's [check](../how-to/repeat.md#check-your-own-module) finds that units differ from one
    ordinary fit: `warn` or `stop`. `off`: no check."""
    loggers: Loggers | None = None
    """Where logged rows go during the run, instead of TensorBoard: `tensorboard`, `mlflow`, `wandb`, or one
    of Lightning's; see [loggers](../how-to/trackers.md)."""

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
        built_in = registry.BUILT_IN["cerebro.schedulers"]
        if value == "even" and info.data.get("scheduler") in built_in.keys() - set(_EVEN):
            raise ValueError(f"only {', '.join(_EVEN)} keep progress even: take one of them as `scheduler`")
        return value

    @field_validator("validation")
    @classmethod
    def _folds_fit(cls, value: str | Folds, info: ValidationInfo) -> str | Folds:
        if isinstance(value, Folds):
            check_valid(value.folds, info.data.get("data"))
            check_members("folds", info.data.get("search"))
        return value

    @field_validator("repeats")
    @classmethod
    def _repeats_fit(cls, value: Repeats | None, info: ValidationInfo) -> Repeats | None:
        if value is not None:
            check_members("repeats", info.data.get("search"))
            validation = info.data.get("validation")
            check_trainings(value, validation.folds if isinstance(validation, Folds) else 0)
        return value

    @model_validator(mode="after")
    def _sampler_knows_constraints(self) -> Self:
        for name in (self.search.method, getattr(self.search, "sampler", "")):
            if self.objective.constraints and name in ("cmaes", "tune"):
                raise ValueError(
                    f"{name} goes by the objective alone, also where the `constraint` is broken: use tpe, "
                    "gp, nsga2, random or asha"
                )
        return self

    _task_takes_data = field_validator("data")(check_arrays)
    _ranks_fit = field_validator("parallelism")(check_ranks)

    @model_validator(mode="before")
    @classmethod
    def _no_share_beside_folds(cls, value: Any) -> Any:
        """By default, a fifth of the rows is for validation; with folds, none."""
        match value:
            case {"validation": Folds() | {"folds": _}, "data": Mapping() as data} if deals(data):
                return {**value, "data": {"valid": 0.0, **data}}
        return value

    @model_validator(mode="before")
    @classmethod
    def _epochs_of_the_search(cls, value: Any) -> Any:
        """Accept ``search.max_epochs``, the word of searches, as another name for ``epochs``."""
        search = value.get("search") if isinstance(value, Mapping) else None
        most = search.get("max_epochs") if isinstance(search, Mapping) else None
        if most is None or value.get("epochs", most) == most:
            return value if most is None else {**value, "epochs": most}
        raise ValueError(f"epochs is {value['epochs']}, search.max_epochs {most}: give one of them")

    @model_validator(mode="before")
    @classmethod
    def _objectives_and_constraints(cls, value: Any) -> Any:
        """Accept a list of objectives, and ``constraint`` beside them."""
        if not isinstance(value, Mapping):
            return value
        objective, search = value.get("objective", {}), value.get("search")
        if isinstance(objective, list | tuple):
            if not objective:
                raise ValueError("objective is an empty list: name at least one metric")
            if isinstance(search, Mapping) and len(objective) > 1:
                if search.get("objectives") is not None:
                    raise ValueError("objective is a list, and search has `objectives`: give one of them")
                value = {**value, "search": {**search, "objectives": objective}}
            value = {**value, "objective": objective[0]}
        if "constraint" in value:
            given, objective = value["constraint"], value.get("objective", {})
            if not isinstance(objective, Mapping) or objective.get("constraint") is not None:
                raise ValueError("constraint: it is also in the objective; give it once")
            several = tuple(given) if isinstance(given, list | tuple) else (given,)
            rest = {key: known for key, known in value.items() if key != "constraint"}
            value = {**rest, "objective": {**objective, "constraint": several}}
        return value

    _root: Path = PrivateAttr(default_factory=Path.cwd)
    _choice: PartitionChoice | None = PrivateAttr(None)
    _source: Source = PrivateAttr(default_factory=lambda: Source("recipe", {}))

    @property
    def root(self) -> Path:
        """The folder that users' modules are imported from and relative paths start from."""
        return self._root

    def rooted(self, url: str) -> str:
        """A URL as it is; a path relative to the recipe's folder."""
        return (url if "://" in url else str(self.root / url)).rstrip("/")

    def placed(self, root: Path, source: Source, choice: PartitionChoice | None = None) -> Self:
        """This recipe with its folder, with the places of its values for messages, and with the ``choice`` of
        its number of partitions."""
        self._root, self._source, self._choice = root.resolve(), source, choice
        return self

    @property
    def choice(self) -> PartitionChoice | None:
        """The number chosen for ``data.partitions: auto``; ``None`` if recipe or dataset have a number."""
        return self._choice

    @property
    def source(self) -> Source:
        """The recipe as it was written: ``source.where(path)`` names the line in later checks' messages."""
        return self._source

    @property
    def folds(self) -> int:
        """The number of folds; 0 without."""
        return self.validation.folds if isinstance(self.validation, Folds) else 0

    @property
    def has_members(self) -> bool:
        """Whether each config is trained as several."""
        return bool(self.folds) or self.repeats is not None

    @property
    def validates_apart(self) -> bool:
        """Whether validation is in separate units, where the task can."""
        if not isinstance(self.validation, Folds):
            return self.validation == "evaluate"
        return self.validation.when == "evaluate" or (
            self.validation.when is None and not self.task.VALIDATES_IN_FIT
        )

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
    section: type[Section] = Recipe
    for key in path:
        if section is Recipe and key in ("task", "search"):
            section = task_type(kind) if key == "task" else search_type(method)
        elif (field := section.model_fields.get(str(key))) is not None:
            section = next(_sections_in(field.annotation), section)
    return section


def _sections_in(annotation: Any) -> Iterator[type[Section]]:
    """The schemas that a field's type names."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for part in get_args(annotation):
        yield from _sections_in(part)


def differences(old: Mapping[str, Any], new: Mapping[str, Any], _prefix: str = "") -> list[str]:
    """The differences between two resolved recipes, one line each: ``epochs: 5 -> 6``."""
    lines = []
    for key in [*old, *(key for key in new if key not in old)]:
        before, after = old.get(key, "(absent)"), new.get(key, "(absent)")
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            lines += differences(before, after, f"{_prefix}{key}.")
        elif before != after:
            lines.append(f"{_prefix}{key}: {before} -> {after}")
    return lines


def modules_of(recipe: Recipe) -> list[str]:
    """The modules that units need: of the task's kind and of the parallelisms, and the user's own. A task of
    numpy's arrays needs no parallelisms: they import torch."""
    used = () if recipe.parallelism == AUTO else [section.use for section in recipe.parallelism]
    if recipe.task.ARRAYS == "numpy":
        used = ()
    parts = [
        module_of("cerebro.tasks", recipe.task.kind),
        *recipe.task.modules,
        *(module_of("cerebro.parallel", name) for name in used),
    ]
    own = [reference.partition(":")[0] for reference in references_of(recipe)]
    return list(dict.fromkeys([*(module for module in parts if module), *own]))


def references_of(recipe: Recipe) -> list[str]:
    """The user's code that a recipe names: ``module:name``."""
    return list(filter(is_reference, _texts(recipe.resolved())))


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


def sections_with(key: str, kind: object, method: object) -> list[str]:
    """Where in a recipe a key may be written, in words: in the sections that most recipes have."""
    paths = [("task",), ("data",), ("search",), ("search", "budget"), ("objective",)]
    paths += [("validation",), ("repeats",), ("limits",), ("node",)]
    found = [path for path in paths if key in section_type(path, kind, method).model_fields]
    top = ["at the top of the recipe"] if key in Recipe.model_fields else []
    return [*top, *(f"below `{'.'.join(path)}`" for path in found)]
