"""Did a run keep its promises? The invariants of the design (section 3) as functions over a trace.

A trace is a run's events in the store's order. The functions keep their own accounts and share no code with
the machine, so that a wrong machine cannot hide its mistakes from them. Each yields a sentence per violation.
Where the state was read afresh the accounts restart from that state (``Stretch``).

``check`` runs them all: after every step in the tests, and over the recorded history in ``cerebro verify``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from cerebro_elastic.core.invariants.configs import completeness, durability, isolation, purity, unseen
from cerebro_elastic.core.invariants.failures import boundedness
from cerebro_elastic.core.invariants.nodes import exclusive_access, fencing, non_preemption, paid_time
from cerebro_elastic.core.invariants.trace import Stretch, Trace, stretches
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.units import CheckpointRef

__all__ = ["Violation", "check"]


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise."""

    invariant: str
    """The invariant's name: "completeness", "isolation", ..."""
    story: str
    """What happened, in a sentence."""


def check(
    trace: Trace,
    *,
    readable: Callable[[CheckpointRef], bool] = lambda _ref: True,
    acknowledged: Collection[Visit] = (),
    retrain: Callable[[Visit, HParams], str] | None = None,
) -> list[Violation]:
    """All violations in a trace.

    Args:
        trace: The events in the store's order.
        readable: Whether a checkpoint can be read whole.
        acknowledged: The visits whose commit was confirmed to a worker.
        retrain: Repeats a visit and returns the digest of its result.
    """
    parts = stretches(trace)
    findings = {
        name: [s for part in parts for s in violated(part)] for name, violated in _OF_A_STRETCH.items()
    }
    findings["durability"] = list(durability(parts, readable, acknowledged))
    findings["purity"] = list(purity(parts, retrain))
    return [Violation(name, story) for name, stories in findings.items() for story in stories]


_OF_A_STRETCH: Mapping[str, Callable[[Stretch], Iterator[str]]] = {
    "completeness": completeness,
    "isolation": isolation,
    "exclusive access": exclusive_access,
    "non-preemption": non_preemption,
    "fencing": fencing,
    "paid time": paid_time,
    "boundedness": boundedness,
    "unseen test set": unseen,
}
