"""What is fixed for the whole run? Its plan, and what it is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cerebro_elastic.core.model.configs import Parent
from cerebro_elastic.core.model.units import Strategy


class Progress(StrEnum):
    """When a node that could take units of several configs takes the config with most epochs left."""

    EVEN = "even"
    """Always: configs stay within an epoch of each other."""
    AFFORDABLE = "affordable"
    """Where the run ends no later for it."""
    FREE = "free"
    """Never for this reason."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the decisions need to know of the recipe. It never changes in a run."""

    run: str
    """The run's id."""
    partitions: int
    """p: the number of training partitions."""
    epochs: int
    """The number of epochs of each config."""
    evaluations: int = 0
    """The number of validation partitions that are evaluated by units of their own; 0: validation belongs to
    the epoch's last unit."""
    min_nodes: int = 1
    """The run waits for so many nodes before its first unit."""
    max_nodes: int = 1
    """The run uses at most so many nodes."""
    tries: int = 3
    """How often a unit is tried before its config fails."""
    seed: int = 0
    """The run's seed."""
    strategies: tuple[Strategy, ...] = (Strategy(),)
    """How units may be trained, the preferred strategy first. If there are several, profiles find the fastest
    for each config."""
    start: Parent | None = None
    """The checkpoint from outside the run with which the search's configs begin."""
    replicas: int = 1
    """On how many nodes each partition is at home; on all, if there are fewer."""
    on_demand: bool = False
    """A node that would be idle otherwise may fetch a partition that is at home elsewhere."""
    progress: Progress = Progress.FREE
    """Whether configs advance evenly."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What a run is made from; written once."""

    plan: Plan
    """The plan."""
    recipe: Mapping[str, Any]
    """The resolved recipe; values that it takes from other runs are written out."""
    recipe_digest: str
    """The digest of the recipe as it was given."""
    data: str
    """The URL of the prepared data."""
    data_digest: str
    """The digest of the prepared data."""
    root: str
    """The folder from which users' modules are imported."""
    code: Mapping[str, str]
    """The digest of each imported file below ``root``. It is all that may differ when the run is started
    again."""
    storage: str
    """The URL of checkpoints and logs."""
    version: str
    """The version of cerebro-elastic."""


@dataclass(frozen=True, slots=True)
class Basis:
    """The digests of what a run is made from (``core/model/origin.py``)."""

    run: str
    """The run's id."""
    spec: str
    """The digest of the spec without ``Spec.code``."""
    code: str
    """The digest of the users' code, which may be another when the run is started again."""
