"""Faults as data: what, whom and when. A plan is a tuple of them, made from a seed, kept as JSON, shrunk
when it finds something; ``storm`` applies one to real processes. (``store`` has those of a store in process.)
"""

from cerebro_elastic.testing.faults.plan import (
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
from cerebro_elastic.testing.faults.shrink import shrink
from cerebro_elastic.testing.faults.store import Lost, losing

__all__ = [
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
