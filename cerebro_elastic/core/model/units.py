"""What is trained, and how? A unit, the strategy that trains it, the checkpoints between units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

Order: TypeAlias = tuple[tuple[str, str, int, int], ...]
"""The order in which training units should begin: (node, config, epoch, partition) of each."""


class Phase(StrEnum):
    """What a unit does with its partition.

    A profile trains a few batches of it, to measure a strategy: nothing is saved, and the config does not
    advance.
    """

    TRAIN = "train"
    EVALUATE = "evaluate"
    PROFILE = "profile"


_PLACES = {Phase.TRAIN: "partition", Phase.EVALUATE: "evaluation", Phase.PROFILE: "profile on"}


@dataclass(frozen=True, slots=True)
class Unit:
    """One sub-epoch: a config's pass over one partition."""

    config: str
    epoch: int
    """Counts from 0."""
    partition: int
    """Counts from 0: a training partition, or for an evaluation a validation partition."""
    phase: Phase = Phase.TRAIN

    def __str__(self) -> str:
        """For people: "c0001 epoch 2 partition 3"."""
        return f"{self.config} epoch {self.epoch + 1} {_PLACES[self.phase]} {self.partition}"


@dataclass(frozen=True, slots=True)
class PartialUnit:
    """A partition that a config has trained in part."""

    partition: int
    batches: int
    """The number of its batches that are trained."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """How a unit is trained: the parallelism, its ranks and its nodes."""

    parallelism: str = "single"
    """The registered name of the parallelism."""
    ranks: int = 1
    """The number of ranks on all ``nodes`` together."""
    nodes: int = 1
    """The number of nodes. Several form a gang."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The parallelism's own options, such as ``stage`` of DeepSpeed."""

    def __hash__(self) -> int:
        return hash((self.parallelism, self.ranks, self.nodes))

    def __str__(self) -> str:
        """For people: "single", "ddp x2", "fsdp x2 over 2 nodes", "deepspeed x2 stage=3"."""
        ranks = f" x{self.ranks}" if self.ranks > 1 else ""
        options = "".join(f" {name}={value}" for name, value in sorted(self.options.items()))
        nodes = f" over {self.nodes} nodes" if self.nodes > 1 else ""
        return f"{self.parallelism}{ranks}{options}{nodes}"


@dataclass(frozen=True, slots=True)
class CheckpointRef:
    """A saved state of a config."""

    url: str
    """The folder of the checkpoint."""
    digest: str
    """The digest of its content."""
    bytes: int
    """Its size."""
    base_bytes: int = 0
    """The size of its tensors that training does not change, and that do not hop."""

    @property
    def hopping_bytes(self) -> int:
        """The size of the hopping tensors."""
        return self.bytes - self.base_bytes


@dataclass(frozen=True, slots=True)
class Measurement:
    """The metrics of a config's model on the test set."""

    number: int
    """Counts the run's measurements from 0."""
    config: str
    """The config's id."""
    epoch: int
    """The model's full epochs, its parent's included."""
    checkpoint: CheckpointRef
    """The model: the config's state at the end of that epoch."""
    metrics: Mapping[str, float]
    """The metrics over all rows of the test set, by name."""
    rows: int
    """The number of rows in the test set."""
    at: float
    """When it was measured: wall-clock seconds since the epoch."""
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """By the name of a metric that is a mean over rows: the ends of its 95 % interval, by bootstrap."""
    by: str = ""
    """Who requested the measurement: a person's name, if given, or the run itself."""


@dataclass(frozen=True, slots=True)
class RecordHead:
    """Where a record of the run's history ended."""

    revision: int
    """The revision of the record's last line."""
    digest: str
    """The digest that is chained over this line and all before it (``store/ledger/journal.py``)."""
