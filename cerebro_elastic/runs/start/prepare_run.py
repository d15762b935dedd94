"""Opens a run: the checks, and the files that are written before any process starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any, Protocol

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.decisions.decide import observe
from cerebro_elastic.core.history.lineage import may_go_on
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.run import Spec, specs_of
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import CerebroError, DataError, RunError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.rendezvous.compatibility import PACKAGE, package_digest
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.from_recipe import first_hparams, make_search, plan_of
from cerebro_elastic.runs.live import Watcher
from cerebro_elastic.runs.start.preflight import PreflightResult, preflight
from cerebro_elastic.runs.start.warm_start import check_same, resolve_warm_start
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.ledger.journal import read_journal
from cerebro_elastic.store.ledger.operators import OperatorLedger
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.files import locate, private_folder, redacted, write_text
from cerebro_elastic.system.version import __version__
from cerebro_elastic.system.words import counted, option

_PATIENCE = 2.0
"""Seconds for which a store is waited for that may be gone with its run."""


class Preflight(Protocol):
    """``preflight``, or one that goes on to check configs in the background."""

    def __call__(
        self, recipe: Recipe, hparams: Sequence[Mapping[str, Any]], data: str, *, prepare: bool
    ) -> PreflightResult: ...


def old_spec(folder: RunFolder, recipe: Recipe) -> Spec | None:
    """The spec of the run in this folder, if it has one. Raises ``RunError`` if it is of another recipe."""
    if not folder.spec.exists():
        return None
    spec = folder.read_spec()
    check_same(
        spec,
        recipe,
        f"run {folder.run!r} exists with",
        f"go on with the old recipe, choose another id with {option('run-id')}, or start anew with "
        f"{option('fresh', 'fresh=True')}",
    )
    return spec


def ended_in(folder: RunFolder) -> bool:
    """Whether the history in this folder says that its run has ended."""
    if not folder.history.exists():
        return False
    state = RunView(read_journal(folder.history)).state
    return state.outcome is not None and has_ended(state, folder.read_spec())


def has_ended(state: State, spec: Spec) -> bool:
    """Whether the run has ended, and its ``spec`` has no extension that is still to come."""
    number = state.extension.number if state.extension is not None else 0
    return state.outcome is not None and number == len(spec.extensions)


def extend_folder(folder: RunFolder, extended: Spec) -> Spec:
    """Write the spec of a run that is to be extended to its folder. The next start of the run continues with
    it. Raises ``RunError`` if the run was extended, or has gone on, since ``extended`` was made."""
    known = folder.read_spec()
    if known != specs_of(extended)[-2] or not ended_in(folder):
        raise RunError(_EXTENDED.format(run=folder.run))
    write_spec(folder, extended)
    return extended


def extend_in_store(record: Record, extended: Spec) -> Spec:
    """Extend the run of ``record``, which has ended, unless that was done. Returns the spec, with the code
    that the run had last. Raises ``RunError`` if somebody else has extended the run meanwhile."""
    present = record.spec()
    if present is not None:
        extended = replace(extended, code=present.code)
        before = specs_of(extended)[-2]
        if present == extended or (present == before and OperatorLedger(record).extend_run(before, extended)):
            return extended
    raise RunError(_EXTENDED.format(run=record.keys.run))


_EXTENDED = (
    "run {run!r} has been extended by somebody else meanwhile, or goes on: see `cerebro status {run}`, and "
    "extend it again once it has ended"
)


def gone_on(folder: RunFolder, settings: StoreSettings) -> Spec | None:
    """The spec of the run in this folder, which has ended by its history, if an operator has extended it in
    its store since. The folder has it then. ``None`` if not, or if the store is not in reach."""
    with suppress(CerebroError), closing(EtcdStore(replace(settings, patience=_PATIENCE))) as store:
        record = Record(store, folder.run, settings.run_key)
        record.check_signed(settings.trusted)
        spec = record.spec()
        if spec is not None and spec.extensions and not record.ended():
            write_spec(folder, spec)
            return spec
    return None


def new_spec(folder: RunFolder, recipe: Recipe, watcher: Watcher, preflight: Preflight = preflight) -> Spec:
    """Check everything that can be checked, prepare the data, and write the spec's copy, which makes the
    folder one of a run."""
    url, source = recipe.data.url, recipe.data.source or recipe.data.dataset or recipe.data.datamodule
    code = "the recipe, the module and the data" if source is None else "the recipe and the module"
    more = "" if source is None else f", preparing the data of {redacted(source)}"
    watcher.say(f"checking {code}{more} (its imports take a few seconds)")
    given, recipe = recipe, resolve_warm_start(recipe, folder.path.parent)
    hparams = first_hparams(recipe)
    data = str(folder.data) if url is None else recipe.rooted(url)
    Thread(target=package_digest, daemon=True).start()  # beside the preflight
    checked = preflight(recipe, hparams, data, prepare=url is None)
    _say_notes(checked, watcher)
    if recipe.data.max_bad_rows:
        _say_what_is_left_out(checked.data, watcher)
    spec = Spec(
        plan=plan_of(recipe, folder.run, checked.partitions, checked.validations),
        recipe=recipe.resolved(),
        recipe_digest=given.digest,
        data=checked.data,
        data_digest=checked.data_digest,
        root=str(recipe.root),
        code={**checked.code, PACKAGE: package_digest()},
        storage=_storage(recipe, folder),
        version=__version__,
    )
    write_spec(folder, spec)
    return spec


def _say_notes(checked: PreflightResult, watcher: Watcher) -> None:
    for note in checked.notes:
        watcher.say(f"note: {note}")


def _say_what_is_left_out(data: str, watcher: Watcher) -> None:
    from cerebro_elastic.data.preparing.defects import REPORT, rows_left_out

    if left_out := rows_left_out(data):
        watcher.say(f"{counted(left_out, 'bad row')} left out: {redacted(data)}/{REPORT} shows some of them")


def _storage(recipe: Recipe, folder: RunFolder) -> str:
    """The folder or URL of the run's checkpoints and logs: the names in it are the same in every run."""
    if recipe.checkpoints is None:
        return str(folder.path)
    storage = f"{recipe.rooted(recipe.checkpoints)}/{folder.run}"
    if (place := locate(storage)).local:  # machines that join look for it
        private_folder(Path(place.path))
    return storage


def write_spec(folder: RunFolder, spec: Spec) -> None:
    """Write the spec's copy."""
    write_text(folder.spec, encode(spec))


def check_store(settings: StoreSettings, run: str, *, known: bool) -> None:
    """Check before anything is prepared that the store answers, accepts the login, and has no run of this id
    other than the one in the folder."""
    with closing(EtcdStore(settings)) as store:
        record = Record(store, run)
        if record.spec() is not None and not known:
            raise RunError(
                f"the store at {', '.join(settings.endpoints)} already has a run {run!r} that this folder "
                f"knows nothing of: choose another id with {option('run-id')}, or remove it there with "
                f"`etcdctl del --prefix {record.keys.prefix}`"
            )


def recheck(
    spec: Spec, recipe: Recipe, state: State, watcher: Watcher, preflight: Preflight = preflight
) -> Spec:
    """The spec with which a run continues: the same data, and the present code. (A node repairs a checkpoint
    that was damaged meanwhile, when it needs it.)"""
    watcher.say("checking the module and the data")
    configs = state.configs.values()
    live = [c.hparams for c in configs if c.status is Status.LIVE or may_go_on(c, state.extension)]
    if state.extension is not None and not live:  # the search is to have more
        live = [proposal.hparams for proposal in make_search(recipe).propose(observe(state, spec.plan))]
    Thread(target=package_digest, daemon=True).start()  # beside the preflight
    checked = preflight(recipe, live, spec.data, prepare=False)
    _say_notes(checked, watcher)
    if checked.data_digest != spec.data_digest:
        raise DataError(
            f"the data at {spec.data} have digest {checked.data_digest}, the run began with "
            f"{spec.data_digest}: restore them, or start a new run with another {option('run-id')}"
        )
    code = {**checked.code, PACKAGE: package_digest()}
    changed = sorted(name for name in {*code, *spec.code} if code.get(name) != spec.code.get(name))
    if changed:
        texts = [f"{name} ({_short(spec.code, name)} then, {_short(code, name)} now)" for name in changed]
        watcher.say(
            f"note: {', '.join(texts)} is not as it was when the run began; it goes on with "
            "the new code, and `replay` will find visits that differ"
        )
    return replace(spec, code=code)


def _short(code: Mapping[str, str], name: str) -> str:
    """The beginning of a digest."""
    return code[name][:12] if name in code else "none"
