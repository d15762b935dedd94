"""Faults as data: what, whom and when. A plan is a tuple of them, made from a seed, kept as JSON, shrunk
when it finds something; ``storm`` applies one to real processes. (``store`` has those of a store in process.)
"""

from support.faults.plan import (
    HOST_KINDS,
    KINDS,
    Fault,
    FaultPlan,
    Kind,
    Point,
    What,
    Whom,
    plan_from_json,
    plan_to_json,
    random_plan,
)
from support.faults.shrink import shrink
from support.faults.store import Lost, losing

__all__ = [
    "HOST_KINDS",
    "KINDS",
    "Fault",
    "FaultPlan",
    "Kind",
    "Lost",
    "Point",
    "What",
    "Whom",
    "losing",
    "plan_from_json",
    "plan_to_json",
    "random_plan",
    "shrink",
]
