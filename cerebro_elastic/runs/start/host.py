"""``cerebro host``: one of several machines that a scheduler starts with the same command.

The first one opens the run, the others wait for that and join it; all may lead it.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cerebro_elastic.config import GRACE, StoreSettings
from cerebro_elastic.core.history.keys import Keys
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.errors import CerebroError, RunError, StoreRefused
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.recipes.fields import MOST_NODES, NodeRange
from cerebro_elastic.recipes.references import check_named
from cerebro_elastic.runs.attach import known_spec, with_key
from cerebro_elastic.runs.folder import RunFolder, etcd_folder, run_folder
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.start.imports import SharedImports
from cerebro_elastic.runs.start.join import join_as
from cerebro_elastic.runs.start.machine import accelerators_of
from cerebro_elastic.runs.start.participate import present
from cerebro_elastic.runs.start.places import check_places
from cerebro_elastic.runs.start.preflight import preflight
from cerebro_elastic.runs.start.prepare_run import check_same, ended_in, gone_on, new_spec
from cerebro_elastic.runs.start.room import check_count, check_part
from cerebro_elastic.runs.terminal_view import Watcher
from cerebro_elastic.store.client.base import Put, Store
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.client.lease import lock
from cerebro_elastic.store.client.retrying import PATIENCE, RetryingStore
from cerebro_elastic.store.ledger.operators import OperatorLedger
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.files import check_own
from cerebro_elastic.system.logs import EventLog
from cerebro_elastic.system.run_key import RunKey

_ANOTHER = "choose another --run-id (by torchx: --run_id)"
ENDED = (
    "run {run!r} has ended; to go on with it: cerebro extend; to run the recipe again: another --run-id (by "
    "torchx: --run_id)"
)
"""The message on an ended ``run``."""
_REPORT_SECONDS = 10.0
"""Seconds for which a host's report of the run's end stays in etcd."""
_BRIEF_PATIENCE = 60.0
"""Seconds for which such a host waits for etcd, which it does not need itself."""


def host(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *,
    run_id: str | None = None,
    hosts: NodeRange | None = None,
    nodes: int | None = None,
    home: str | Path | None = None,
    store: StoreSettings | None = None,
    grace: float = GRACE,
    reuse: bool = False,
    watcher: Watcher | None = None,
    imports: SharedImports | None = None,
) -> RunResult:
    """Take part in the recipe's run with nodes of this machine, and open the run if no host has.

    An ended run is not run again: its result is read from the record on this machine, else from etcd.

    Args:
        recipe: A YAML file, a mapping, or a recipe.
        run_id: The run's id, by default the recipe's name.
        hosts: The least and the most such machines that take part. Together with ``nodes`` it replaces the
            recipe's ``nodes``; without ``nodes``, a run begins with as many nodes as the least number of
            hosts, and uses all that come.
        nodes: Number of nodes of this machine. By default one for each accelerator, or for each
            ``node.ranks`` of them; one without any.
        home: The folder of runs, by default ``$CEREBRO_HOME``, else ``./runs``.
        store: The run's etcd, by default the recipe's. It is waited for.
        grace: Seconds that the nodes have to leave when they are stopped.
        reuse: Whether the host that opens the run takes over results of earlier runs of its home.
        watcher: It gets lines of text and the run's state, as the command line shows them.
        imports: Imports that have begun; by default new ones are begun here.

    Raises:
        CerebroError: The recipe, the data or this machine are wrong.
    """
    if nodes is not None:
        check_count(nodes)
    # At once: the recipe's gangs may need that many.
    checked = load_recipe(recipe, **({} if hosts is None else {"nodes": nodes_of_hosts(hosts, nodes)}))
    if store is None:
        store = StoreSettings.at(_etcd_of(checked))
    folder = run_folder(checked.name if run_id is None else run_id, home)
    watcher = watcher or Watcher()
    if not folder.history.exists():
        check_named(checked)
        check_places(checked)
    with imports or SharedImports() as imports:
        accelerators = accelerators_of(checked, imports.agents)
        part = accelerators.nodes_of(checked) if nodes is None else nodes
        check_part(checked, part, accelerators)  # before anything is opened; joining gives its notes
        if os.path.lexists(folder.path):
            check_own(folder.path)
        if folder.history.exists() and not folder.is_locked():
            ended = ended_in(folder)
            try:
                _check_own(folder, checked, ended=ended)
            except CerebroError:
                _report_end(store, folder, home, ended=False)
                raise
            if ended and gone_on(folder, with_key(store, folder.run, home)) is None:
                watcher.say(ENDED.format(run=folder.run))
                _report_end(store, folder, home, ended=True)
                return RunResult(folder)
        waiting = _WaitingLog(watcher.say)
        _await(store, folder, PATIENCE, waiting)
        # The etcd's server has made the key by now.
        store = with_key(store, folder.run, home)
        patient = RetryingStore(EtcdStore(store), PATIENCE, waiting)
        with closing(patient), present(Record(patient, folder.run)):
            _open(patient, store, folder, checked, reuse, watcher, imports)
            store = with_key(store, folder.run, home)  # perhaps of another host, in a shared folder
            record = Record(patient, folder.run, store.run_key)
            record.check_signed(store.trusted)
            check_hosts_recipe(known_spec(record, store), checked)
            if record.ended():
                watcher.say(ENDED.format(run=folder.run))
                return RunResult(folder, store)
            return join_as(
                part, None, folder.run, store, home=home, grace=grace, watcher=watcher, imports=imports
            )


def nodes_of_hosts(hosts: NodeRange, nodes: int | None) -> str:
    """The recipe's ``nodes``: for these hosts with ``nodes`` nodes each, or, if each has one per device, at
    least as many nodes as hosts."""
    return str(NodeRange(hosts.min, MOST_NODES)) if nodes is None else hosts.times(nodes)


def _etcd_of(recipe: Recipe) -> str:
    if recipe.etcd is None:
        raise RunError(
            "no etcd is named, by which the hosts of a run find each other: give --etcd HOST:PORT, or `etcd` "
            "in the recipe"
        )
    return recipe.etcd


def _check_own(folder: RunFolder, recipe: Recipe, *, ended: bool) -> None:
    """Raise ``RunError`` unless the run in this machine's folder is the recipe's, and hosts can continue
    it."""
    if ended:
        check_hosts_recipe(folder.read_spec(), recipe)
    elif folder.etcd.exists():
        raise RunError(
            f"{folder.path} holds a run {folder.run!r} that `cerebro run` began with an etcd of its own, and "
            f"that has not ended: `cerebro run RECIPE --run-id {folder.run}` goes on with it; to run the "
            f"recipe anew, {_ANOTHER}"
        )


def _report_end(store: StoreSettings, folder: RunFolder, home: str | Path | None, *, ended: bool) -> None:
    """Report to an etcd that serves only this run that this host has come and gone, and whether the run has
    ended by its record, so that the etcd does not wait for hosts for ever. A failure is not an error."""
    key = RunKey.from_env(os.environ)
    file = etcd_folder(folder.run, home) / "key"
    with suppress(CerebroError):
        _await(store, folder, _BRIEF_PATIENCE, EventLog(run=folder.run))
        if key is None and file.exists():
            key = RunKey.read(file)
        with closing(EtcdStore(store if store.trusted else replace(store, run_key=key))) as etcd:
            report = json.dumps({"host": socket.gethostname(), "ended": ended}).encode()
            lease = etcd.grant(_REPORT_SECONDS)
            etcd.txn([], [Put(Keys(folder.run).hosts + uuid.uuid4().hex, report, lease)])
            if not ended:  # this host takes no part: the etcd need not wait for it
                etcd.revoke(lease)


class _WaitingLog(EventLog):
    """Reports waits to the person who started the host."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say

    def warning(self, event: str, **fields: Any) -> None:
        self._say(f"{event}, up to {fields['patience']:g} s: {fields['why']}")

    def info(self, event: str, **fields: Any) -> None:
        self._say(f"{event}, after {fields['seconds']:g} s")


def _await(store: StoreSettings, folder: RunFolder, patience: float, log: EventLog) -> None:
    """Wait until etcd answers, even with a refusal: the run's key may not be here yet."""
    bare = replace(store, user=None, password=None, run_key=None)
    patient = RetryingStore(EtcdStore(bare), patience, log)
    with closing(patient), suppress(StoreRefused):
        patient.get(Keys(folder.run).spec)


def _open(
    store: Store,
    settings: StoreSettings,
    folder: RunFolder,
    recipe: Recipe,
    reuse: bool,
    watcher: Watcher,
    imports: SharedImports,
) -> None:
    """Open the run, unless a host has done so or does so now; with a new key, if the etcd needs one."""
    keys = Keys(folder.run)
    if store.get(keys.spec) is not None:
        return
    waiting = partial(watcher.say, "another host is opening the run")
    with lock(store, keys.opening, keys.spec, waiting) as needed:
        if not needed:
            return
        with folder.locked():
            _check_new(folder)
            env = imports.load(recipe, folder, watcher.say)
            if recipe.nodes.auto:  # a different number for each host
                recipe = load_recipe(recipe, nodes=nodes_of_hosts(NodeRange(1, 1), None))
            spec = new_spec(folder, recipe, watcher, partial(preflight, env=env), reuse=reuse)
            key = settings.run_key
            if key is not None:
                key = key.kept_in(folder.key)
            elif not settings.trusted:
                key = RunKey.kept(folder.key)
            OperatorLedger(Record(store, folder.run, key)).open_run(spec)


def _check_new(folder: RunFolder) -> None:
    if folder.history.exists():
        raise RunError(
            f"{folder.path} holds a run {folder.run!r} that the etcd at hand does not know: name the etcd "
            "with which it was started, or if that is lost restore it by "
            f"`cerebro etcd {folder.run} --restore`; {_ANOTHER}, or remove the folder"
        )


def check_hosts_recipe(spec: Spec, recipe: Recipe) -> None:
    """Raise ``RunError`` unless ``recipe`` is that of the run."""
    opened = f"run {spec.plan.run!r} was opened with"
    check_same(spec, recipe, opened, f"give all hosts the same, or {_ANOTHER}")
