"""The event that an action of the controller becomes if its transaction goes through (see
``store/ledger``)."""

from __future__ import annotations

from cerebro_elastic.core.model.actions import (
    Action,
    Assign,
    AssignHomes,
    CreateConfig,
    EndConfig,
    EndRun,
    Quarantine,
    ResumeConfig,
    Withdraw,
)
from cerebro_elastic.core.model.events import (
    ConfigCreated,
    ConfigEnded,
    ConfigResumed,
    Event,
    HomesAssigned,
    NodeQuarantined,
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
        case ResumeConfig(config, reason, extension, by_hand):
            return ConfigResumed(revision, config.id, reason, by_hand, extension)
        case AssignHomes(homes):
            return HomesAssigned(revision, homes)
        case Assign(attempt):
            return UnitAssigned(revision, attempt)
        case Withdraw(attempt):
            return UnitWithdrawn(revision, attempt.node, attempt.token)
        case Quarantine(node, why, failure, seconds):
            return NodeQuarantined(revision, node, why, failure, seconds)
        case EndRun(outcome):
            return RunEnded(revision, outcome)
