"""When are the events of the whole run possible, and what do they change? (``machine.TABLE``)"""

from __future__ import annotations

from dataclasses import replace

from cerebro_elastic.core.history.guards import require, without, without_attempts
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import (
    HomesAssigned,
    LeaderChanged,
    Ordered,
    RecordMended,
    RunEnded,
    RunExtended,
    RunOpened,
    StateRead,
)
from cerebro_elastic.core.model.state import State


def opened(state: State, event: RunOpened) -> State:
    """Possible if no plan is known. Then the plan is known."""
    require(state.plan is None, event, f"the plan is {state.plan}")
    return replace(state, plan=event.plan)


def leader_changed(state: State, event: LeaderChanged) -> State:
    """Always possible. A controller leads, or none."""
    return replace(state, leader=event.leader)


def ended(state: State, event: RunEnded) -> State:
    """Possible if no config is live. Then the run has ended."""
    live = sorted(c.id for c in state.configs.values() if c.status is Status.LIVE)
    require(not live, event, f"live configs: {live}")
    return replace(state, outcome=event.outcome)


def extended(state: State, event: RunExtended) -> State:
    """Possible if the run has ended, this is its next extension, it has no fewer epochs, and each config that
    is to go on has finished before the last epoch or is stopped. Then the plan has these epochs, and the run
    goes on; only nodes that register from now on get units."""
    assert state.plan is not None
    extension, epochs = event.extension, event.extension.epochs
    number = state.extension.number + 1 if state.extension is not None else 1
    require(state.outcome is not None, event, "the run has not ended")
    require(extension.number == number, event, f"the next extension is number {number}")
    require(epochs >= state.plan.epochs, event, f"configs have {state.plan.epochs} epochs already")
    require(
        set(state.configs) == {*extension.configs, *extension.others}, event, "each config goes on, or not"
    )
    for name, behind in extension.configs.items():
        config = state.configs[name]
        ended = config.status in (Status.FINISHED, Status.STOPPED)
        right = ended and config.epoch == behind < epochs
        require(right, event, f"{config} cannot go on after {behind} epochs (completeness)")
    return replace(
        state,
        plan=replace(state.plan, epochs=epochs),
        outcome=None,
        extension=extension,
        extended=event.revision,
    )


def mended(state: State, event: RecordMended) -> State:
    """Possible once the plan is known. Restored configs are at this revision, restored nodes neither
    registered nor quarantined, withdrawn attempts over."""
    mended = {
        name: replace(state.configs[name], revision=event.revision)
        for name in event.names("configs")
        if name in state.configs
    }
    asked = event.revision if state.asked and event.names("control") else state.asked
    return replace(
        without_attempts(state, *event.withdrawn),
        configs={**state.configs, **mended},
        nodes=without(state.nodes, *event.names("nodes")),
        quarantined=without(state.quarantined, *event.names("quarantined")),
        asked=asked,
    )


def read(state: State, event: StateRead) -> State:
    """Possible if no plan is known, or if it has the same plan, or one that was extended. The state is the
    one that was read."""
    known, read = state.plan, event.state.plan
    extended = known is not None and read is not None and replace(known, epochs=read.epochs) == read
    goes_on = extended and event.state.extension is not None
    require(known in (None, read) or goes_on, event, f"the plan is {state.plan}")
    return event.state


def homes_assigned(state: State, event: HomesAssigned) -> State:
    """Possible if every partition has a home, none a node twice. Then partitions have these homes."""
    assert state.plan is not None
    partitions = set(range(state.plan.partitions))
    require(set(event.homes) == partitions, event, f"the partitions are 0 to {state.plan.partitions - 1}")
    valid = all(homes and len(set(homes)) == len(homes) for homes in event.homes.values())
    require(valid, event, "a partition is at home on one node or several")
    return replace(state, homes=dict(event.homes))


def ordered(state: State, event: Ordered) -> State:
    """Possible while a controller leads. The policy is shown this order."""
    require(state.leader is not None, event, "no controller leads")
    return replace(state, order=event.order)
