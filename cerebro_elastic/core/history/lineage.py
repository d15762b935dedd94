"""How does a config begin, end and continue? Pure functions that controller, store and replay share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from cerebro_elastic.core.history.progress import advance
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Config, Parent, Status
from cerebro_elastic.core.model.events import ConfigEnded, ConfigResumed
from cerebro_elastic.core.model.run import Extension, Plan
from cerebro_elastic.core.model.units import CheckpointRef, Phase


def born(config: Config) -> Config:
    """The config as it was created: from scratch, or at its parent's checkpoint."""
    new = Config(
        config.id,
        config.hparams,
        parent=config.parent,
        origin=config.origin,
        member_of=config.member_of,
        fold=config.fold,
        repeat=config.repeat,
    )
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


def edge_from(parent: Config) -> Parent | None:
    """The lineage edge of a config that continues from ``parent``'s present state; ``None`` if that has no
    checkpoint. The config evaluates the present epoch again, because metrics are its own."""
    if parent.head is None:
        return None
    inherited = parent.parent if is_newborn(parent) else None
    owner = inherited.owner if inherited else parent.id
    hparams = inherited.hparams if inherited else parent.hparams
    return Parent(parent.id, parent.head, parent.epoch, owner, parent.visited, parent.partial_unit, hparams)


def is_newborn(config: Config) -> bool:
    """Whether the config has a parent and no visits yet."""
    return config.parent is not None and config.head == config.parent.checkpoint


def may_go_on(config: Config, extension: Extension | None) -> bool:
    """Whether the run's last ``extension`` resumes the config, which has not resumed yet. (It has if a person
    resumed it earlier and it has done all its epochs.)"""
    return (
        extension is not None
        and extension.configs.get(config.id) == config.epoch
        and config.extension < extension.number
        and config.status is not Status.LIVE
    )


def tried_again(by: str) -> str:
    """The reason for resuming a failed config."""
    return f"tried again by {by}" if by else "tried again"


def with_status(config: Config, event: ConfigEnded | ConfigResumed) -> Config:
    """The config after it was ended or resumed (the store sets its ``revision``)."""
    failed = config.status is Status.FAILED
    by_hand = config.by_hand or (event.by_hand and not failed)
    if isinstance(event, ConfigEnded):
        return replace(config, status=event.status, reason=event.reason, by_hand=by_hand)
    return replace(
        config,
        status=Status.LIVE,
        reason=event.reason,
        by_hand=by_hand,
        extension=event.extension or config.extension,
        retried=config.revision if failed else config.retried,
    )


def in_order(configs: Iterable[Config]) -> list[Config]:
    """The configs in the order of their creation, which is that of their ids."""
    return sorted(configs, key=_place_in_order)


def _place_in_order(config: Config) -> tuple[int, str, int, int, str]:
    """The sort key of ``in_order``."""
    name, fold = config.seen_as, -1 if config.fold is None else config.fold
    return len(name), name, config.repeat, fold, config.id


def number_of(name: str) -> int:
    """The number in the id of a config, or of a member of one; -1 for an id without a number."""
    digits = name.partition(".")[0][1:]
    return int(digits) if digits.isdigit() else -1


def fresh_names(taken: Iterable[int]) -> Iterator[str]:
    """Ids for new configs, after those whose numbers are ``taken``."""
    return (f"c{number:04d}" for number in count(1 + max(taken, default=-1)))


def history(
    name: str,
    configs: Mapping[str, Config],
    visits: Mapping[str, Sequence[Visit]],
    plan: Plan,
    until: CheckpointRef | None = None,
) -> list[tuple[Config, Visit]]:
    """All visits that led to the config's present state, its ancestors' first, or ``until`` the one that
    wrote this checkpoint; each with its config before it. ``visits`` has those of each config in the order of
    their commits."""
    parent, at = configs[name].parent, born(configs[name])
    in_run = parent is not None and parent.owner
    steps = history(parent.owner, configs, visits, plan, parent.checkpoint) if parent and in_run else []
    for visit in visits.get(name, ()):
        steps.append((at, visit))
        at = advance(at, visit, plan)
        if visit.output == until and visit.unit.phase is Phase.TRAIN:
            break
    return steps
