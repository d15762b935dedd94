"""When are the events of configs possible, and what do they change? (``machine.TABLE``)"""

from __future__ import annotations

from dataclasses import replace

from cerebro_elastic.core.history.guards import require
from cerebro_elastic.core.history.lineage import born, edge_from, may_go_on, with_status
from cerebro_elastic.core.model.configs import Config, Parent, Status
from cerebro_elastic.core.model.events import (
    ConfigCreated,
    ConfigEnded,
    ConfigResumed,
    Event,
)
from cerebro_elastic.core.model.state import State


def created(state: State, event: ConfigCreated) -> State:
    """Possible if its id is new, and it begins at the beginning, where its parent stands, or at the plan's
    checkpoint from outside the run; a person's may begin at the end of an earlier epoch of its parent. Then
    it is live."""
    require(event.config.id not in state.configs, event, "a config of this id exists")
    config = replace(event.config, revision=event.revision)
    new = replace(born(config), by_hand=config.by_hand, reason=config.reason, revision=event.revision)
    require(config == new, event, f"it begins as {new} (isolation)")
    assert state.plan is not None
    require(config.epoch < state.plan.epochs, event, "there is nothing left for it to do (completeness)")
    edge = config.parent
    if edge is not None:
        parent = _config(state, edge.config, event) if edge.config else None
        stands = edge_from(parent) if parent is not None else state.plan.start
        chosen = config.by_hand and parent is not None and _was_at(parent, edge)
        require(edge == stands or chosen, event, f"its parent is at {stands} (isolation)")
    return _with_config(state, config, config.by_hand)


def _was_at(config: Config, edge: Parent) -> bool:
    """Whether the edge may be from the end of one of the config's own epochs. (States do not have their
    checkpoints.)"""
    first = config.parent.epoch if config.parent is not None else 0
    whole = Parent(config.id, edge.checkpoint, edge.epoch, config.id, hparams=config.hparams)
    return edge == whole and first < edge.epoch <= config.epoch


def ended(state: State, event: ConfigEnded) -> State:
    """Possible if the config is live, or if a person stops what the search has stopped. Then it is stopped or
    failed."""
    config = _config(state, event.config, event)
    require(event.status in (Status.STOPPED, Status.FAILED), event, "a config ends stopped or failed")
    rests = config.status is Status.STOPPED and not config.by_hand
    may_end = config.status is Status.LIVE or (rests and event.by_hand)
    require(may_end, event, f"it is {config.status.value} already")
    return _with_config(state, replace(with_status(config, event), revision=event.revision), event.by_hand)


def resumed(state: State, event: ConfigResumed) -> State:
    """Possible if the config is stopped, or if the last extension lets it go on and it does not yet. Then it
    is live, where it was."""
    config = _config(state, event.config, event)
    if event.extension:
        number = state.extension.number if state.extension is not None else 0
        goes_on = event.extension == number and may_go_on(config, state.extension)
        require(goes_on, event, f"extension {number} of the run does not let {config} go on")
    else:
        require(config.status is Status.STOPPED, event, f"it is {config.status.value}, not stopped")
    asked = event.by_hand and not event.extension
    return _with_config(state, replace(with_status(config, event), revision=event.revision), asked)


def _config(state: State, name: str, event: Event) -> Config:
    require(name in state.configs, event, f"configs are {sorted(state.configs)}")
    return state.configs[name]


def _with_config(state: State, config: Config, asked: bool) -> State:
    """``state`` with ``config`` as it is now; ``asked``: a person has asked for the change."""
    configs = {**state.configs, config.id: config}
    return replace(state, configs=configs, asked=config.revision if asked else state.asked)
