"""What can the controller do? Each action is one guarded transaction. Its effect comes back as an event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.configs import Config, Status


@dataclass(frozen=True, slots=True)
class CreateConfig:
    """Add a config that the search proposed."""

    config: Config
    """The config as it begins."""
    parent: int = 0
    """The revision that its parent must still have; ignored if it has none."""


@dataclass(frozen=True, slots=True)
class EndConfig:
    """Stop or fail a config, provided that it is still at ``config.revision``."""

    config: Config
    """The config before the action."""
    status: Status
    """``STOPPED`` or ``FAILED``."""
    reason: str
    """Why, for people."""


@dataclass(frozen=True, slots=True)
class ResumeConfig:
    """Continue a stopped config, or one that an extension lets go on, provided that it is still at
    ``config.revision``."""

    config: Config
    """The config before the action."""
    reason: str
    """Why, for people."""
    extension: int = 0
    """``Extension.number`` of the extension that lets it go on; 0 if it is stopped."""
    by_hand: bool = False
    """A person has named it for the extension."""


@dataclass(frozen=True, slots=True)
class AssignHomes:
    """Assign every partition to its home nodes."""

    homes: Mapping[int, tuple[str, ...]]
    """By partition: the names of its home nodes."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Give an idle node a unit."""

    attempt: Attempt
    """The attempt without its token, which comes from the store."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take back an assignment whose node or config is gone."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Give a node on which units keep failing no more of them for a while."""

    node: str
    why: str
    """The reason, for people."""
    failure: int
    """The token of the node's last failure."""
    seconds: float
    """How long the quarantine lasts."""


@dataclass(frozen=True, slots=True)
class EndRun:
    """End the run, provided that no person has asked for anything meanwhile."""

    outcome: str
    """How it ended, in a word: "finished"."""
    asked: int = 0
    """``State.asked`` when it was decided."""


Action: TypeAlias = (
    CreateConfig | EndConfig | ResumeConfig | AssignHomes | Assign | Withdraw | Quarantine | EndRun
)
