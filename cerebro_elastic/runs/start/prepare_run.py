"""Opens a run: the checks, and the files written before any process starts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any, Protocol

from cerebro_elastic.config import StoreSettings, price_from
from cerebro_elastic.core.decisions.observing import observe
from cerebro_elastic.core.history.lineage import may_go_on
from cerebro_elastic.core.history.members import first_members
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.run import Plan, Spec, specs_of
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import CerebroError, DataError, RecipeError, RunError
from cerebro_elastic.recipes import Recipe, differences, load_recipe_of
from cerebro_elastic.runs.attach import record_in
from cerebro_elastic.runs.folder import RunFolder, how_to_retry
from cerebro_elastic.runs.from_recipe import first_hparams, make_search, plan_of
from cerebro_elastic.runs.owner import claimed, refuse_others
from cerebro_elastic.runs.results.report import manifest_of
from cerebro_elastic.runs.results.result import has_ended, is_made
from cerebro_elastic.runs.start.preflight import PreflightResult, preflight
from cerebro_elastic.runs.start.reuse import take_over
from cerebro_elastic.runs.start.warm_start import resolve_warm_start
from cerebro_elastic.runs.terminal_view import Watcher
from cerebro_elastic.runs.versions import other_code
from cerebro_elastic.store.ledger.operators import OperatorLedger
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.files import here, locate, note_folder, private_folder, redacted, write_text
from cerebro_elastic.system.version import __version__
from cerebro_elastic.system.words import counted, for_reader, option
from cerebro_elastic.worker.rendezvous.compatibility import PACKAGE, package_digest

_PATIENCE = 2.0
"""Seconds of the wait for a store that may be gone with its run."""


class Preflight(Protocol):
    """``preflight``, or one that then checks configs in the background."""

    def __call__(
        self, recipe: Recipe, hparams: Sequence[Mapping[str, Any]], data: str, *, prepare: bool
    ) -> PreflightResult: ...


def old_spec(folder: RunFolder, recipe: Recipe) -> Spec | None:
    """The spec of the run in this folder, if any. Raises ``RunError`` if it is of another recipe."""
    if not folder.spec.exists():
        return None
    spec = folder.read_spec()
    check_same(
        spec,
        recipe,
        f"run {folder.run!r} exists with",
        f"go on with the old recipe, choose another id with {option('run-id')}, or start anew with "
        f"{option('fresh', 'fresh=True')}, which deletes the results and checkpoints of this run. (More "
        f"epochs, configs or budget: `cerebro extend {folder.run}`)",
    )
    return spec


def check_same(spec: Spec, recipe: Recipe, what: str, advice: str) -> None:
    """Raise ``RunError`` unless ``recipe`` is that of the run ``spec``, apart from values replaced by a warm
    start. The recipe from before an extension is the run's, too, and a number that it leaves open matches
    any. The message begins with ``what``, and ends with the ``advice``."""
    recipe = load_recipe_of(spec.recipe, recipe)
    if recipe.digest in (spec.recipe_digest, *(extension.digest_before for extension in spec.extensions)):
        return
    lines = differences(spec.recipe, recipe.resolved())
    own = [line for line in lines if not line.startswith(("search.start", "search.known"))] or lines
    if changed := "\n".join(f"  {line}" for line in own):
        raise RunError(f"{what} another recipe:\n{changed}\n{advice}")


def check_project(folder: RunFolder, recipe: Recipe) -> None:
    """Raise ``RunError`` if the run here is of a recipe in another folder. A missing folder was moved."""
    if not folder.spec.exists():
        return
    try:
        theirs = Path(here(folder.read_spec().root))
    except RunError:  # reported later, or deleted by --fresh
        return
    if not theirs.is_dir():
        note_folder(theirs, recipe.root)
        return
    if theirs.samefile(recipe.root):
        return
    rm = for_reader(f"`cerebro rm {folder.run}`", f"Run.open({folder.run!r}).remove()")
    raise RunError(
        f"run {folder.run!r} in {folder.path.parent} is of the recipe in {theirs}, and this recipe is in "
        f"{recipe.root}: two projects with one name. Give this run another id with {option('run-id')}, or "
        f"this project another folder of runs with {option('home')}; {rm} removes the other run"
    )


def ended_in(folder: RunFolder) -> bool:
    """Whether the history in this folder says that its run has ended."""
    state = state_in(folder)
    return state.outcome is not None and has_ended(state, folder.read_spec())


def state_in(folder: RunFolder) -> State:
    """The state that the history in this folder leads to."""
    return RunView(folder.events()).state


def ended_texts(folder: RunFolder, spec: Spec, state: State) -> Iterator[str]:
    """The messages to a person who runs a recipe whose run has ended: how to continue it."""
    run = folder.run
    yield (
        f"run {run!r} has ended before; to go on with it: "
        f"{for_reader(f'cerebro extend {folder.argument}', f'Run.open({run!r}).extend(...)')}; "
        f"to run it again: {option('fresh', 'fresh=True')}, or another {option('run-id')}"
    )
    if changed := other_code(spec):
        yield f"note: {'; '.join(changed)}: the results below are of the code of then"
    failed = sum(config.status is Status.FAILED for config in state.configs.values())
    if failed and (python := for_reader("", how_to_retry(folder))):  # a command shows it with the results
        yield f"{failed} of {counted(len(state.configs), 'config')} failed; {python}"
    manifest = manifest_of(spec)
    if manifest is not None and manifest.test and not state.measured:
        yield (
            "note: no config was measured on the test set when the run ended; to do it now: "
            f"{for_reader(f'cerebro test {folder.argument}', f'Run.open({run!r}).test()')}"
        )


def check_extendable(folder: RunFolder, state: State, extended: Spec) -> None:
    """Raise ``RunError`` if the run in this folder, which is in this ``state``, was extended or has continued
    since ``extended`` was made."""
    if (known := folder.read_spec()) != specs_of(extended)[-2] or not has_ended(state, known):
        raise RunError(_EXTENDED.format(run=folder.run))


def extend_in_store(record: Record, extended: Spec) -> Spec:
    """Extend the run of ``record``, which has ended, unless that was done. Returns the spec, with the run's
    last code. Raises ``RunError`` if somebody else has extended the run since."""
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
    its store since. The folder has it then. ``None`` if not, or if the store is out of reach."""
    with suppress(CerebroError), record_in(replace(settings, patience=_PATIENCE), folder.run) as record:
        record.check_signed(settings.trusted)
        spec = record.spec()
        if spec is not None and spec.extensions and not record.ended():
            write_spec(folder, spec)
            return spec
    return None


def new_spec(
    folder: RunFolder,
    recipe: Recipe,
    watcher: Watcher,
    preflight: Preflight = preflight,
    *,
    reuse: bool = False,
) -> Spec:
    """Check everything that can be checked, prepare the data, take over results of earlier runs with
    ``reuse``, and write the spec's copy, which makes the folder one of a run."""
    url, source = recipe.data.url, recipe.data.source or recipe.data.dataset or recipe.data.datamodule
    code = "the recipe, the module and the data" if source is None else "the recipe and the module"
    more = "" if source is None else f", preparing the data of {redacted(source)}"
    if recipe.data.shards is not None:
        more = f", listing the shards of {redacted(recipe.data.shards)}"
    if recipe.choice is not None:
        watcher.say(str(recipe.choice))
    watcher.say(f"checking {code}{more} (its imports take a few seconds)")
    check_deadline(recipe, time.time())
    price_from(os.environ)
    given, recipe = recipe, resolve_warm_start(recipe, folder.path.parent)
    hparams = first_hparams(recipe)
    data = _data_place(recipe, folder) if url is None else recipe.rooted(url)
    checked, digests = _checked(recipe, hparams, data, watcher, preflight, prepare=url is None)
    if recipe.data.max_bad_rows:
        _say_what_is_left_out(checked.data, watcher)
    plan = plan_of(recipe, folder.run, checked.partitions, checked.validations)
    check_units(recipe, plan)
    spec = Spec(
        plan=plan,
        recipe=recipe.resolved(),
        recipe_digest=given.digest,
        data=checked.data,
        data_digest=checked.data_digest,
        root=str(recipe.root),
        code=digests,
        storage=_storage(recipe, folder),
        version=__version__,
        differing=checked.differing,
    )
    with claimed(spec.storage, folder) if recipe.checkpoints is not None else nullcontext():
        spec = take_over(spec, recipe, folder, watcher.say) if reuse else spec
        write_spec(folder, spec)
    return spec


def _data_place(recipe: Recipe, folder: RunFolder) -> str:
    """The place of the run's dataset. For shards that is their manifest's, which all machines read."""
    if recipe.data.shards is not None and recipe.checkpoints is not None:
        return f"{recipe.rooted(recipe.checkpoints)}/{folder.run}/data"
    return str(folder.data)


def check_deadline(recipe: Recipe, now: float) -> None:
    """Raise ``RecipeError`` if the recipe's deadline is past."""
    budget = recipe.search.budget
    if budget.until is not None and budget.until <= now:
        where = recipe.source.where(("search", "budget", "deadline"))
        raise RecipeError(
            f"{where}: search.budget.deadline is {budget.deadline}, which is past: give one that is to come"
        )


def check_units(recipe: Recipe, plan: Plan) -> None:
    """Raise ``RecipeError`` if the recipe's budget is not enough for an epoch of one config."""
    budget, trainings = recipe.search.budget, len(first_members(plan))
    if getattr(recipe.search, "resource", "epochs") == "units":
        return
    needed = {"units": plan.trained * trainings, "epochs": trainings}
    for name, least in needed.items():
        given = getattr(budget, name)
        if given is not None and given < least:
            first = f"{counted(trainings, 'training')} of {counted(plan.trained, 'partition')}"
            where = recipe.source.where(("search", "budget", name))
            raise RecipeError(
                f"{where}: search.budget.{name} is {given}, and a config has its first result after {least} "
                f"{name} ({first}): give at least {least}"
            )


def _checked(
    recipe: Recipe,
    hparams: Sequence[Mapping[str, Any]],
    data: str,
    watcher: Watcher,
    preflight: Preflight,
    *,
    prepare: bool,
) -> tuple[PreflightResult, Mapping[str, str]]:
    """The preflight, whose notes are reported, and the digests of all code, this package's included."""
    Thread(target=package_digest, daemon=True).start()  # beside the preflight
    checked = preflight(recipe, hparams, data, prepare=prepare)
    for note in checked.notes:
        watcher.say(f"note: {note}")
    return checked, {**checked.code, PACKAGE: package_digest()}


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
    refuse_others(storage, folder)
    return storage


def write_spec(folder: RunFolder, spec: Spec) -> None:
    """Write the spec's copy."""
    write_text(folder.spec, encode(spec))


def check_store(settings: StoreSettings, run: str, *, known: bool) -> None:
    """Check before anything is prepared that the store answers, accepts the login, and has no run of this id
    other than the one in the folder."""
    with record_in(settings, run, unchecked=True) as record:
        if record.spec() is not None and not known:
            raise RunError(
                f"the store at {', '.join(settings.endpoints)} already has a run {run!r} that this folder "
                f"knows nothing of: choose another id with {option('run-id')}, or remove it there with "
                f"`etcdctl del --prefix {record.keys.prefix}`"
            )


def going_on(spec: Spec, state: State, retried: Collection[str] = ()) -> list[Config]:
    """The configs to train when a run with this ``spec`` continues from this ``state``; failed ones if they
    are ``retried``, or an extension continues them."""
    extension = spec.extensions[-1] if spec.extensions else None
    return [
        config
        for config in state.configs.values()
        if config.status is Status.LIVE or config.id in retried or may_go_on(config, extension)
    ]


def refuse_other_code(question: str) -> bool:
    """The default of ``Launch.agrees``: raises ``RunError``, which says how to continue."""
    yes = option("yes", "changed_code=True")
    raise RunError(f"{question}. To go on so, give {yes}; else restore the code, or start another run")


def agreement(changed_code: bool) -> Callable[[str], bool]:
    """``Launch.agrees`` with the answer given beforehand."""
    return (lambda _question: True) if changed_code else refuse_other_code


def check_code(
    spec: Spec, state: State, agrees: Callable[[str], bool], retried: Collection[str] = ()
) -> None:
    """Have somebody agree that configs continue with code other than that of their training so far. Failed
    configs that are tried again need no consent: for them the code was changed.

    Raises:
        RunError: Nobody agrees.
    """
    extension = spec.extensions[-1] if spec.extensions else None
    trained = [
        config.id
        for config in going_on(spec, state)
        if config.head is not None and config.status is not Status.FAILED and config.id not in retried
    ]
    more = extension is not None and bool(extension.recipe_before) and not is_made(spec, state)
    if not (trained or more) or not (changed := other_code(spec)):
        return
    run = spec.plan.run
    what = f"{counted(len(trained), 'config')} of run {run!r}" if trained else f"run {run!r}"
    question = (
        f"{'; '.join(changed)}. {what} would go on with the code as it is now, so that `replay` may find "
        "visits that differ"
    )
    if not agrees(question):
        raise RunError(f"run {run!r} does not go on, and nothing is changed: its code is another now")


def recheck(
    spec: Spec,
    recipe: Recipe,
    state: State,
    watcher: Watcher,
    preflight: Preflight = preflight,
    retried: Collection[str] = (),
) -> Spec:
    """The spec with which a run continues: the same data, and the present code. (A node repairs a checkpoint
    damaged since then when it needs it.) ``retried`` are the failed configs that are tried again."""
    watcher.say("checking the module and the data")
    live = [config.hparams for config in going_on(spec, state, retried)]
    if spec.extensions and not live:  # the search should have more
        live = [proposal.hparams for proposal in make_search(recipe).propose(observe(state, spec.plan))]
    checked, code = _checked(recipe, live, spec.data, watcher, preflight, prepare=False)
    if checked.data_digest != spec.data_digest:
        raise DataError(
            f"the data at {spec.data} have digest {checked.data_digest}, the run began with "
            f"{spec.data_digest}: restore them, or start a new run with another {option('run-id')}"
        )
    changed = sorted(name for name in {*code, *spec.code} if code.get(name) != spec.code.get(name))
    if changed and (new := checked.differing.keys() - spec.differing.keys()):
        raise RunError(
            f"{', '.join(changed)} is not as it was when the run began, and what it had kept for all epochs "
            f"differs now: {'; '.join(checked.differing[name] for name in sorted(new))}; restore it, or "
            f"start a new run with another {option('run-id')}"
        )
    if changed:
        texts = [f"{name} ({_short(spec.code, name)} then, {_short(code, name)} now)" for name in changed]
        watcher.say(
            f"note: {', '.join(texts)} is not as it was when the run began; it goes on with "
            "the new code, and `replay` may find visits that differ"
        )
    return replace(spec, code=code)


def _short(code: Mapping[str, str], name: str) -> str:
    """The start of a digest."""
    return code[name][:12] if name in code else "none"
