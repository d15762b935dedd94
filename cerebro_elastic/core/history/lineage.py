"""How configs come to be, end and go on: pure functions that controller, ledger and replay share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from cerebro_elastic.core.history.progress import advance
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Config, HParams, Parent, Status
from cerebro_elastic.core.model.events import ConfigEnded, ConfigResumed
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.units import CheckpointRef, Phase


def born(config: Config) -> Config:
    """The config as it was when it was created: at the beginning, or where its parent's checkpoint was."""
    new = Config(config.id, config.hparams, parent=config.parent, origin=config.origin)
    parent = config.parent
    if parent is None:
        return new
    return replace(
        new,
        epoch=parent.epoch,
        visited=parent.visited,
        partial_unit=parent.partial_unit,
        head=parent.checkpoint,
    )


def child(parent: Config, name: str, hparams: HParams, origin: Mapping[str, Any]) -> Config:
    """A new config that goes on from where ``parent`` stands. What is evaluated of the present epoch it
    evaluates anew: metrics are a config's own."""
    return born(Config(name, hparams, parent=edge_from(parent), origin=origin))


def edge_from(parent: Config) -> Parent | None:
    """The lineage edge of a config that goes on from where ``parent`` stands; none from the beginning."""
    if parent.head is None:
        return None
    inherited = parent.parent if is_newborn(parent) else None
    owner = inherited.owner if inherited else parent.id
    made = inherited.hparams if inherited else parent.hparams
    return Parent(parent.id, parent.head, parent.epoch, owner, parent.visited, parent.partial_unit, made)


def is_newborn(config: Config) -> bool:
    """Whether the config has done nothing yet from where its parent's checkpoint is."""
    return config.parent is not None and config.head == config.parent.checkpoint


def may_end(config: Config, event: ConfigEnded) -> bool:
    """Whether there is something to end: a live config, or one that rests until the search resumes it, which
    a person stops for good."""
    rests = config.status is Status.STOPPED and not config.by_hand
    return config.status is Status.LIVE or (rests and event.by_hand)


def changed(config: Config, event: ConfigEnded | ConfigResumed) -> Config:
    """The config after it was ended or resumed (``revision`` is the store's to set)."""
    status = event.status if isinstance(event, ConfigEnded) else Status.LIVE
    return replace(config, status=status, reason=event.reason, by_hand=config.by_hand or event.by_hand)


def in_order(configs: Iterable[Config]) -> list[Config]:
    """The configs in the order in which they were created, which their names tell."""
    return sorted(configs, key=lambda config: (len(config.id), config.id))


def fresh_names(taken: Iterable[str]) -> Iterator[str]:
    """Names for configs to create, behind all those that are ``taken``."""
    numbers = (int(name[1:]) for name in taken if name[1:].isdigit())
    return (f"c{number:04d}" for number in count(1 + max(numbers, default=-1)))


def history(
    name: str,
    configs: Mapping[str, Config],
    visits: Mapping[str, Sequence[Visit]],
    plan: Plan,
    until: CheckpointRef | None = None,
) -> list[tuple[Config, Visit]]:
    """All visits that led to where the config stands, or to its checkpoint ``until``: its ancestors' first,
    each with the config as it stood before it. ``visits`` are by config, in the order of their commits."""
    parent, at = configs[name].parent, born(configs[name])
    inside = parent is not None and parent.owner
    steps = history(parent.owner, configs, visits, plan, parent.checkpoint) if parent and inside else []
    for visit in visits.get(name, ()):
        steps.append((at, visit))
        at = advance(at, visit, plan)
        if visit.output == until and visit.unit.phase is Phase.TRAIN:
            break
    return steps
