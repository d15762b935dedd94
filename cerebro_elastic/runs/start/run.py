"""``cerebro run``: runs a recipe on this machine, or the rest of a run that was stopped."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Unpack, overload

from cerebro_elastic.config import GRACE, StoreSettings
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import RunError
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.reporting.curves import write_curves
from cerebro_elastic.run_key import RunKey
from cerebro_elastic.runs.attach import store_at
from cerebro_elastic.runs.callbacks import CallbackCaller, CallbackFailed, RunCallback
from cerebro_elastic.runs.folder import RunFolder, run_folder
from cerebro_elastic.runs.live import Watcher
from cerebro_elastic.runs.logging.loggers import Loggers
from cerebro_elastic.runs.overrides import RecipeOverrides
from cerebro_elastic.runs.results.report import write_report
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.start.agents import LocalAgents, NodeHealthCheck
from cerebro_elastic.runs.start.background_check import BackgroundCheck
from cerebro_elastic.runs.start.handle import RunHandle
from cerebro_elastic.runs.start.imports import imported_once
from cerebro_elastic.runs.start.participate import publish_endpoint, take_part
from cerebro_elastic.runs.start.prepare_run import (
    check_store,
    ended_in,
    new_spec,
    old_spec,
    recheck,
    write_spec,
)
from cerebro_elastic.search.studies import is_study, section_of, tell
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.ledger.journal import Journal
from cerebro_elastic.store.ledger.operators import OperatorLedger
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.words import counted


@overload
def run(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *,
    run_id: str | None = None,
    home: str | Path | None = None,
    fresh: bool = False,
    store: StoreSettings | None = None,
    grace: float = GRACE,
    callbacks: Sequence[RunCallback] = (),
    watcher: Watcher | None = None,
    wait: Literal[True] = True,
    **overrides: Unpack[RecipeOverrides],
) -> RunResult: ...


@overload
def run(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *,
    run_id: str | None = None,
    home: str | Path | None = None,
    fresh: bool = False,
    store: StoreSettings | None = None,
    grace: float = GRACE,
    callbacks: Sequence[RunCallback] = (),
    watcher: Watcher | None = None,
    wait: Literal[False],
    **overrides: Unpack[RecipeOverrides],
) -> RunHandle: ...


def run(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *,
    run_id: str | None = None,
    home: str | Path | None = None,
    fresh: bool = False,
    store: StoreSettings | None = None,
    grace: float = GRACE,
    callbacks: Sequence[RunCallback] = (),
    watcher: Watcher | None = None,
    wait: bool = True,
    **overrides: Unpack[RecipeOverrides],
) -> RunResult | RunHandle:
    """Run a recipe on this machine; an unfinished run of the same id and recipe goes on where it stood.

    ``KeyboardInterrupt`` stops all processes cleanly: nodes finish their units or save them part-way. The
    same call goes on from there.

    Args:
        recipe: A YAML file, a mapping, or a recipe.
        run_id: The run's id, by default the recipe's name.
        home: The folder of runs, by default ``$CEREBRO_HOME``, else ``./runs``.
        fresh: Throw away what a run of this id has left.
        store: An etcd to use, instead of the recipe's or of one that is started for the run.
        grace: Seconds that the nodes have to leave when the run is stopped.
        callbacks: They are called when a unit, an epoch and the run have ended.
        watcher: It gets lines of text and the run's state, as the command line shows them.
        wait: Whether to return when the run has ended. Without, the run goes on in a thread of this process
            and a handle of it is returned at once; a wrong recipe is still refused first.
        **overrides: Top-level keys of the recipe (``epochs=2``). ``search`` may be an ``optuna.Study``: its
            sampler, pruner and enqueued trials are used, and the configs become trials of it.

    Returns:
        The run's result; with ``wait=False`` a ``RunHandle``.

    Raises:
        RecipeError: The recipe is wrong; nothing was started. Other errors of the task, the data or the store
            that are found before the start are ``CerebroError``, too.
        RunError: No node can work any more, or another run has this id.

    Example:
        >>> result = run("sweep.yaml", seed=1)
        >>> len(result.leaderboard)
        2
        >>> result.best.best == max(row.best for row in result.leaderboard)
        True
    """
    values: dict[str, Any] = dict(overrides)
    study = values.pop("search") if is_study(values.get("search")) else None
    if study is not None:
        values["search"] = section_of(study, load_recipe(recipe, **values).objective)
    checked = load_recipe(recipe, **values)
    if store is None and checked.etcd is not None:
        store = store_at(checked.etcd)
    folder = run_folder(checked.name if run_id is None else run_id, home)
    launch = _Launch(checked, folder, store, fresh, grace, callbacks, study)
    watcher = watcher or Watcher()
    return launch(watcher) if wait else RunHandle(folder, store, launch, watcher)


@dataclass(frozen=True, slots=True)
class _Launch:
    """A checked call of ``run``."""

    recipe: Recipe
    """The recipe with its overrides."""
    folder: RunFolder
    """The run's folder."""
    store: StoreSettings | None
    """The etcd to use; ``None`` for one of the run's own."""
    fresh: bool
    """Whether to throw away an earlier run of this id."""
    grace: float
    """Seconds that nodes have to leave."""
    callbacks: Sequence[RunCallback]
    """They are called when a unit, an epoch and the run have ended."""
    study: Any
    """The ``optuna.Study`` that gets the configs as trials; ``None`` without one."""

    def __call__(self, watcher: Watcher) -> RunResult:
        """Run to the run's end."""
        folder = self.folder
        try:
            with folder.locked():
                caller = self._run(watcher)
                result = RunResult(folder)
                write_curves(result.leaderboard, folder.curves)
                write_report(result)
            caller.end(result)
        except CallbackFailed as failed:
            raise failed.error from None
        return result

    def _run(self, watcher: Watcher) -> CallbackCaller:
        """Run what is left of the run. Returns the caller of the callbacks, for the run's end."""
        folder = self.folder
        spec = None if self.fresh else old_spec(folder, self.recipe)
        if spec is not None and ended_in(folder):
            watcher.say(f"run {folder.run!r} has ended before; to run it again: --fresh, or another --run-id")
            return CallbackCaller(self.callbacks, folder.history)
        if self.store is not None:
            check_store(self.store, folder.run, known=spec is not None)
        if self.fresh:
            folder.clear()
        with (
            imported_once(self.recipe, folder, watcher.say) as env,
            BackgroundCheck(folder, watcher.say, env) as check,
        ):
            spec = spec or new_spec(folder, self.recipe, watcher, check.preflight)
            caller = CallbackCaller(self.callbacks, folder.history)
            self._take_part(spec, caller.watching(watcher), check, env)
        if self.study is not None:
            tell(self.study, RunResult(folder).study())
        return caller

    def _take_part(
        self, spec: Spec, watcher: Watcher, check: BackgroundCheck, env: Mapping[str, str]
    ) -> None:
        """Open the run in its store, unless it is open, and take part in it to its end."""
        folder = self.folder
        recipe = load_recipe(spec.recipe, root=self.recipe.root)
        journal = Journal(folder.history)
        with ExitStack() as stack:
            key = _key(folder, self.store, old=bool(journal))
            if self.store is None:
                watcher.say("starting etcd")
                settings = stack.enter_context(EmbeddedEtcd(folder.etcd, key=key)).settings
            else:
                settings = replace(self.store, run_key=key)
            stack.enter_context(publish_endpoint(folder, settings))
            record = Record(stack.enter_context(closing(EtcdStore(settings))), folder.run, key)
            if key is not None and key.file == folder.new_key:
                settings = replace(settings, run_key=_sign(folder, record, journal))
            if _open(record, spec, journal):
                nodes = counted(recipe.nodes.min, "node")
                watcher.say(f"starting {nodes} (importing torch takes a few seconds)")
            else:
                spec = recheck(spec, recipe, record.state(), watcher, check.preflight)
                OperatorLedger(record).replace_spec(spec)
                write_spec(folder, spec)
                OperatorLedger(record).release_nodes()
                watcher.say(f"starting {counted(recipe.nodes.min, 'node')} again")
            if not settings.loopback:
                watcher.say(f"other machines join by: {_join_command(folder, settings)}")
            agents = LocalAgents(
                folder.run,
                folder,
                settings,
                [f"node-{i}" for i in range(recipe.nodes.min)],
                ranks=recipe.node.ranks,
                grace=self.grace,
                since=record.now(),
                say=watcher.say,
                env=env,
            )
            nodes_work = NodeHealthCheck(agents)

            def stop_condition(events: list[Event], state: State) -> None:
                check.poll(state)
                nodes_work(events, state)

            loggers = Loggers(recipe, spec, folder, env)
            take_part(record, recipe, journal, agents, loggers, watcher, stop_condition)


def _key(folder: RunFolder, store: StoreSettings | None, old: bool) -> RunKey | None:
    """The key with which the run is signed; ``None`` in a trusted etcd, unless a key is given. An ``old`` run
    without a key gets a new one, which becomes the run's key once all its records are signed."""
    given = store.run_key if store is not None else None
    if given is None and store is not None and store.trusted:
        return None
    given = given or RunKey.from_env(os.environ)
    if given is not None:
        return given.kept_in(folder.key)
    return RunKey.kept(folder.new_key if old and not folder.key.exists() else folder.key)


def _join_command(folder: RunFolder, settings: StoreSettings) -> str:
    """The command that lets another machine join. The key comes by ssh, so that no log contains it."""
    key = f"CEREBRO_RUN_KEY=$(ssh {socket.gethostname()} cat {folder.key}) " if settings.run_key else ""
    return f"{key}cerebro join {folder.run} --etcd {','.join(settings.endpoints)}"


def _sign(folder: RunFolder, record: Record, journal: Journal) -> RunKey:
    OperatorLedger(record).sign_all()
    journal.resume(record.read(), afresh=True)  # revisions are others now
    folder.new_key.rename(folder.key)
    return RunKey.read(folder.key)


def _open(record: Record, spec: Spec, journal: Journal) -> bool:
    """Open the run in the store. Returns whether it begins now; else an earlier start has opened it."""
    if journal and record.spec() is None:
        raise RunError(
            f"run {record.keys.run!r} has begun, but in another store than this, which does not know it: "
            "give the --etcd with which it was started, or start it anew with --fresh"
        )
    begins, known = OperatorLedger(record).open_run(spec), record.spec()
    if known is None or replace(known, code=spec.code) != spec:
        raise RunError(
            f"the store at hand already has a run {record.keys.run!r} that was started elsewhere; "
            "choose another id with --run-id"
        )
    return begins
