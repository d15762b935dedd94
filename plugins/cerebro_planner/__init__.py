"""The offline planner: it decides where and when each unit runs, without a run. (The policy ``exact`` follows
it in live runs.)

Describe the problem with ``instance``, and plan it with ``schedule``; events that nobody knows beforehand are
``Disturbances``. Example::

    from cerebro_planner import Disturbances, Outage, instance, schedule

    seconds = [[3.0, 6.0], [2.0, 4.0], [4.0, 8.0]]  # a unit's seconds, by config and node
    problem = instance(seconds, availability=[[1, 1], [1, 1]])  # both nodes hold both partitions
    plan = schedule(problem)
    print(plan.makespan, plan.gap)  # 12.0 0.0: no schedule is shorter
    for config, partition, node, start in zip(
        plan.visits.config, plan.visits.partition, plan.visits.node, plan.visits.start
    ):
        print(f"at {start:g} s node {node} trains config {config} on partition {partition}")
    late = schedule(problem, disturbances=Disturbances(outages=[Outage(node=1, start=5.0)]))
    print(late.makespan)  # 16.0: node 1 dies after 5 seconds

- ``schedule`` gives a ``Schedule``; its policies are those of ``planner.POLICIES``.
- ``lower_bound`` bounds the makespan of any schedule.
- ``joint`` also decides on the number of devices of each unit, and gives a ``JointSchedule``.
- ``Rungs`` (in ``Disturbances``) is successive halving.

docs/reference/openshop.md has all arguments. The names are imported on use: a live run loads only its policy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cerebro_elastic.extending.planning import Instance as Instance
    from cerebro_elastic.extending.planning import instance as instance
    from cerebro_elastic.extending.planning import lower_bound as lower_bound
    from cerebro_planner.joint_problem import JointSchedule as JointSchedule
    from cerebro_planner.joint_problem import joint as joint
    from cerebro_planner.online import Disturbances as Disturbances
    from cerebro_planner.online import Outage as Outage
    from cerebro_planner.online import Rungs as Rungs
    from cerebro_planner.planner import Schedule as Schedule
    from cerebro_planner.planner import schedule as schedule

_KERNEL = "cerebro_elastic.extending.planning"
_MODULES = {
    "Disturbances": "cerebro_planner.online",
    "Instance": _KERNEL,
    "JointSchedule": "cerebro_planner.joint_problem",
    "Outage": "cerebro_planner.online",
    "Rungs": "cerebro_planner.online",
    "Schedule": "cerebro_planner.planner",
    "instance": _KERNEL,
    "joint": "cerebro_planner.joint_problem",
    "lower_bound": _KERNEL,
    "schedule": "cerebro_planner.planner",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'cerebro_planner' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
