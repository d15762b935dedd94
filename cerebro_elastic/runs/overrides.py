"""The keys of a recipe that ``run`` takes as arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    import optuna


class RecipeOverrides(TypedDict, total=False):
    """Values that replace those of a recipe. A mapping is merged into its section key by key."""

    name: str
    """The run's id, if no ``run_id`` is given."""
    seed: int
    """Seed of everything that is drawn."""
    epochs: int
    """Epochs that each config is trained for."""
    nodes: int | str
    """Number of nodes, or ``MIN:MAX``."""
    etcd: str
    """``HOST:PORT`` of an etcd, several separated by commas."""
    task: Mapping[str, Any]
    """What is trained."""
    data: Mapping[str, Any]
    """What it is trained on."""
    search: Mapping[str, Any] | optuna.Study
    """The configs to train; a study brings its sampler and pruner, and gets the configs as trials."""
    objective: Mapping[str, Any]
    """The metric by which configs are compared, and its mode."""
    scheduler: str
    """The policy that assigns units to nodes."""
    limits: Mapping[str, Any]
    """What ends a config: tries, values that are not finite, number of configs."""
    node: Mapping[str, Any]
    """Ranks and threads of a node."""
    replicas: int
    """On how many nodes each partition is cached."""
    fetch: Literal["home", "on-demand"]
    """Whether nodes prefetch their partitions."""
    progress: Literal["even", "free"]
    """Whether configs are kept within an epoch of each other."""
    gang: int
    """The most nodes that train a unit together."""
    parallelism: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
    """How units use the ranks that they have."""
    checkpoints: str
    """URL of checkpoints and logs."""
    validation: Literal["epoch", "evaluate"]
    """Whether epochs end with a validation, or configs are evaluated by units of their own."""
    check: Literal["warn", "stop", "off"]
    """What follows if units do not equal one ordinary fit."""
    loggers: Sequence[str | Mapping[str, Any]]
    """Where metrics are logged."""
    cells: Literal["cloudpickle"]
    """Whether what a notebook has and has no source is pickled."""
