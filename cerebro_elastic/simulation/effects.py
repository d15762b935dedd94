"""What an action of the controller becomes if its transaction goes through, as ``store/ledger/ledger.py`` has it."""

from __future__ import annotations

from cerebro_elastic.core.model.actions import (
    Action,
    Assign,
    CreateConfig,
    EndConfig,
    EndRun,
    Place,
    ResumeConfig,
    SetAside,
    Withdraw,
)
from cerebro_elastic.core.model.events import (
    ConfigCreated,
    ConfigEnded,
    ConfigResumed,
    Event,
    NodeSetAside,
    Placed,
    RunEnded,
    UnitAssigned,
    UnitWithdrawn,
)


def effect(action: Action, revision: int) -> Event:
    """The event that the action is at ``revision``."""
    match action:
        case CreateConfig(config):
            return ConfigCreated(revision, config)
        case EndConfig(config, status, reason):
            return ConfigEnded(revision, config.id, status, reason)
        case ResumeConfig(config, reason):
            return ConfigResumed(revision, config.id, reason)
        case Place(homes):
            return Placed(revision, homes)
        case Assign(attempt):
            return UnitAssigned(revision, attempt)
        case Withdraw(attempt):
            return UnitWithdrawn(revision, attempt.node, attempt.token)
        case SetAside(node, why, failure, seconds):
            return NodeSetAside(revision, node, why, failure, seconds)
        case EndRun(outcome):
            return RunEnded(revision, outcome)
