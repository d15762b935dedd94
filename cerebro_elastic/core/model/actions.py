"""What the controller shall try: each action is one guarded transaction, its effect an event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from cerebro_elastic.core.model.values import Attempt, Config, Status


@dataclass(frozen=True, slots=True)
class CreateConfig:
    """Add a config that the search proposed; if it has a parent, as long as that is at revision
    ``parent``."""

    config: Config
    parent: int = 0


@dataclass(frozen=True, slots=True)
class EndConfig:
    """Give up or stop a config as it is at ``config.revision``."""

    config: Config
    status: Status
    reason: str


@dataclass(frozen=True, slots=True)
class ResumeConfig:
    """Let a stopped config, as it is at ``config.revision``, go on."""

    config: Config
    reason: str


@dataclass(frozen=True, slots=True)
class AssignHomes:
    """Give every partition its homes."""

    homes: Mapping[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Assign:
    """Give an idle node a unit; the attempt gets its token from the store."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take an assignment back whose node or config is gone."""

    attempt: Attempt
    reason: str


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Give a node on which units keep failing no more of them for ``seconds``; ``failure`` is the token of
    its last failure."""

    node: str
    why: str
    failure: int
    seconds: float


@dataclass(frozen=True, slots=True)
class EndRun:
    """Everything is done, unless a person has asked for something since revision ``asked``."""

    outcome: str
    asked: int = 0


Action: TypeAlias = (
    CreateConfig | EndConfig | ResumeConfig | AssignHomes | Assign | Withdraw | Quarantine | EndRun
)
