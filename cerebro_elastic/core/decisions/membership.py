"""Which nodes get units: of those registered, not the ones that are leaving, stalled or set aside, and not
more than the run uses."""

from __future__ import annotations

from collections.abc import Iterator

from cerebro_elastic.core.history.tallies import suspicious
from cerebro_elastic.core.model.actions import Quarantine
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State, Streak

IN_A_ROW = 3
"""Failures in a row, of more than one config, after which a node is set aside."""
COOLDOWN = 60.0
LONGEST_COOLDOWN = 3600.0


def used_nodes(state: State, plan: Plan) -> list[Node]:
    """The nodes that get units: those longest registered, at most ``plan.max_nodes``.

    A node that is draining or stalled gets none. One that is set aside gets none either, as long as there is
    another; if there is not, better it than nobody, unless its trouble is its own (a full disk).
    """
    nodes = sorted(state.nodes.values(), key=lambda node: node.registration)
    staying = [n for n in nodes if n.drain is None and n.stalled is None]
    trusted = [n for n in staying if n.name not in state.quarantined]
    return (trusted or [n for n in staying if not _in_trouble(state, n)])[: plan.max_nodes]


def waiting(state: State, plan: Plan) -> bool:
    """Before its first unit a run waits for its least number of nodes; after it, never."""
    configs = state.configs.values()
    begun = state.underway() or state.profiles or any(c.head is not None or c.failures for c in configs)
    return not begun and sum(n.drain is None for n in state.nodes.values()) < plan.min_nodes


def quarantines(state: State) -> Iterator[Quarantine]:
    """Nodes on which units keep failing, each for longer than the last time. The failures of a busy node
    are judged when it is idle."""
    for name, streak in state.streaks.items():
        idle = name in state.nodes and name not in state.attempts and name not in state.quarantined
        if idle and streak.last > state.quarantined_for.get(name, 0) and _too_many(state, name, streak):
            yield Quarantine(name, _why(streak), streak.last, _cooldown(streak))


def _too_many(state: State, name: str, streak: Streak) -> bool:
    """A node that was set aside before in this streak is on probation: one more failure suffices. As long as
    one config alone fails on it, that is to blame, unless the trouble is the node's by its kind."""
    against = suspicious(state, name)
    of_several = streak.kind.of_node or len({failure.unit.config for failure in against}) > 1
    return streak.kind.lasting or (len(against) >= IN_A_ROW and of_several) or name in state.quarantined_for


def _why(streak: Streak) -> str:
    times = "once" if streak.failures == 1 else f"{streak.failures} times in a row"
    return f"units failed on it {times}, at last with {streak.kind.value}: {streak.story}"


def _cooldown(streak: Streak) -> float:
    """It doubles with each failure after the first for which the node could be set aside."""
    further = max(0, streak.failures - (1 if streak.kind.lasting else IN_A_ROW))
    return float(min(COOLDOWN * 2 ** min(further, 10), LONGEST_COOLDOWN))


def _in_trouble(state: State, node: Node) -> bool:
    streak = state.streaks.get(node.name)
    return node.name in state.quarantined and streak is not None and streak.kind.of_node
