"""Operators' decisions on the configs of a live run: stop, resume, clone.

Each is one transaction, is recorded in the history like all others, and takes effect at once. The unit that a
stopped config is in does not count: its commit is refused, and a resumed config begins that unit again. The
unit that a cloned config is in goes on. The search leaves all these configs as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.history.progress import at_end
from cerebro_elastic.core.history.view import ConfigHistory
from cerebro_elastic.core.model.best import best_end, epoch_ends
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.errors import RunError, did_you_mean
from cerebro_elastic.recipes import Domain, Objective
from cerebro_elastic.runs.attach import live_run, locate
from cerebro_elastic.search.sampling import misfit
from cerebro_elastic.store.ledger.operators import OperatorLedger
from cerebro_elastic.store.ledger.record import Record

Start: TypeAlias = Literal["here", "best", "scratch"]
"""Where a clone begins: where its parent stands, at the end of its parent's best epoch, or anew."""


def stop(
    run: str | Path,
    config: str,
    *,
    reason: str = "stopped by hand",
    home: str | Path | None = None,
    store: StoreSettings | None = None,
) -> Config:
    """Stop a config of a live run. The unit that it is in does not count; all it has committed stays.

    Args:
        run: The run's id, or its folder on this machine.
        config: The config's id.
        reason: Why, for the record.
        home: The folder of runs, by default ``$CEREBRO_HOME``, else ``./runs``.
        store: The etcd of a run of other machines.

    Returns:
        The config as it is now.

    Raises:
        RunError: The run is not live, or has no such config that could be stopped.

    Example:
        >>> stop("live", "c0001", reason="diverges").status
        <Status.STOPPED: 'stopped'>
    """
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
    """Let a config of a live run, stopped by a person or the search, continue to its end.

    Args:
        run: The run's id, or its folder on this machine.
        config: The config's id.
        reason: Why, for the record.
        home: The folder of runs, by default ``$CEREBRO_HOME``, else ``./runs``.
        store: The etcd of a run of other machines.

    Returns:
        The config as it is now.

    Raises:
        RunError: The run is not live, or has no such config that could go on.

    Example:
        >>> resume("live", "c0001").status
        <Status.LIVE: 'live'>
    """
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
    reason: str = "",
    home: str | Path | None = None,
    store: StoreSettings | None = None,
) -> Config:
    """Add a config to a live run: like another one, except for some hyper-parameters.

    Args:
        run: The run's id, or its folder on this machine.
        config: The id of the config to clone, the parent.
        hparams: The hyper-parameters that differ.
        start: ``here``: the clone goes on where the parent stands; ``best``: at the end of the parent's best
            epoch; ``scratch``: it begins anew.
        reason: Why, for the record.
        home: The folder of runs, by default ``$CEREBRO_HOME``, else ``./runs``.
        store: The etcd of a run of other machines.

    Returns:
        The new config.

    Raises:
        RunError: The run is not live, or has no such config, hyper-parameter or checkpoint.

    Example:
        >>> clone("live", "c0000", {"lr": 0.001}, start="scratch").hparams
        {'lr': 0.001}
    """
    changed = dict(hparams or {})
    with live_run(*locate(run, home, store)) as (record, spec):
        parent = _known(record, config, record.config(config))
        _check(config, parent, changed, spec.recipe.get("search", {}).get("space", {}))
        return _known(
            record,
            config,
            OperatorLedger(record).clone(config, changed, _starts(record, spec)[start], reason),
        )


def _check(name: str, parent: Config, changed: Mapping[str, Any], space: Mapping[str, Any]) -> None:
    """Raise ``RunError`` unless the parent has these hyper-parameters, and the values are as in the space, or
    else like the parent's."""
    for key, value in changed.items():
        if key not in parent.hparams:
            near = did_you_mean(key, parent.hparams)
            raise RunError(f"config {name!r} has no hyper-parameter {key!r}; {near}")
        own = parent.hparams[key]
        other_type = own is not None and type(value) is not type(own)
        expected = misfit(Domain.model_validate(space.get(key, [own])), value)
        if expected is not None and (key in space or other_type):
            raise RunError(f"{key}={value}: {key} has to be {expected}; {name} has {own!r}")


def _starts(record: Record, spec: Spec) -> Mapping[str, Callable[[Config], Config | None]]:
    """By name: the parent as it was where its clone begins."""
    return {
        "here": lambda parent: parent,
        "best": lambda parent: _best(record, spec, parent),
        "scratch": lambda _parent: None,
    }


def _best(record: Record, spec: Spec, parent: Config) -> Config:
    """The parent as it was at the end of its best epoch, whose checkpoint is kept."""
    objective = Objective.model_validate(spec.recipe.get("objective", {}))
    ends = epoch_ends(ConfigHistory.of(parent, record.visits_of(parent.id), spec.plan).curve)
    place = best_end(ends, objective.metric, objective.mode)
    if place is None:
        raise RunError(
            f"config {parent.id!r} has no best epoch yet: none has ended with a finite value of "
            f"{objective.metric!r}"
        )
    return at_end(parent, ends[place])


def _known(record: Record, name: str, config: Config | None) -> Config:
    if config is None:
        configs = record.state().configs
        raise RunError(f"run {record.keys.run!r} has no config {name!r}; {did_you_mean(name, configs)}")
    return config
