"""``cerebro run``: a whole run on this machine, from a recipe to its result; or the rest of one."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from cerebro_elastic.config import GRACE, StoreSettings
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.values import Spec
from cerebro_elastic.errors import RunError
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.reporting.curves import write_curves
from cerebro_elastic.run_key import RunKey
from cerebro_elastic.runs.attach import store_at
from cerebro_elastic.runs.folder import RunFolder, run_folder
from cerebro_elastic.runs.live import Watcher
from cerebro_elastic.runs.logging.loggers import Loggers
from cerebro_elastic.runs.results.report import write_report
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.start.agents import Judge, LocalAgents
from cerebro_elastic.runs.start.beside import BackgroundCheck
from cerebro_elastic.runs.start.imports import imported_once
from cerebro_elastic.runs.start.participate import published, take_part
from cerebro_elastic.runs.start.prepare_run import (
    check_again,
    check_store,
    ended_in,
    keep_spec,
    new_spec,
    old_spec,
)
from cerebro_elastic.search.studies import is_study, section_of, tell
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.ledger.journal import Journal
from cerebro_elastic.store.ledger.ledger import Ledger
from cerebro_elastic.words import counted


def run(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *,
    run_id: str | None = None,
    home: str | Path | None = None,
    fresh: bool = False,
    store: StoreSettings | None = None,
    grace: float = GRACE,
    watcher: Watcher | None = None,
    **overrides: Any,
) -> RunResult:
    """Run a recipe on this machine and return its result; an unfinished run of the same id and
    recipe goes on where it stood.

    ``overrides`` replace the recipe's values (``epochs=2``); ``search`` may be an ``optuna.Study``: its
    sampler, pruner and enqueued trials are used, and the configs become trials of it. ``run_id`` is by
    default the recipe's name, ``home`` the folder of runs (``$CEREBRO_HOME``, else ``./runs``). ``fresh``
    throws away what a run of this id has left. ``store`` is an etcd to use instead of the recipe's, or of an
    embedded one. ``grace`` is how many seconds the nodes have to leave when the run is stopped.

    Raises ``RecipeError`` or another ``CerebroError`` before anything is started if something is
    wrong, and ``RunError`` when no node can work any more; ``KeyboardInterrupt`` stops all processes
    cleanly. The run can go on later.
    """
    study = overrides.get("search") if is_study(overrides.get("search")) else None
    if study is not None:
        rest = {key: value for key, value in overrides.items() if key != "search"}
        overrides["search"] = section_of(study, load_recipe(recipe, **rest).objective)
    checked = load_recipe(recipe, **overrides)
    folder = run_folder(checked.name if run_id is None else run_id, home)
    watcher = watcher or Watcher()
    if store is None and checked.etcd is not None:
        store = store_at(checked.etcd)
    with folder.locked():
        spec = None if fresh else old_spec(folder, checked)
        if spec is not None and ended_in(folder):
            watcher.say(f"run {folder.run!r} has ended before; to run it again: --fresh, or another --run-id")
        else:
            if store is not None:
                check_store(store, folder.run, known=spec is not None)
            if fresh:
                folder.throw_away()
            with imported_once(checked, folder), BackgroundCheck(folder, watcher.say) as beside:
                spec = spec or new_spec(folder, checked, watcher, beside.preflight)
                again = load_recipe(spec.recipe, root=checked.root)
                _go_on(folder, again, spec, store, grace, watcher, beside)
            if study is not None:
                tell(study, RunResult(folder).study())
        result = RunResult(folder)
        write_curves(result.leaderboard, folder.curves)
        write_report(result)
    return result


def _go_on(
    folder: RunFolder,
    recipe: Recipe,
    spec: Spec,
    store: StoreSettings | None,
    grace: float,
    watcher: Watcher,
    beside: BackgroundCheck,
) -> None:
    """Open the run in its store, if it is not, and take part in it to its end."""
    journal = Journal(folder.history)
    with ExitStack() as stack:
        key = _key(folder, store, old=bool(journal))
        if store is None:
            watcher.say("starting etcd")
            settings = stack.enter_context(EmbeddedEtcd(folder.etcd, key=key)).settings
        else:
            settings = replace(store, run_key=key)
        stack.enter_context(published(folder, settings))
        ledger = Ledger(stack.enter_context(closing(EtcdStore(settings))), folder.run, key)
        if key is not None and key.file == folder.new_key:
            settings = replace(settings, run_key=_sign(folder, ledger, journal))
        if _open(ledger, spec, journal):
            nodes = counted(recipe.nodes.min, "node")
            watcher.say(f"starting {nodes} (importing torch takes a few seconds)")
        else:
            spec = check_again(spec, recipe, ledger.state(), watcher, beside.preflight)
            ledger.renew(spec)
            keep_spec(folder, spec)
            ledger.forgive()
            watcher.say(f"starting {counted(recipe.nodes.min, 'node')} again")
        if not settings.loopback:
            watcher.say(f"other machines join by: {_join_command(folder, settings)}")
        agents = LocalAgents(
            folder.run,
            folder,
            settings,
            [f"node-{i}" for i in range(recipe.nodes.min)],
            ranks=recipe.node.ranks,
            grace=grace,
            since=ledger.now(),
            say=watcher.say,
        )
        loggers = Loggers(recipe, spec, folder)
        judge = Judge(agents)

        def judged(events: list[Event], state: State) -> None:
            beside.look(state)
            judge(events, state)

        take_part(ledger, recipe, journal, agents, loggers, watcher, judged)


def _key(folder: RunFolder, store: StoreSettings | None, old: bool) -> RunKey | None:
    """The key with which the run is signed; none in an etcd that is trusted, unless one is given. A run of
    before there were keys (``old``, without one) gets a new one, which becomes its own when all is signed."""
    given = store.run_key if store is not None else None
    if given is None and store is not None and store.trusted:
        return None
    given = given or RunKey.from_env(os.environ)
    if given is not None:
        return given.kept_in(folder.key)
    return RunKey.kept(folder.new_key if old and not folder.key.exists() else folder.key)


def _join_command(folder: RunFolder, settings: StoreSettings) -> str:
    """What makes another machine join: the key comes by ssh, so that it is in no log."""
    key = f"CEREBRO_RUN_KEY=$(ssh {socket.gethostname()} cat {folder.key}) " if settings.run_key else ""
    return f"{key}cerebro join {folder.run} --etcd {','.join(settings.endpoints)}"


def _sign(folder: RunFolder, ledger: Ledger, journal: Journal) -> RunKey:
    ledger.sign()
    journal.resume(ledger.read(), afresh=True)  # revisions are others now
    folder.new_key.rename(folder.key)
    return RunKey.read(folder.key)


def _open(ledger: Ledger, spec: Spec, journal: Journal) -> bool:
    """Whether the run begins now; else the store knows it from an earlier start."""
    if journal and ledger.spec() is None:
        raise RunError(
            f"run {ledger.keys.run!r} has begun, but in another store than this, which does not know it: "
            "give the --etcd with which it was started, or start it anew with --fresh"
        )
    begins, known = ledger.open(spec), ledger.spec()
    if known is None or replace(known, code=spec.code) != spec:
        raise RunError(
            f"the store at hand already has a run {ledger.keys.run!r} that was started elsewhere; "
            "choose another id with --run-id"
        )
    return begins
