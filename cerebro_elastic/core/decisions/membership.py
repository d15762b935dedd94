"""Which nodes get units, and which are quarantined?

Of the registered nodes those get units that are not leaving, stalled or quarantined; at most as many as the
run uses.
"""

from __future__ import annotations

from collections.abc import Iterator

from cerebro_elastic.core.history.derived import failures_against
from cerebro_elastic.core.model.events import NodeQuarantined
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State, Streak

IN_A_ROW = 3
"""Failures in a row, of more than one config, after which a node is quarantined."""
COOLDOWN = 60.0
"""Seconds of the first quarantine; each further failure doubles them."""
LONGEST_COOLDOWN = 3600.0
"""Seconds of the longest quarantine."""


def used_nodes(state: State, plan: Plan) -> list[Node]:
    """The nodes that get units: those longest registered since the run was last extended, at most
    ``plan.max_nodes``.

    A draining or stalled node gets none. A quarantined node gets units only if no other node is left, and if
    the fault may lie elsewhere (a full disk is the node's own fault).
    """
    nodes = sorted(state.nodes.values(), key=lambda node: node.registration)
    staying = [n for n in nodes if n.registration >= state.extended and n.drain is None and n.stalled is None]
    trusted = [n for n in staying if n.name not in state.quarantined]
    return (trusted or [n for n in staying if not _in_trouble(state, n)])[: plan.max_nodes]


def waiting(state: State, plan: Plan) -> bool:
    """Whether the run still waits for ``plan.min_nodes``: before its first unit it may, afterwards never."""
    configs = state.configs.values()
    begun = state.underway() or state.profiles or any(c.head is not None or c.failures for c in configs)
    return not begun and sum(n.drain is None for n in state.nodes.values()) < plan.min_nodes


def quarantines(state: State) -> Iterator[NodeQuarantined]:
    """Idle nodes on which units keep failing. Each quarantine lasts longer than the one before. A busy node
    is considered when it is idle."""
    for name, streak in state.streaks.items():
        idle = name in state.nodes and name not in state.attempts and name not in state.quarantined
        if idle and streak.last > state.quarantined_for.get(name, 0) and _too_many(state, name, streak):
            yield NodeQuarantined(0, name, _why(streak), streak.last, _cooldown(streak))


def _too_many(state: State, name: str, streak: Streak) -> bool:
    """Whether the streak is long enough. After a quarantine in the same streak one more failure suffices. If
    only one config fails on the node, the config is to blame, unless the kind of failure is the node's."""
    against = failures_against(state, name)
    of_several = streak.kind.of_node or len({failure.unit.config for failure in against}) > 1
    return streak.kind.lasting or (len(against) >= IN_A_ROW and of_several) or name in state.quarantined_for


def _why(streak: Streak) -> str:
    times = "once" if streak.failures == 1 else f"{streak.failures} times in a row"
    return f"units failed on it {times}, at last with {streak.kind.value}: {streak.story}"


def _cooldown(streak: Streak) -> float:
    """Seconds: doubled with each failure after the first that could quarantine the node."""
    further = max(0, streak.failures - (1 if streak.kind.lasting else IN_A_ROW))
    return float(min(COOLDOWN * 2 ** min(further, 10), LONGEST_COOLDOWN))


def _in_trouble(state: State, node: Node) -> bool:
    streak = state.streaks.get(node.name)
    return node.name in state.quarantined and streak is not None and streak.kind.of_node
