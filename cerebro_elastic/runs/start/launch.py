"""A run on this machine, from the check of its recipe to its end."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from cerebro_elastic.config import GRACE, StoreSettings
from cerebro_elastic.core.history.lineage import tried_again
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.run import Spec, specs_of
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import CerebroError, RunError
from cerebro_elastic.recipes import Recipe, load_recipe, load_recipe_of
from cerebro_elastic.recipes.references import check_named
from cerebro_elastic.runs.attach import record_in, with_key
from cerebro_elastic.runs.callbacks import CallbackCaller, CallbackFailed, RunCallback
from cerebro_elastic.runs.folder import RunFolder, run_folder
from cerebro_elastic.runs.logging.loggers import tensorboard_of
from cerebro_elastic.runs.owner import claim, left_alone, owns, refuse_others
from cerebro_elastic.runs.results.report import write_results
from cerebro_elastic.runs.results.result import RunResult, has_ended
from cerebro_elastic.runs.results.test_set import measure_winner
from cerebro_elastic.runs.start.agents import LocalAgents, NodeHealthCheck
from cerebro_elastic.runs.start.background_check import BackgroundCheck
from cerebro_elastic.runs.start.imports import SharedImports
from cerebro_elastic.runs.start.machine import Accelerators, accelerators_of
from cerebro_elastic.runs.start.participate import present, publish_endpoint, take_part
from cerebro_elastic.runs.start.places import check_places
from cerebro_elastic.runs.start.prepare_run import (
    check_code,
    check_extendable,
    check_project,
    check_store,
    ended_texts,
    extend_in_store,
    gone_on,
    new_spec,
    old_spec,
    recheck,
    refuse_other_code,
    state_in,
    write_spec,
)
from cerebro_elastic.runs.start.room import check_room, cores_here
from cerebro_elastic.runs.terminal_view import Watcher
from cerebro_elastic.search.studies import is_study, section_of, tell
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.ledger.journal import Journal
from cerebro_elastic.store.ledger.operators import OperatorLedger
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.files import locate, redacted, remove
from cerebro_elastic.system.run_key import RunKey
from cerebro_elastic.system.words import counted, option


@dataclass(frozen=True, slots=True)
class Launch:
    """A checked call of ``run``."""

    recipe: Recipe
    folder: RunFolder
    store: StoreSettings | None = None
    """The etcd to use; ``None`` for the run's own."""
    fresh: bool = False
    """Whether to throw away an earlier run of this id."""
    grace: float = GRACE
    """Seconds that nodes have to leave."""
    callbacks: Sequence[RunCallback] = ()
    """They are called when a unit, an epoch and the run have ended."""
    study: Any = None
    """The ``optuna.Study`` that gets the configs as trials; ``None`` without one."""
    extended: Spec | None = None
    """The spec of the run, which has ended, after an extension still to be made; ``None`` without one."""
    agrees: Callable[[str], bool] = refuse_other_code
    """It is asked whether configs continue although the code has changed since they were trained."""
    retried: Sequence[str] = ()
    """The failed configs of an unfinished run that are tried again."""
    by: str = ""
    """The name of the person who requests that, for the record."""
    reuse: bool = False
    """Whether a new run takes over results of earlier runs of its home."""

    @classmethod
    def of(
        cls,
        recipe: str | Path | Mapping[str, Any] | Recipe,
        *,
        run_id: str | None,
        home: str | Path | None,
        fresh: bool,
        store: StoreSettings | None,
        grace: float,
        callbacks: Sequence[RunCallback] = (),
        agrees: Callable[[str], bool] = refuse_other_code,
        reuse: bool = False,
        overrides: Mapping[str, Any] = MappingProxyType({}),
    ) -> Self:
        """Check the arguments of ``run``. Raises as it does."""
        if fresh and reuse:
            raise RunError(
                f"{option('fresh')} deletes what {option('reuse')} would take over: leave {option('fresh')} "
                f"out, and give the new run another id with {option('run-id')}"
            )
        values = dict(overrides)
        study = values.pop("search") if is_study(values.get("search")) else None
        if study is not None:
            values["search"] = section_of(study, load_recipe(recipe, **values).objective)
        checked = load_recipe(recipe, **values)
        check_named(checked)
        if store is None and checked.etcd is not None:
            store = StoreSettings.at(checked.etcd)
        folder = run_folder(checked.name if run_id is None else run_id, home)
        return cls(checked, folder, store, fresh, grace, callbacks, study, agrees=agrees, reuse=reuse)

    def __call__(self, watcher: Watcher, imports: SharedImports | None = None) -> RunResult:
        """Run to the run's end. ``imports`` have begun; by default new ones are begun here."""
        folder = self.folder
        check_project(folder, self.recipe)
        try:
            with folder.locked():
                caller = self._run(watcher, imports)
                result = write_results(folder, watcher)
            caller.end(result)
        except CallbackFailed as failed:
            raise failed.error from None
        return result

    def _run(self, watcher: Watcher, imports: SharedImports | None) -> CallbackCaller:
        """Run the rest of the run. Returns the caller of the callbacks, for the run's end."""
        folder = self.folder
        recipe = self.recipe
        if not self.fresh and folder.spec.exists():
            recipe = load_recipe_of(folder.read_spec().recipe, recipe)
        spec = None if self.fresh else old_spec(folder, recipe)
        state = state_in(folder) if spec is not None else State()
        if self.extended is not None:
            check_extendable(folder, state, self.extended)
            spec = self.extended
        elif spec is not None and has_ended(state, spec):
            home, ended = folder.path.parent, spec
            spec = gone_on(folder, with_key(self.store, folder.run, home)) if self.store is not None else None
            if spec is None:
                for text in ended_texts(folder, ended, state):
                    watcher.say(text)
                return CallbackCaller(self.callbacks, folder.history)
        if spec is not None:
            refuse_others(spec.storage, folder)
            check_code(spec, state, self.agrees, self.retried)
        if self.store is not None:
            check_store(self.store, folder.run, known=spec is not None)
        if spec is None and imports is None:  # else the command has checked, before it imported this file
            check_places(recipe)
        with ExitStack() as stack:
            imports = stack.enter_context(imports or SharedImports())
            delete_former = stack.enter_context(folder.emptied()) if self.fresh else None
            env = imports.load(recipe, folder, watcher.say)
            journal = Journal(folder.history)
            # During the imports, for which everything below waits: this process's own needs.
            settings = self._store_settings(stack, watcher)
            tensorboard_of(recipe)
            accelerators = accelerators_of(recipe, imports.agents)
            if recipe.nodes.auto:
                recipe = load_recipe(recipe, nodes=accelerators.nodes_of(recipe))
            for note in check_room(recipe, recipe.nodes.min, cores_here(), accelerators):
                watcher.say(f"note: {note}")
            of_host = {**env, "CEREBRO_CACHE": str(folder.cache)}  # like the ranks here
            elsewhere = bool(accelerators.names)
            check = stack.enter_context(BackgroundCheck(folder, watcher.say, of_host, elsewhere=elsewhere))
            if spec is None:
                spec = new_spec(folder, recipe, watcher, check.preflight, reuse=self.reuse)
            elif spec.recipe.get("checkpoints") is not None:
                claim(spec.storage, folder)  # the folder may have been moved
            if delete_former is not None:
                self._delete_elsewhere(spec, watcher)
                delete_former()
            caller = CallbackCaller(self.callbacks, folder.history)
            self._take_part(spec, settings, journal, caller.watching(watcher), check, env, accelerators)
        if self.study is not None:
            tell(self.study, RunResult(folder).study())
        return caller

    def _delete_elsewhere(self, spec: Spec, watcher: Watcher) -> None:
        """Delete the checkpoints and logs that the former run of this id has left outside its folder. At the
        place of the run of ``spec``, which owns it now, delete only these."""
        try:
            former = RunFolder(self.folder.former).read_spec()
        except RunError:
            return
        if former.recipe.get("checkpoints") is None or former.plan.run != self.folder.run:
            return  # they were in its folder. (If that is a copy, its spec names the original's.)
        try:
            if not owns(self.folder, former.storage):
                watcher.say(left_alone(former.storage))
                return
            left, kinds = locate(former.storage), ("checkpoints", "logs", "record")
            for place in [left / kind for kind in kinds] if former.storage == spec.storage else [left]:
                remove(place)
        except CerebroError as error:
            watcher.say(f"note: the earlier run has left files in {redacted(former.storage)}: {error}")

    def _store_settings(self, stack: ExitStack, watcher: Watcher) -> StoreSettings:
        """The settings of the run's etcd, which is started unless one is given, and ends with ``stack``."""
        key = _key(self.folder, self.store)
        if self.store is not None:
            return replace(self.store, run_key=key)
        watcher.say("starting etcd")
        return stack.enter_context(EmbeddedEtcd(self.folder.etcd, key=key)).settings

    def _take_part(
        self,
        spec: Spec,
        settings: StoreSettings,
        journal: Journal,
        watcher: Watcher,
        check: BackgroundCheck,
        env: Mapping[str, str],
        accelerators: Accelerators,
    ) -> None:
        """Open the run in its store, unless it is open, and take part in it to its end."""
        folder, recipe = self.folder, spec.load_recipe()
        where = accelerators.text(recipe.nodes.min, recipe.node.ranks)
        starting = f"starting {counted(recipe.nodes.min, 'node')}{where and ' '}{where}"
        with ExitStack() as stack:
            stack.enter_context(publish_endpoint(folder, settings))
            record = stack.enter_context(record_in(settings, folder.run))
            if self.store is not None:
                stack.enter_context(present(record))
            if _open(record, spec, journal):
                watcher.say(starting)
            else:
                operator, retried = OperatorLedger(record), self.retried
                spec = recheck(spec, recipe, record.state(), watcher, check.preflight, retried)
                write_spec(folder, spec)  # first: the next start completes an extension
                if spec.extensions:
                    extend_in_store(record, spec)
                operator.replace_spec(spec)
                operator.release_nodes()
                for name in retried:
                    operator.resume(name, tried_again(self.by))
                watcher.say(f"again {starting}")
            if not settings.loopback:
                watcher.say(f"other machines join by: {_join_command(folder, settings)}")

            nodes_work = NodeHealthCheck()

            def stop_condition(agents: LocalAgents, events: list[Event], state: State) -> None:
                check.poll(state)
                nodes_work(agents, events, state)

            take_part(
                record,
                spec,
                folder,
                settings,
                [f"node-{i}" for i in range(recipe.nodes.min)],
                stop_condition,
                journal=journal,
                grace=self.grace,
                watcher=watcher,
                env=env,
                accelerators=accelerators,
            )
            check.wait()
            measure_winner(record, folder, journal, watcher, env)


def _key(folder: RunFolder, store: StoreSettings | None) -> RunKey | None:
    """The key with which the run is signed; ``None`` in a trusted etcd, unless a key is given."""
    given = store.run_key if store is not None else None
    if given is None and store is not None and store.trusted:
        return None
    given = given or RunKey.from_env(os.environ)
    return RunKey.kept(folder.key) if given is None else given.kept_in(folder.key)


def _join_command(folder: RunFolder, settings: StoreSettings) -> str:
    """The command that lets another machine join. The key comes by ssh, so that no log contains it."""
    key = f"CEREBRO_RUN_KEY=$(ssh {socket.gethostname()} cat {folder.key}) " if settings.run_key else ""
    return f"{key}cerebro join {folder.run} --etcd {','.join(settings.endpoints)}"


def _open(record: Record, spec: Spec, journal: Journal) -> bool:
    """Open the run in the store. Returns whether it begins now; else an earlier start has opened it."""
    if journal and record.spec() is None:
        raise RunError(
            f"run {record.keys.run!r} has begun, but in another store than this, which does not know it: "
            f"give the {option('etcd')} with which it was started; if that is lost, `cerebro etcd "
            f"{record.keys.run} --restore` begins another; or start the run anew with "
            f"{option('fresh', 'fresh=True')}"
        )
    begins, known = OperatorLedger(record).open_run(spec), record.spec()
    if known is None or replace(known, code=spec.code, differing=spec.differing) not in specs_of(spec)[-2:]:
        raise RunError(
            f"the store at hand already has a run {record.keys.run!r} that was started elsewhere; "
            f"choose another id with {option('run-id')}"
        )
    return begins
