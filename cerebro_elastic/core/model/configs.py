"""How far has a config come, and where does it come from?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from cerebro_elastic.core.model.attempts import Failure
from cerebro_elastic.core.model.units import CheckpointRef, PartialUnit

HParams: TypeAlias = Mapping[str, Any]
"""Hyper-parameters: names to JSON values."""

BY_HAND: Mapping[str, str] = {"by": "hand"}
"""Entries in the ``Config.origin`` of a config that a person created; ``agent`` names the program, if one did
it for them."""


def created_by_hand(origin: Mapping[str, Any]) -> bool:
    """Whether a person, or a program for them, created the config with this ``origin``."""
    return BY_HAND.items() <= origin.items()


ConfigStart: TypeAlias = Literal["scratch", "here", "best"]
"""Where a config begins: from scratch, from its parent's present state, or from the state of its parent's
best epoch."""


class Status(StrEnum):
    """The status of a config. Only a LIVE config gets units."""

    LIVE = "live"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Parent:
    """The lineage edge of a config that continues from a checkpoint of another config, or of another run.

    The checkpoint is shared, not copied.
    """

    config: str
    """The config from which it continues; "" for a checkpoint from outside the run."""
    checkpoint: CheckpointRef
    """The checkpoint with which the new config begins."""
    epoch: int
    """The parent's epoch at that checkpoint."""
    owner: str
    """The config whose visit wrote the checkpoint: ``config`` or an ancestor of it; "" from outside."""
    visited: tuple[int, ...] = ()
    """Partitions of ``epoch`` that the parent had trained at that checkpoint, in order."""
    partial_unit: PartialUnit | None = None
    """The partition that the parent had trained in part."""
    hparams: HParams = field(default_factory=dict)
    """The hyper-parameters with which the checkpoint was made."""


@dataclass(frozen=True, slots=True)
class Config:
    """One training configuration and how far it has come."""

    id: str
    """Unique in the run: c0000, c0001, ... in the order of creation."""
    hparams: HParams
    status: Status = Status.LIVE
    epoch: int = 0
    """The present epoch, from 0: the number of its full epochs."""
    visited: tuple[int, ...] = ()
    """Training partitions of the present epoch that are done, in order."""
    evaluated: tuple[int, ...] = ()
    """Validation partitions of the present epoch that are done, in order."""
    head: CheckpointRef | None = None
    """The checkpoint of its last visit."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The metrics of its last full epoch."""
    pending: Mapping[str, float] = field(default_factory=dict)
    """The metrics of the present epoch so far."""
    weighted: Mapping[str, float] = field(default_factory=dict)
    """The sums, over ``samples``, of the metrics of the present epoch's evaluate units."""
    samples: int = 0
    """Samples in the present epoch's evaluate units."""
    done: bool = False
    """The task ends its training with the present epoch, which is still to be evaluated."""
    partial_unit: PartialUnit | None = None
    """The partition that its last visit left before the end."""
    parts: int = 0
    """Visits of the present epoch that were not whole."""
    failures: tuple[Failure, ...] = ()
    """All its failed attempts, in order."""
    retried: int = 0
    """Its revision when a person last had it tried again after a failure; 0 if nobody did. Earlier attempts,
    with lower tokens, no longer count as tries."""
    reason: str = ""
    """Why it has its status, for people."""
    parent: Parent | None = None
    """The start of its chain of checkpoints; ``None``: from scratch."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """The search's JSON notes from its proposal; ``BY_HAND`` and more for a person's config."""
    by_hand: bool = False
    """A person has created, stopped or resumed it. The search leaves it as it is. (A failed config that a
    person has tried again stays with the search, which did not decide on the failure.)"""
    member_of: str = ""
    """The config, as a person sees it, of which this is a member: its training on one fold, or with one seed
    (``core/history/members.py``). "" for a config that is trained once."""
    fold: int | None = None
    """The fold whose partitions it leaves out of training, and validates on; from 0. ``None``: no fold."""
    repeat: int = 0
    """The number of its seed; 0 is the run's seed."""
    extension: int = 0
    """``Extension.number`` of the extension that last resumed it; 0 without one."""
    revision: int = 0
    """The store's revision of this value. Every commit compares it."""

    @property
    def seen_as(self) -> str:
        """The id of the config as a person sees it."""
        return self.member_of or self.id

    @property
    def tries(self) -> tuple[Failure, ...]:
        """The ``failures`` since it was last tried again."""
        return tuple(f for f in self.failures if f.attempt > self.retried) if self.retried else self.failures
