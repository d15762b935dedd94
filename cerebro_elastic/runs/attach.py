"""Access to a live run from another process: by its folder on this machine, or by its etcd."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.history.keys import ROOT
from cerebro_elastic.core.history.members import named
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.errors import Compacted, RunError, did_you_mean
from cerebro_elastic.runs.folder import RunFolder, known_key
from cerebro_elastic.store.client.base import Store
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.files import check_own
from cerebro_elastic.system.words import for_reader


def with_key(store: StoreSettings, run: str, home: str | Path | None) -> StoreSettings:
    """``store`` with the run's key, if it has none and the key is on this machine. A trusted etcd needs
    none."""
    if store.run_key is not None or store.trusted:
        return store
    return replace(store, run_key=known_key(run, home))


@contextmanager
def record_in(settings: StoreSettings, run: str, *, unchecked: bool = False) -> Iterator[Record]:
    """The record of a run in its store, within the block; ``unchecked``: with values of any signature."""
    with closing(EtcdStore(settings)) as store:
        yield Record(store, run, None if unchecked else settings.run_key)


@contextmanager
def known_record(
    settings: StoreSettings, run: str, *, believed: bool = True
) -> Iterator[tuple[Record, Spec]]:
    """The record of a run, and its spec. Raises ``RunError`` if the store has no such run or, if the run must
    be ``believed``, its values are not signed with its key."""
    with record_in(settings, run) as record:
        spec = known_spec(record, settings)
        if believed:
            record.check_signed(settings.trusted)
        yield record, spec


def store_of(folder: RunFolder) -> StoreSettings | None:
    """The store of the live run that has this folder; ``None`` if it names none, as after the run's end.
    Raises ``RunError`` if others can have made it: they would get this user's login, and commands signed with
    their key."""
    if not folder.endpoint.exists():
        return None
    check_own(folder.path)
    try:
        endpoint = folder.endpoint.read_text()
    except FileNotFoundError:  # the run has ended since
        return None
    return with_key(StoreSettings.at(endpoint), folder.run, folder.path.parent)


@contextmanager
def live_run(run: str, settings: StoreSettings) -> Iterator[tuple[Record, Spec]]:
    """The record of a live run. Raises ``RunError`` if the store has no such run, the run has ended, or its
    values are not signed with its key."""
    with known_record(settings, run) as (record, spec):
        if record.ended():
            raise ended_error(run)
        yield record, spec


def known_spec(record: Record, settings: StoreSettings) -> Spec:
    """The run's spec. Without one, ``RunError`` lists the runs of the store."""
    spec = record.spec()
    if spec is None:
        run = record.keys.run
        raise RunError(
            f"the store at {', '.join(settings.endpoints)} knows no run {run!r}; "
            f"{did_you_mean(run, runs_in(record.store))}"
        )
    return spec


def read_record(run: str, settings: StoreSettings) -> tuple[Spec, Sequence[Event]]:
    """The run's spec and its events from the beginning; if the store has compacted some, the present state
    instead. Raises ``RunError`` if the store has no such run, or its values are not signed with its key."""
    with known_record(settings, run) as (record, spec):
        return spec, events_of(record)


def events_of(record: Record) -> Sequence[Event]:
    """The run's events from the start; if the store has compacted some, the present state instead."""
    try:
        return record.history()
    except Compacted:
        return [record.read()]


def runs_in(store: Store) -> list[str]:
    keys = (item.key.removeprefix(ROOT) for item in store.range(ROOT).items)
    return sorted(key.removesuffix("/spec") for key in keys if key.count("/") == 1 and key.endswith("/spec"))


def trainings_named(run: str, configs: Mapping[str, Config], name: str) -> list[Config]:
    """The config of this id, or its trainings. Raises ``RunError`` if none exists, or if it names one of
    several trainings."""
    trainings = named(configs, name)
    if not trainings:
        seen = dict.fromkeys(config.seen_as for config in configs.values())
        raise RunError(f"run {run!r} has no config {name!r}; {did_you_mean(name, seen)}")
    if of := trainings[0].member_of if trainings[0].id == name else "":
        raise RunError(
            f"{name} is one of the trainings of config {of}, which are compared by their mean: name {of}, "
            "and the same is done with all of them"
        )
    return trainings


def ended_error(run: str) -> RunError:
    """The error of a request to a run that has ended."""
    extend = for_reader(f"`cerebro extend {run}`", f"Run.open({run!r}).extend()")
    return RunError(
        f"run {run!r} has ended, and only a live run can be changed: {extend} continues it, with more "
        "epochs, configs or budget; while it does, stop, resume, clone and add work again"
    )
