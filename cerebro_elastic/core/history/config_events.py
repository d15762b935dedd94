"""When are the events of configs possible, and what do they change? (Rows of the table in ``machine.py``.)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cerebro_elastic.core.history.guards import Handler, require
from cerebro_elastic.core.history.lineage import born, edge_from, may_end, may_go_on, with_status
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import (
    ConfigCreated,
    ConfigEnded,
    ConfigResumed,
    Event,
)
from cerebro_elastic.core.model.state import State


def _config_created(state: State, event: ConfigCreated) -> State:
    require(event.config.id not in state.configs, event, "a config of this id exists")
    config = replace(event.config, revision=event.revision)
    new = replace(born(config), by_hand=config.by_hand, reason=config.reason, revision=event.revision)
    require(config == new, event, f"it begins as {new} (isolation)")
    assert state.plan is not None
    require(config.epoch < state.plan.epochs, event, "there is nothing left for it to do (completeness)")
    if config.parent is not None:
        inside = config.parent.config
        edge = edge_from(_config(state, inside, event)) if inside else state.plan.start
        require(config.parent == edge, event, f"its parent is at {edge} (isolation)")
    return _with_config(state, config, config.by_hand)


def _config_ended(state: State, event: ConfigEnded) -> State:
    config = _config(state, event.config, event)
    require(event.status in (Status.STOPPED, Status.FAILED), event, "a config ends stopped or failed")
    require(may_end(config, event), event, f"it is {config.status.value} already")
    return _with_config(state, replace(with_status(config, event), revision=event.revision), event.by_hand)


def _config_resumed(state: State, event: ConfigResumed) -> State:
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


CONFIG_EVENTS: Mapping[type[Event], Handler] = {
    ConfigCreated: _config_created,
    ConfigEnded: _config_ended,
    ConfigResumed: _config_resumed,
}
