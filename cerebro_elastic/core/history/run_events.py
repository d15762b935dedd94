"""When are the events of the run, its configs and its nodes possible, and what do they change?"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TypeVar

from cerebro_elastic.core.history.costs import is_there
from cerebro_elastic.core.history.estimates import without_refusals
from cerebro_elastic.core.history.lineage import born, edge_from, may_go_on, with_status
from cerebro_elastic.core.history.members import why_no_members
from cerebro_elastic.core.history.rows import (
    LEADER,
    NODE,
    OPERATOR,
    Row,
    Rows,
    changed,
    require,
    with_config,
    without,
)
from cerebro_elastic.core.model.best import epoch_ends
from cerebro_elastic.core.model.configs import Config, Parent, Status
from cerebro_elastic.core.model.events import (
    ConfigCreated,
    ConfigEnded,
    ConfigMeasured,
    ConfigResumed,
    Event,
    HomesAssigned,
    LeaderChanged,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    NodeQuarantined,
    NodeReady,
    NodeRecovered,
    NodeReleased,
    NodeStalled,
    Ordered,
    RunEnded,
    RunExtended,
    RunOpened,
    StateRead,
    StayEnded,
)
from cerebro_elastic.core.model.nodes import Node, Stall, Stay
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import IllegalEvent

_Kept = TypeVar("_Kept", Config, Stay)
"""Values that a state keeps with the revision of their key."""


def opened(state: State, event: RunOpened) -> State:
    """Possible if no plan is known. Then the plan is known."""
    require(state.plan is None, event, f"the plan is {state.plan}")
    return changed(state, event, plan=event.plan)


def leader_changed(state: State, event: LeaderChanged) -> State:
    """Always possible. A controller leads, or none."""
    return changed(state, event, leader=event.leader)


def ended(state: State, event: RunEnded) -> State:
    """Possible if no config is live. Then the run has ended."""
    live = sorted(c.id for c in state.configs.values() if c.status is Status.LIVE)
    require(not live, event, f"live configs: {live}")
    return changed(state, event, outcome=event.outcome)


def extended(state: State, event: RunExtended) -> State:
    """Possible if the run has ended, this is its next extension, it has no fewer epochs, and each config to
    continue has ended before the last epoch. Then the plan has these epochs, and the run continues; only
    nodes that register from now on get units."""
    assert state.plan is not None
    extension, epochs = event.extension, event.extension.epochs
    number = state.extension.number + 1 if state.extension is not None else 1
    require(state.outcome is not None, event, "the run has not ended")
    require(extension.number == number, event, f"the next extension is number {number}")
    require(epochs >= state.plan.epochs, event, f"configs have {state.plan.epochs} epochs already")
    require(
        set(state.configs) == {*extension.configs, *extension.others}, event, "each config continues, or not"
    )
    for name, behind in extension.configs.items():
        config = state.configs[name]
        right = config.status is not Status.LIVE and config.epoch == behind < epochs
        require(right, event, f"{config} cannot continue after {behind} epochs (completeness)")
    return changed(
        state,
        event,
        plan=replace(state.plan, epochs=epochs),
        outcome=None,
        extension=extension,
        extended=event.revision,
    )


def measured(state: State, event: ConfigMeasured) -> State:
    """Possible if the run has ended, this is its next measurement, and the model is the config's at the end
    of an epoch. Then the values are known; nothing else changes."""
    found = event.measurement
    require(state.outcome is not None, event, "the run has not ended: nobody looks at the test set before")
    require(found.number == len(state.measured), event, f"the next one is number {len(state.measured)}")
    ends = [(end.epochs, end.checkpoint) for end in epoch_ends(state.curves.get(found.config, ()))]
    require((found.epoch, found.checkpoint) in ends, event, f"its epochs have ended with {ends}")
    return changed(state, event, measured=(*state.measured, found))


def read(state: State, event: StateRead) -> State:
    """Possible if no plan is known, or if it has the same plan, or one that was extended. The state becomes
    the one that was read."""
    known, read = state.plan, event.state.plan
    extended = known is not None and read is not None and replace(known, epochs=read.epochs) == read
    goes_on = extended and event.state.extension is not None
    require(known in (None, read) or goes_on, event, f"the plan is {state.plan}")
    return replace(event.state, revision=event.revision)


def homes_assigned(state: State, event: HomesAssigned) -> State:
    """Possible if every partition has a home, none a node twice. Then partitions have these homes."""
    assert state.plan is not None
    partitions = set(range(state.plan.partitions))
    require(set(event.homes) == partitions, event, f"the partitions are 0 to {state.plan.partitions - 1}")
    valid = all(homes and len(set(homes)) == len(homes) for homes in event.homes.values())
    require(valid, event, "a partition is at home on one node or several")
    return changed(state, event, homes=dict(event.homes))


def ordered(state: State, event: Ordered) -> State:
    """Possible while a controller leads. The policy gets this order."""
    require(state.leader is not None, event, "no controller leads")
    return changed(state, event, order=event.order)


def config_created(state: State, event: ConfigCreated) -> State:
    """Possible if its id is new, and it starts from scratch, from its parent's present state, or from the
    plan's checkpoint from outside the run; a person's may begin at the end of an earlier epoch of its parent.
    Then it is live. In a run whose configs have members, it comes with the others of its seed."""
    assert state.plan is not None
    why_not = why_no_members(event.configs, state.configs.values(), state.plan)
    require(why_not is None, event, why_not or "")
    return reduce(lambda before, config: _with_new(before, config, event), event.configs, state)


def _with_new(state: State, config: Config, event: ConfigCreated) -> State:
    assert state.plan is not None
    require(config.id not in state.configs, event, "a config of this id exists")
    config = replace(config, revision=event.revision)
    new = replace(born(config), by_hand=event.by_hand, reason=config.reason, revision=event.revision)
    require(config == new, event, f"it begins as {new} (isolation)")
    require(config.epoch < state.plan.epochs, event, "it has nothing left to do (completeness)")
    edge = config.parent
    if edge is not None:
        parent = _config(state, edge.config, event) if edge.config else None
        edge_now = edge_from(parent) if parent is not None else state.plan.start
        chosen = config.by_hand and parent is not None and _was_at(parent, edge)
        require(edge == edge_now or chosen, event, f"its parent is at {edge_now} (isolation)")
    return _with_config(state, event, config, event.by_hand)


def _was_at(config: Config, edge: Parent) -> bool:
    """Whether the edge may be from the end of one of the config's own epochs. (States do not have their
    checkpoints.)"""
    first = config.parent.epoch if config.parent is not None else 0
    whole = Parent(config.id, edge.checkpoint, edge.epoch, config.id, hparams=config.hparams)
    return edge == whole and first < edge.epoch <= config.epoch


def config_ended(state: State, event: ConfigEnded) -> State:
    """Possible if the config is live, or if the search has stopped it and a person stops it too. Then it is
    stopped or failed."""
    config = _config(state, event.config, event)
    require(event.status in (Status.STOPPED, Status.FAILED), event, "a config ends stopped or failed")
    rests = config.status is Status.STOPPED and not config.by_hand
    may_end = config.status is Status.LIVE or (rests and event.by_hand)
    require(may_end, event, f"it is {config.status.value} already")
    return _with_config(state, event, with_status(config, event), event.by_hand)


def config_resumed(state: State, event: ConfigResumed) -> State:
    """Possible if the config is stopped, if it has failed and a person resumes it, or if the last extension
    resumes it and it is not live yet. Then it is live, in its former state. If it had failed, refusals of
    strategies are forgotten: other code, or another machine, may not refuse them."""
    config = _config(state, event.config, event)
    if event.extension:
        number = state.extension.number if state.extension is not None else 0
        goes_on = event.extension == number and may_go_on(config, state.extension)
        require(goes_on, event, f"extension {number} of the run does not resume {config}")
    else:
        failed = config.status is Status.FAILED and event.by_hand
        require(failed or config.status is Status.STOPPED, event, f"it is {config.status.value}, not stopped")
    asked = event.by_hand and not event.extension
    after = _with_config(state, event, with_status(config, event), asked)
    if config.status is not Status.FAILED:
        return after
    return replace(after, profiles=without_refusals(after.profiles, config.id))


def _config(state: State, name: str, event: Event) -> Config:
    require(name in state.configs, event, lambda: f"configs are {sorted(state.configs)}")
    return state.configs[name]


def _with_config(state: State, event: Event, config: Config, asked: bool) -> State:
    """``state`` with the new value of ``config``; ``asked``: a person requested the change."""
    return with_config(state, event, config, asked=event.revision if asked else state.asked)


def node_joined(state: State, event: NodeJoined) -> State:
    """Possible if no node of its name is registered. Then it is registered, and its stay begins."""
    require(event.node.name not in state.nodes, event, "a node of this name is registered")
    after, stay = _with_node(state, event, event.node), Stay.of(event.node, event.revision)
    return replace(after, stays={**state.stays, stay.name: stay}) if stay.joined else after


def stay_ended(state: State, event: StayEnded) -> State:
    """Possible if the stay has not ended, its node is not registered any more, and the end is not before the
    start. Then it has ended."""
    stay = state.stays.get(event.stay)
    open_stays = sorted(name for name, each in state.stays.items() if each.left is None)
    if stay is None or stay.left is not None:
        raise IllegalEvent(f"{event} is impossible: stays without an end are {open_stays}")
    require(not is_there(state, stay), event, "its node is registered")
    require(event.left >= stay.joined, event, f"it began at {stay.joined}")
    ended = replace(stay, left=event.left, revision=event.revision)
    return changed(state, event, stays={**state.stays, stay.name: ended})


def node_left(state: State, event: NodeLeft) -> State:
    """Always possible: a lease ends without a guard. The node is not registered; its attempt stays, and can
    only be withdrawn."""
    return changed(state, event, nodes=without(state.nodes, event.node))


def node_ready(state: State, event: NodeReady) -> State:
    """Possible if the node is registered and starting. Then it is ready, and the partitions in its cache are
    known."""
    node = _registered(state, event.node, event)
    require(node.starting, event, "it was ready before")
    return _with_node(
        state, event, replace(node, starting=False, cached=tuple(sorted({*node.cached, *event.cached})))
    )


def node_draining(state: State, event: NodeDraining) -> State:
    """Possible if the node is registered and not draining. Then it leaves within the given seconds."""
    node = _registered(state, event.node, event)
    require(node.drain is None, event, "it was asked to leave before")
    return _with_node(state, event, replace(node, drain=event.grace))


def node_stalled(state: State, event: NodeStalled) -> State:
    """Possible if the node is registered and not stalled. Then it gets no units."""
    node = _registered(state, event.node, event)
    require(node.stalled is None, event, "it was stalled before")
    return _with_node(state, event, replace(node, stalled=Stall(event.began, event.why)))


def node_recovered(state: State, event: NodeRecovered) -> State:
    """Possible if the node is stalled. Then it gets units again."""
    node = _registered(state, event.node, event)
    require(node.stalled is not None, event, "it is not stalled")
    return _with_node(state, event, replace(node, stalled=None))


def node_quarantined(state: State, event: NodeQuarantined) -> State:
    """Possible if the node is idle and not quarantined, and the failure is the last of its streak. Then it is
    quarantined for that failure."""
    streak = state.streaks.get(event.node)
    require(event.node not in state.quarantined, event, "it is quarantined already")
    require(event.node not in state.attempts, event, "it is busy (non-preemption)")
    require(streak is not None and streak.last == event.failure, event, f"its streak is {streak}")
    return changed(
        state,
        event,
        quarantined={**state.quarantined, event.node: event.why},
        quarantined_for={**state.quarantined_for, event.node: event.failure},
    )


def node_released(state: State, event: NodeReleased) -> State:
    """Always possible: a lease ends without a guard. The node is not quarantined."""
    return changed(state, event, quarantined=without(state.quarantined, event.node))


def _registered(state: State, name: str, event: Event) -> Node:
    require(name in state.nodes, event, f"registered are {sorted(state.nodes)}")
    return state.nodes[name]


def _with_node(state: State, event: Event, node: Node) -> State:
    return changed(state, event, nodes={**state.nodes, node.name: node})


ROWS: Rows = {
    RunOpened: Row(opened, (OPERATOR,), ("spec",), before_the_run=True),
    LeaderChanged: Row(leader_changed, (LEADER,), ("leader",), before_the_run=True),
    RunEnded: Row(ended, (LEADER,), ("outcome",), compares=("control",)),
    RunExtended: Row(extended, (OPERATOR,), ("spec", "outcome", "extended")),
    ConfigMeasured: Row(measured, (OPERATOR,), ("measured",)),
    StateRead: Row(read, before_the_run=True),
    HomesAssigned: Row(homes_assigned, (LEADER,), ("homes",)),
    Ordered: Row(ordered, (LEADER,), ("order",)),
    ConfigCreated: Row(
        config_created,
        (LEADER, OPERATOR),
        ("configs",),
        also=("children", "control"),
        compares=("configs",),
    ),
    ConfigEnded: Row(config_ended, (LEADER, OPERATOR), ("configs",), also=("control",)),
    ConfigResumed: Row(config_resumed, (LEADER, OPERATOR), ("configs",), also=("control",)),
    NodeJoined: Row(node_joined, (NODE,), ("nodes",), also=("stays",), before_the_run=True),
    StayEnded: Row(stay_ended, (LEADER,), ("stays",)),
    NodeLeft: Row(node_left, before_the_run=True),
    NodeReady: Row(node_ready, (NODE,), ("nodes",), before_the_run=True),
    NodeDraining: Row(node_draining, (NODE, OPERATOR), ("nodes",), before_the_run=True),
    NodeStalled: Row(node_stalled, (NODE,), ("nodes",), before_the_run=True),
    NodeRecovered: Row(node_recovered, (NODE,), ("nodes",), before_the_run=True),
    NodeQuarantined: Row(
        node_quarantined, (LEADER,), ("quarantined", "quarantined_for"), compares=("assign", "saving")
    ),
    NodeReleased: Row(node_released),
}
