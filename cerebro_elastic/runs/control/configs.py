"""What people decide while a run goes on: a config is stopped, goes on, or is cloned.

Each is one transaction, recorded in the history like all others, and takes effect when the config's present
unit is over. The search leaves such configs as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.errors import RunError, did_you_mean
from cerebro_elastic.recipes import Domain, Objective
from cerebro_elastic.reporting.results import best_epoch, epoch_ends
from cerebro_elastic.runs.attach import live_run, locate
from cerebro_elastic.search.space import misfit
from cerebro_elastic.store.ledger.operators import OperatorLedger
from cerebro_elastic.store.ledger.record import Record

Start: TypeAlias = Literal["here", "best", "scratch"]
"""Where a clone begins: where its parent stands, at the end of its best epoch, or at the beginning."""


def stop(
    run: str | Path,
    config: str,
    *,
    reason: str = "stopped by hand",
    home: str | Path | None = None,
    store: StoreSettings | None = None,
) -> Config:
    """Give ``config`` no more units; what it has done stays. Raises ``RunError`` if the run is not live, or
    has no such config that could be stopped."""
    with live_run(*locate(run, home, store)) as (record, _):
        stopped = _known(record, config, OperatorLedger(record).stop(config, reason))
        if stopped.status is not Status.STOPPED:
            status = stopped.status.value
            raise RunError(f"config {config!r} is {status} already: only a live one can be stopped")
        return stopped


def resume(
    run: str | Path,
    config: str,
    *,
    reason: str = "resumed by hand",
    home: str | Path | None = None,
    store: StoreSettings | None = None,
) -> Config:
    """Let a stopped ``config`` go on to its end. Raises ``RunError`` if the run is not live, or has no such
    config that could go on."""
    with live_run(*locate(run, home, store)) as (record, _):
        if _known(record, config, record.config(config)).status is Status.LIVE:
            raise RunError(f"config {config!r} is live: only a stopped one can be resumed")
        resumed = _known(record, config, OperatorLedger(record).resume(config, reason))
        if resumed.status is not Status.LIVE:
            raise RunError(f"config {config!r} is {resumed.status.value}: only a stopped one can go on")
        return resumed


def clone(
    run: str | Path,
    config: str,
    hparams: Mapping[str, Any] | None = None,
    *,
    start: Start = "here",
    home: str | Path | None = None,
    store: StoreSettings | None = None,
) -> Config:
    """Add a config to the run: like ``config``, but for ``hparams``. It goes on from the parent's checkpoint
    ``here``, where that stands, or of its ``best`` epoch, or begins from ``scratch``. The new config.

    Raises ``RunError`` if the run is not live, or there is no such config, hyper-parameter or checkpoint.
    """
    changed = dict(hparams or {})
    with live_run(*locate(run, home, store)) as (record, spec):
        parent = _known(record, config, record.config(config))
        _check(config, parent, changed, spec.recipe.get("search", {}).get("space", {}))
        return _known(
            record, config, OperatorLedger(record).clone(config, changed, _starts(record, spec)[start])
        )


def _check(name: str, parent: Config, changed: Mapping[str, Any], space: Mapping[str, Any]) -> None:
    """Hyper-parameters that the parent has, with values as the space has them, or else as the parent has."""
    for key, value in changed.items():
        if key not in parent.hparams:
            near = did_you_mean(key, parent.hparams)
            raise RunError(f"config {name!r} has no hyper-parameter {key!r}; {near}")
        like = parent.hparams[key]
        unlike = like is not None and type(value) is not type(like)
        wanted = misfit(Domain.model_validate(space.get(key, [like])), value)
        if wanted is not None and (key in space or unlike):
            raise RunError(f"{key}={value}: {key} has to be {wanted}; {name} has {like!r}")


def _starts(record: Record, spec: Spec) -> Mapping[str, Callable[[Config], Config | None]]:
    """By name: the config as it was where its clone begins."""
    return {
        "here": lambda parent: parent,
        "best": lambda parent: _best(record, spec, parent),
        "scratch": lambda _parent: None,
    }


def _best(record: Record, spec: Spec, parent: Config) -> Config:
    """The parent as it was at the end of its best epoch, the state of which is kept."""
    objective = Objective.model_validate(spec.recipe.get("objective", {}))
    ends = epoch_ends(parent, record.visits_of(parent.id), spec.plan)
    values = [at.metrics.get(objective.metric) for at, _ in ends]
    place = best_epoch(values, objective.mode)
    if place is None:
        raise RunError(
            f"config {parent.id!r} has no best epoch yet: none has ended with a value of {objective.metric!r}"
        )
    return ends[place][0]


def _known(record: Record, name: str, config: Config | None) -> Config:
    if config is None:
        configs = record.state().configs
        raise RunError(f"run {record.keys.run!r} has no config {name!r}; {did_you_mean(name, configs)}")
    return config
