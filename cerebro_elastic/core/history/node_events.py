"""When are the events of nodes possible, and what do they change? (Rows of the table in ``machine.py``.)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cerebro_elastic.core.history.guards import Handler, require, without
from cerebro_elastic.core.history.tallies import ready_node
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


def _node_joined(state: State, event: NodeJoined) -> State:
    require(event.node.name not in state.nodes, event, "a node of this name is registered")
    return _with_node(state, event.node)


def _node_left(state: State, event: NodeLeft) -> State:
    return replace(state, nodes=without(state.nodes, event.node))


def _node_ready(state: State, event: NodeReady) -> State:
    node = _registered(state, event.node, event)
    require(node.starting, event, "it was ready before")
    return _with_node(state, ready_node(node, event.cached))


def _node_draining(state: State, event: NodeDraining) -> State:
    node = _registered(state, event.node, event)
    require(node.drain is None, event, "it was asked to leave before")
    return _with_node(state, replace(node, drain=event.grace))


def _node_stalled(state: State, event: NodeStalled) -> State:
    node = _registered(state, event.node, event)
    require(node.stalled is None, event, "it was stalled before")
    return _with_node(state, replace(node, stalled=Stall(event.since, event.why)))


def _node_recovered(state: State, event: NodeRecovered) -> State:
    node = _registered(state, event.node, event)
    require(node.stalled is not None, event, "it is not stalled")
    return _with_node(state, replace(node, stalled=None))


def _node_quarantined(state: State, event: NodeQuarantined) -> State:
    streak = state.streaks.get(event.node)
    require(event.node not in state.quarantined, event, "it is quarantined already")
    require(event.node not in state.attempts, event, "it is busy (non-preemption)")
    require(streak is not None and streak.last == event.failure, event, f"its streak is {streak}")
    return replace(
        state,
        quarantined={**state.quarantined, event.node: event.why},
        quarantined_for={**state.quarantined_for, event.node: event.failure},
    )


def _node_released(state: State, event: NodeReleased) -> State:
    return replace(state, quarantined=without(state.quarantined, event.node))


def _registered(state: State, name: str, event: Event) -> Node:
    require(name in state.nodes, event, f"registered are {sorted(state.nodes)}")
    return state.nodes[name]


def _with_node(state: State, node: Node) -> State:
    return replace(state, nodes={**state.nodes, node.name: node})


NODE_EVENTS: Mapping[type[Event], Handler] = {
    NodeJoined: _node_joined,
    NodeLeft: _node_left,
    NodeReady: _node_ready,
    NodeDraining: _node_draining,
    NodeStalled: _node_stalled,
    NodeRecovered: _node_recovered,
    NodeQuarantined: _node_quarantined,
    NodeReleased: _node_released,
}
