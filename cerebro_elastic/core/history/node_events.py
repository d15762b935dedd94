"""When are the events of nodes possible, and what do they change? (``machine.TABLE``)"""

from __future__ import annotations

from dataclasses import replace

from cerebro_elastic.core.history.guards import require, without
from cerebro_elastic.core.model.events import (
    Event,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    NodeQuarantined,
    NodeReady,
    NodeRecovered,
    NodeReleased,
    NodeStalled,
)
from cerebro_elastic.core.model.nodes import Node, Stall
from cerebro_elastic.core.model.state import State


def joined(state: State, event: NodeJoined) -> State:
    """Possible if no node of its name is registered. Then it is registered."""
    require(event.node.name not in state.nodes, event, "a node of this name is registered")
    return _with_node(state, event.node)


def left(state: State, event: NodeLeft) -> State:
    """Always possible: a lease ends without a guard. The node is not registered; its attempt stays, and can
    only be withdrawn."""
    return replace(state, nodes=without(state.nodes, event.node))


def ready(state: State, event: NodeReady) -> State:
    """Possible if the node is registered and starting. Then it is ready, and the partitions in its cache are
    known."""
    node = _registered(state, event.node, event)
    require(node.starting, event, "it was ready before")
    return _with_node(
        state, replace(node, starting=False, cached=tuple(sorted({*node.cached, *event.cached})))
    )


def draining(state: State, event: NodeDraining) -> State:
    """Possible if the node is registered and not draining. Then it leaves within the given seconds."""
    node = _registered(state, event.node, event)
    require(node.drain is None, event, "it was asked to leave before")
    return _with_node(state, replace(node, drain=event.grace))


def stalled(state: State, event: NodeStalled) -> State:
    """Possible if the node is registered and not stalled. Then it gets no units."""
    node = _registered(state, event.node, event)
    require(node.stalled is None, event, "it was stalled before")
    return _with_node(state, replace(node, stalled=Stall(event.began, event.why)))


def recovered(state: State, event: NodeRecovered) -> State:
    """Possible if the node is stalled. Then it gets units again."""
    node = _registered(state, event.node, event)
    require(node.stalled is not None, event, "it is not stalled")
    return _with_node(state, replace(node, stalled=None))


def quarantined(state: State, event: NodeQuarantined) -> State:
    """Possible if the node is idle and not quarantined, and the failure is the last of its streak. Then it is
    quarantined for that failure."""
    streak = state.streaks.get(event.node)
    require(event.node not in state.quarantined, event, "it is quarantined already")
    require(event.node not in state.attempts, event, "it is busy (non-preemption)")
    require(streak is not None and streak.last == event.failure, event, f"its streak is {streak}")
    return replace(
        state,
        quarantined={**state.quarantined, event.node: event.why},
        quarantined_for={**state.quarantined_for, event.node: event.failure},
    )


def released(state: State, event: NodeReleased) -> State:
    """Always possible: a lease ends without a guard. The node is not quarantined."""
    return replace(state, quarantined=without(state.quarantined, event.node))


def _registered(state: State, name: str, event: Event) -> Node:
    require(name in state.nodes, event, f"registered are {sorted(state.nodes)}")
    return state.nodes[name]


def _with_node(state: State, node: Node) -> State:
    return replace(state, nodes={**state.nodes, node.name: node})
