"""May a node's next unit be assigned while it trains?

A node that waits for its next unit waits for a commit, a decision and an assignment: tens of milliseconds. A
unit that is queued behind the one in training begins at once. But it is chosen one unit earlier, so by an
older state, and no other node can take it any more. Simulated runs of 2 to 8 nodes show where that pays: the
run is then nearly as short as if nothing waited, and elsewhere it may be longer by some percent. So a unit is
queued only

- behind a unit that is short: behind a long one the wait does not count;
- if many configs are left to choose from;
- in a run without gangs, which need nodes that are idle together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from cerebro_elastic.core.decisions.placements import Placements
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State

SHORT_SECONDS = 3.0
"""A unit that is expected to take longer has nothing queued behind it."""
CONFIGS_PER_NODE = 2
"""Units are queued while more configs than this are free for each node."""


def may_queue(state: State, plan: Plan, nodes: Iterable[str]) -> Iterator[str]:
    """The ``nodes`` behind whose units others may be queued. One on which units fail waits to be idle: it may
    have to be quarantined."""
    if any(strategy.nodes > 1 for strategy in plan.strategies):
        return
    for name in nodes:
        attempt = state.attempts.get(name)
        if attempt is None or name in state.queued or name in state.streaks:
            continue
        if attempt.may_queue and attempt.expected is not None and attempt.expected <= SHORT_SECONDS:
            yield name


def leaves_choice(placements: Placements, busy: Collection[str], nodes: int) -> bool:
    """Whether a config may be queued: the nodes keep many to choose from, or only one node chooses."""
    free = sum(bool(options.placements) for config, options in placements.items() if config not in busy)
    return nodes == 1 or free > CONFIGS_PER_NODE * nodes
