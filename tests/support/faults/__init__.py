"""Faults as data: what, whom and when. A plan is a tuple of them, made from a seed, kept as JSON, shrunk
when it finds something; ``storm`` applies one to real processes. (``store`` has those of a store in process.)
"""

from support.faults.plan import HOST_KINDS as HOST_KINDS
from support.faults.plan import KINDS as KINDS
from support.faults.plan import Fault as Fault
from support.faults.plan import FaultPlan as FaultPlan
from support.faults.plan import Kind as Kind
from support.faults.plan import Point as Point
from support.faults.plan import What as What
from support.faults.plan import Whom as Whom
from support.faults.plan import plan_from_json as plan_from_json
from support.faults.plan import plan_to_json as plan_to_json
from support.faults.plan import random_plan as random_plan
from support.faults.shrink import shrink as shrink
from support.faults.store import Lost as Lost
from support.faults.store import losing as losing
