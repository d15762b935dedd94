"""Which unit runs where and when: the live run's policies, and ``schedule``, which plans an instance.

``schedule(durations)`` or ``schedule(instance(...))`` gives a ``Schedule``; docs/reference/openshop.md
describes the formats. All are imported on use: a live run loads its policy alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cerebro_elastic.openshop.bounds import lower_bound
    from cerebro_elastic.openshop.halving import Rungs
    from cerebro_elastic.openshop.instances import Instance, instance
    from cerebro_elastic.openshop.joint_problem.schedule import JointSchedule, joint
    from cerebro_elastic.openshop.online import Disturbances, Outage
    from cerebro_elastic.openshop.planner import Schedule, schedule

__all__ = [
    "Disturbances",
    "Instance",
    "JointSchedule",
    "Outage",
    "Rungs",
    "Schedule",
    "instance",
    "joint",
    "lower_bound",
    "schedule",
]

_HOMES = {
    "Rungs": "halving",
    "Instance": "instances",
    "JointSchedule": "joint_problem.schedule",
    "Outage": "online",
    "Schedule": "planner",
    "Disturbances": "online",
    "instance": "instances",
    "joint": "joint_problem.schedule",
    "lower_bound": "bounds",
    "schedule": "planner",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cerebro_elastic.openshop' has no attribute {name!r}")
    return getattr(import_module(f"cerebro_elastic.openshop.{_HOMES[name]}"), name)
