"""The invariants of the design, section 3, each said in words and as a function over a trace.

A trace is a run's events in the store's order. The functions keep their own accounts and share
nothing with the machine, so that a wrong machine cannot hide its mistakes from them. Each yields
a sentence per violation. Where the store had forgotten history (``StateRead``) the accounts begin anew
from what was read. ``check`` runs them all: after every step in the tests, and over
the recorded history in ``cerebro verify``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from cerebro_elastic.core.invariants.chains import completeness, durability, isolation, purity
from cerebro_elastic.core.invariants.places import exclusive_access, fencing, non_preemption
from cerebro_elastic.core.invariants.trace import Trace, stretches
from cerebro_elastic.core.invariants.tries import boundedness
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.events import StateRead
from cerebro_elastic.core.model.units import CheckpointRef

__all__ = ["Violation", "check"]


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that a trace breaks, and how."""

    invariant: str
    story: str


def check(
    trace: Trace,
    *,
    readable: Callable[[CheckpointRef], bool] = lambda _ref: True,
    acknowledged: Collection[Visit] = (),
    retrain: Callable[[Visit, HParams], str] | None = None,
) -> list[Violation]:
    """All violations in ``trace``. ``readable`` says whether a checkpoint can be read whole,
    ``acknowledged`` has the visits whose commit was confirmed to a worker, ``retrain`` gives the
    digest of a visit done again."""
    parts = stretches(trace)
    findings = {
        name: [s for part in parts for s in violated(*part)] for name, violated in _OF_A_STRETCH.items()
    }
    findings["durability"] = list(durability(parts, readable, acknowledged))
    findings["purity"] = list(purity(parts, retrain))
    return [Violation(name, story) for name, stories in findings.items() for story in stories]


_OF_A_STRETCH: Mapping[str, Callable[[StateRead, Trace], Iterator[str]]] = {
    "completeness": completeness,
    "isolation": isolation,
    "exclusive access": exclusive_access,
    "non-preemption": non_preemption,
    "fencing": fencing,
    "boundedness": boundedness,
}
