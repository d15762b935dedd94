"""``cerebro run``: a whole run on this machine, from a recipe to its result; or the rest of one."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cerebro_elastic import __version__
from cerebro_elastic.config import StoreSettings
from cerebro_elastic.controller.controller import Controller, Deposed
from cerebro_elastic.core.codec import encode
from cerebro_elastic.core.events import Event, RunEnded, UnitFailed
from cerebro_elastic.core.ports import Policy, Search
from cerebro_elastic.core.state import State
from cerebro_elastic.core.values import FailureKind, Plan, Spec, Status
from cerebro_elastic.errors import DataError, DiskFull, LeaseLost, RunError
from cerebro_elastic.recipes import Recipe, differences, load_recipe
from cerebro_elastic.registry import load
from cerebro_elastic.report.curves import write_curves
from cerebro_elastic.runs.agents import LocalAgents
from cerebro_elastic.runs.folder import RunFolder, run_folder
from cerebro_elastic.runs.preflight import preflight
from cerebro_elastic.runs.result import RunResult
from cerebro_elastic.store.embedded import EmbeddedEtcd
from cerebro_elastic.store.etcd import EtcdStore
from cerebro_elastic.store.journal import Journal, read_journal
from cerebro_elastic.store.lease import LeaseKeeper
from cerebro_elastic.store.ledger import Ledger

LEASE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Watcher:
    """What a run tells while it goes on: steps on the way, and the state about twice a second and after
    each event."""

    say: Callable[[str], None] = lambda _text: None
    show: Callable[[list[Event], State], None] = lambda _events, _state: None


def run(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *,
    run_id: str | None = None,
    home: str | Path | None = None,
    fresh: bool = False,
    store: StoreSettings | None = None,
    watcher: Watcher | None = None,
    **overrides: Any,
) -> RunResult:
    """Run a recipe on this machine and return its result; an unfinished run of the same id and
    recipe goes on where it stood.

    ``overrides`` replace the recipe's values (``epochs=2``). ``run_id`` is by default the recipe's
    name, ``home`` the folder of runs (``$CEREBRO_HOME``, else ``./runs``). ``fresh`` throws away what
    a run of this id has left. ``store`` is an etcd to use instead of an embedded one.

    Raises ``RecipeError`` or another ``CerebroError`` before anything is started if something is
    wrong; ``KeyboardInterrupt`` stops all processes cleanly, and the run can go on later.
    """
    checked = load_recipe(recipe, **overrides)
    folder = run_folder(checked.name if run_id is None else run_id, home)
    watcher = watcher or Watcher()
    with folder.locked():
        spec = None if fresh else _old_spec(folder, checked)
        if spec is not None and _ended(folder):
            watcher.say(f"run {folder.run!r} has ended before; to run it again: --fresh, or another --run-id")
        else:
            if store is not None:
                _check_store(store, folder.run, known=spec is not None)
            if fresh:
                folder.throw_away()
            _Live(folder, checked, spec or _new_spec(folder, checked, watcher), store, watcher).run()
        result = RunResult(folder)
        write_curves(result.leaderboard, folder.curves)
    return result


def make_search(recipe: Recipe) -> Search:
    """The recipe's search procedure."""
    search: Search = load("cerebro.search", recipe.search.method)(recipe)
    return search


class _Live:
    """A run while its processes are there."""

    def __init__(
        self, folder: RunFolder, recipe: Recipe, spec: Spec, store: StoreSettings | None, watcher: Watcher
    ) -> None:
        self._folder = folder
        self._recipe = recipe
        self._spec = spec
        self._store = store
        self._watcher = watcher
        self._journal = Journal(folder.history)

    def run(self) -> None:
        with ExitStack() as stack:
            settings = self._store or stack.enter_context(EmbeddedEtcd(self._folder.etcd)).settings
            stack.enter_context(_published(self._folder, settings))
            store = EtcdStore(settings)
            stack.callback(store.close)
            ledger = Ledger(store, self._folder.run)
            if not self._open(ledger):
                self._check_again(ledger.state())
            count = self._recipe.nodes.min
            agents = LocalAgents(self._folder, settings, count, self._recipe.node.ranks)
            self._watcher.say(f"starting {count} nodes (importing torch takes a few seconds)")
            stack.enter_context(agents)
            self._control(ledger, agents)

    def _open(self, ledger: Ledger) -> bool:
        """Whether the run begins now; else the store knows it from an earlier start."""
        begins = ledger.open(self._spec)
        if not begins and ledger.spec() != self._spec:
            raise RunError(
                f"the store at hand already has a run {self._folder.run!r} that was started elsewhere; "
                "choose another id with --run-id"
            )
        return begins

    def _check_again(self, state: State) -> None:
        """Whether a run can go on: its code, its data, and the checkpoints that it goes on with (which
        change under the eyes if there are nodes)."""
        self._watcher.say("checking the module, the data and the checkpoints")
        live = [config for config in state.configs.values() if config.status is Status.LIVE]
        heads = [config.head for config in live if config.head and not state.nodes]
        found = preflight(
            self._recipe, [c.hparams for c in live], self._spec.data, prepare=False, heads=heads
        )
        if found.data_digest != self._spec.data_digest:
            raise DataError(
                f"the data at {self._spec.data} have digest {found.data_digest}, the run began with "
                f"{self._spec.data_digest}: restore them, or start a new run with another --run-id"
            )
        if found.code_digest != self._spec.code_digest:
            self._watcher.say(
                f"note: the code in {self._recipe.root} is not that with which the run began; it goes on "
                "with the new one, and `cerebro replay` will find visits that differ"
            )

    def _control(self, ledger: Ledger, agents: LocalAgents) -> None:
        name = f"{socket.gethostname()}-{uuid.uuid4().hex[:6]}"
        policy: Policy = load("cerebro.schedulers", self._recipe.scheduler)()
        while True:
            try:
                self._lead(ledger, agents, name, policy)
                break
            except (Deposed, LeaseLost) as error:  # as after a suspension of this process
                self._watcher.say(f"{error}: standing for election again")
        agents.wait(5.0)

    def _lead(self, ledger: Ledger, agents: LocalAgents, name: str, policy: Policy) -> None:
        """Lead from the election to the run's end."""
        search = make_search(self._recipe)
        with LeaseKeeper(ledger.store, LEASE_SECONDS) as keeper:
            leader = self._elected(ledger, name, keeper)
            with Controller(
                ledger, policy, search, name=name, leader=leader, observe=self._observe
            ) as controller:
                self._journal.catch_up(ledger, controller.state, leader)
                while controller.state.outcome is None:
                    if not controller.step(0.5):
                        agents.check()
                    self._watcher.show([], controller.state)

    def _elected(self, ledger: Ledger, name: str, keeper: LeaseKeeper) -> int:
        """Wait until nobody else leads: a killed controller's lease has to run out first."""
        while True:
            snapshot = ledger.store.range(ledger.keys.leader)
            leader = ledger.lead(name, keeper.lease)
            if leader is not None:
                return leader
            self._watcher.say("another controller leads the run: waiting for its lease to run out")
            with ledger.store.watch(ledger.keys.leader, snapshot.revision + 1) as watch:
                watch.next(LEASE_SECONDS)

    def _observe(self, events: list[Event], state: State) -> None:
        self._journal.append(events)
        self._watcher.show(events, state)
        for event in events:
            if isinstance(event, UnitFailed) and event.failure.kind is FailureKind.DISK_FULL:
                raise DiskFull(event.failure.story)


def _old_spec(folder: RunFolder, recipe: Recipe) -> Spec | None:
    """The spec of the run that this folder holds, if it is of the same recipe."""
    if not folder.spec.exists():
        return None
    spec = folder.read_spec()
    if spec.recipe_digest != recipe.digest:
        changed = "\n".join(f"  {line}" for line in differences(spec.recipe, recipe.resolved()))
        raise RunError(
            f"run {folder.run!r} exists with another recipe:\n{changed}\n"
            "go on with the old recipe, choose another id with --run-id, or start anew with --fresh"
        )
    return spec


def _new_spec(folder: RunFolder, recipe: Recipe, watcher: Watcher) -> Spec:
    """Check everything that can be checked, prepare the data, and write the spec's copy: from then on the
    folder holds a run."""
    watcher.say("checking the recipe, the module and the data")
    hparams = make_search(recipe).propose(())
    url = recipe.data.url
    found = preflight(recipe, hparams, url or str(folder.data), prepare=url is None)
    plan = Plan(
        run=folder.run,
        partitions=found.partitions,
        epochs=recipe.epochs,
        evaluations=found.validations if recipe.validation == "evaluate" else 0,
        min_nodes=recipe.nodes.min,
        max_nodes=recipe.nodes.max,
        tries=recipe.limits.tries,
        seed=recipe.seed,
    )
    spec = Spec(
        plan=plan,
        recipe=recipe.resolved(),
        recipe_digest=recipe.digest,
        data=found.data,
        data_digest=found.data_digest,
        root=str(recipe.root),
        code_digest=found.code_digest,
        storage=(recipe.checkpoints or str(folder.path)).rstrip("/"),
        version=__version__,
    )
    temporary = folder.spec.with_suffix(".tmp")
    temporary.write_text(encode(spec))
    temporary.replace(folder.spec)
    return spec


def _ended(folder: RunFolder) -> bool:
    """Whether the history says that the run has ended."""
    if not folder.history.exists():
        return False
    return any(isinstance(event, RunEnded) for event in read_journal(folder.history))


def _check_store(settings: StoreSettings, run: str, *, known: bool) -> None:
    """Before anything is prepared: the store answers, lets us in, and has no run of this id that is not
    the one in the folder."""
    with closing(EtcdStore(settings)) as store:
        ledger = Ledger(store, run)
        if ledger.spec() is not None and not known:
            raise RunError(
                f"the store at {', '.join(settings.endpoints)} already has a run {run!r} that this folder "
                "knows nothing of: choose another id with --run-id, or remove it there with "
                f"`etcdctl del --prefix {ledger.keys.prefix}`"
            )


@contextmanager
def _published(folder: RunFolder, settings: StoreSettings) -> Iterator[None]:
    """Say in the folder where the run's store is, as long as it is there."""
    folder.endpoint.write_text(",".join(settings.endpoints))
    try:
        yield
    finally:
        folder.endpoint.unlink(missing_ok=True)
