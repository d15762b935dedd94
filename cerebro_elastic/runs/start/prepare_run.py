"""Opening a run: what is checked, made and written before anything is started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import Event, RunEnded, StateRead
from cerebro_elastic.core.model.interfaces import SearchContext
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import DataError, RunError
from cerebro_elastic.files import locate, private_folder, redacted, write_text
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.from_recipe import make_search, plan_of
from cerebro_elastic.runs.live import Watcher
from cerebro_elastic.runs.start.preflight import Findings, preflight
from cerebro_elastic.runs.start.warm_start import changes, written_out
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.ledger.journal import read_journal
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.version import __version__


class Preflight(Protocol):
    """``preflight``, or what does it and goes on to find out more."""

    def __call__(
        self, recipe: Recipe, hparams: Sequence[Mapping[str, Any]], data: str, *, prepare: bool
    ) -> Findings: ...


def old_spec(folder: RunFolder, recipe: Recipe) -> Spec | None:
    """The spec of the run that this folder holds, if it is of the same recipe."""
    if not folder.spec.exists():
        return None
    spec = folder.read_spec()
    if changed := "\n".join(f"  {line}" for line in changes(spec, recipe)):
        raise RunError(
            f"run {folder.run!r} exists with another recipe:\n{changed}\n"
            "go on with the old recipe, choose another id with --run-id, or start anew with --fresh"
        )
    return spec


def ended_in(folder: RunFolder) -> bool:
    """Whether the history in this folder says that its run has ended."""
    return folder.history.exists() and has_ended(read_journal(folder.history))


def has_ended(events: Iterable[Event]) -> bool:
    """Whether they say that their run has ended."""
    told = [event for event in events if isinstance(event, RunEnded | StateRead)]
    return bool(told) and (isinstance(told[-1], RunEnded) or told[-1].state.outcome is not None)


def new_spec(folder: RunFolder, recipe: Recipe, watcher: Watcher, preflight: Preflight = preflight) -> Spec:
    """Check everything that can be checked, prepare the data, and write the spec's copy: from then on the
    folder holds a run."""
    url, source = recipe.data.url, recipe.data.source
    code = "the recipe, the module and the data" if source is None else "the recipe and the module"
    more = "" if source is None else f", preparing the data of {redacted(source)}"
    watcher.say(f"checking {code}{more} (importing torch takes a few seconds)")
    given, recipe = recipe, written_out(recipe, folder.path.parent)
    first = SearchContext(partitions=recipe.data.partitions, epochs=recipe.epochs, nodes=recipe.nodes.min)
    hparams = [proposal.hparams for proposal in make_search(recipe).propose(first)]
    data = str(folder.data) if url is None else recipe.rooted(url)
    found = preflight(recipe, hparams, data, prepare=url is None)
    spec = Spec(
        plan=plan_of(recipe, folder.run, found.partitions, found.validations),
        recipe=recipe.resolved(),
        recipe_digest=given.digest,
        data=found.data,
        data_digest=found.data_digest,
        root=str(recipe.root),
        code=found.code,
        storage=_storage(recipe, folder),
        version=__version__,
    )
    keep_spec(folder, spec)
    return spec


def _storage(recipe: Recipe, folder: RunFolder) -> str:
    """Where the run's checkpoints and logs go: the names below are the same in every run."""
    if recipe.checkpoints is None:
        return str(folder.path)
    storage = f"{recipe.rooted(recipe.checkpoints)}/{folder.run}"
    if (place := locate(storage)).local:  # machines that join look for it
        private_folder(Path(place.path))
    return storage


def keep_spec(folder: RunFolder, spec: Spec) -> None:
    """Write the spec's copy, whole or not at all."""
    temporary = folder.spec.with_suffix(".tmp")
    write_text(temporary, encode(spec))
    temporary.replace(folder.spec)


def check_store(settings: StoreSettings, run: str, *, known: bool) -> None:
    """Before anything is prepared: the store answers, lets us in, and has no run of this id that is not
    the one in the folder."""
    with closing(EtcdStore(settings)) as store:
        record = Record(store, run)
        if record.spec() is not None and not known:
            raise RunError(
                f"the store at {', '.join(settings.endpoints)} already has a run {run!r} that this folder "
                "knows nothing of: choose another id with --run-id, or remove it there with "
                f"`etcdctl del --prefix {record.keys.prefix}`"
            )


def check_again(
    spec: Spec, recipe: Recipe, state: State, watcher: Watcher, preflight: Preflight = preflight
) -> Spec:
    """The spec with which a run can go on: the same data, and the code as it is now. (A checkpoint that was
    damaged meanwhile, the node that needs it makes again.)"""
    watcher.say("checking the module and the data")
    live = [config for config in state.configs.values() if config.status is Status.LIVE]
    found = preflight(recipe, [c.hparams for c in live], spec.data, prepare=False)
    if found.data_digest != spec.data_digest:
        raise DataError(
            f"the data at {spec.data} have digest {found.data_digest}, the run began with "
            f"{spec.data_digest}: restore them, or start a new run with another --run-id"
        )
    changed = sorted(
        name for name in {*found.code, *spec.code} if found.code.get(name) != spec.code.get(name)
    )
    if changed:
        watcher.say(
            f"note: {', '.join(changed)} in {recipe.root} is not as it was when the run began; it goes on "
            "with the new code, and `cerebro replay` will find visits that differ"
        )
    return replace(spec, code=found.code)
