"""Continues a run that has ended, or whose configs have failed.

``extend`` gives an ended run more epochs or more configs. ``retry`` trains failed configs again, from their
last checkpoints or from the start, with the present code:

- In a live run each is resumed by its own transaction.
- An ended run is extended only by them (``RunExtended``), and continues.
- A run that is neither ended nor live continues, and they are resumed with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from cerebro_elastic.config import GRACE, StoreSettings
from cerebro_elastic.core.history.lineage import may_go_on, tried_again
from cerebro_elastic.core.model.run import Extension, Spec
from cerebro_elastic.errors import RunError
from cerebro_elastic.registry import users_file
from cerebro_elastic.runs.arguments import Extend
from cerebro_elastic.runs.attach import live_run, record_in
from cerebro_elastic.runs.callbacks import RunCallback
from cerebro_elastic.runs.controlled import ControlledRun
from cerebro_elastic.runs.extension import extended, failed_configs, retried
from cerebro_elastic.runs.folder import etcd_folder, known_key
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.start.heads import check_heads
from cerebro_elastic.runs.start.imports import SharedImports
from cerebro_elastic.runs.start.launch import Launch
from cerebro_elastic.runs.start.prepare_run import (
    agreement,
    check_code,
    extend_in_store,
    recheck,
    refuse_other_code,
)
from cerebro_elastic.runs.terminal_view import Watcher
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.ledger.operators import OperatorLedger
from cerebro_elastic.system.files import here
from cerebro_elastic.system.words import counted, option, some_of
from cerebro_elastic.worker.rendezvous.compatibility import changed_code


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms on which a run continues."""

    grace: float = GRACE
    """Seconds that nodes have to leave."""
    callbacks: Sequence[RunCallback] = ()
    """They are called when a unit, an epoch and the run have ended."""
    watcher: Watcher = field(default_factory=Watcher)
    """It gets lines of text and the run's state."""
    imports: SharedImports | None = None
    """Imports that have begun; ``None``: new ones are begun."""
    agrees: Callable[[str], bool] = refuse_other_code
    """It is asked whether configs continue although the code has changed since they were trained."""

    def go_on(
        self, result: RunResult, extended: Spec | None, retried: Sequence[str] = (), by: str = ""
    ) -> RunResult:
        """Continue a run of this machine in this process, to its end. Changed code was agreed to."""
        launch = Launch(
            result.spec.load_recipe(),
            result.folder,
            grace=self.grace,
            callbacks=self.callbacks,
            extended=extended,
            agrees=agreement(changed_code=True),
            retried=retried,
            by=by,
        )
        return launch(self.watcher, self.imports)

    def leave_to_hosts(self, result: RunResult) -> RunResult:
        """Report that a run of a shared etcd, in which everything is written, waits for its hosts."""
        self.watcher.say(
            f"run {result.run!r} goes on once its hosts are started again, each with the command of before"
        )
        return result.now()


def extend(result: RunResult, wish: Extend, terms: Terms) -> RunResult:
    """``Run.extend``, of a ``result``."""
    after = planned(result, wish)
    with etcd_of_hosts(result) as shared:
        if shared is not None:
            terms.watcher.say(_text(after.extensions[-1]))
            with record_in(shared, result.run) as record:
                extend_in_store(record, after)
            return terms.leave_to_hosts(result)
    check_code(after, result.view.state, terms.agrees)
    terms.watcher.say(_text(after.extensions[-1]))
    return terms.go_on(result, after)


@contextmanager
def etcd_of_hosts(result: RunResult) -> Iterator[StoreSettings | None]:
    """In the block: the etcd that hosts of the run share; ``None`` if the run has its own. If its data are in
    this home (``cerebro etcd``, ``torchx run``) it is served for the block."""
    home = result.folder.path.parent
    data = etcd_folder(result.run, home) / "data"
    if result.shared_store is not None or result.folder.etcd.exists() or not data.exists():
        yield result.shared_store
        return
    with EmbeddedEtcd(data, known_key(result.run, home)) as etcd:
        yield etcd.settings


def planned(result: RunResult, wish: Extend) -> Spec:
    """The spec of the run after the wished extension. Everything that can be is checked, with torch in its
    own process, and nothing is changed. Raises ``RunError`` as ``Run.extend``."""
    if not result.ended:
        raise RunError(
            f"run {result.run!r} has not ended: only then can it be extended; if nobody runs it, the command "
            "that started it goes on with it"
        )
    after = extended(result, wish)
    _refuse_past_deadline(after, "give one that is to come as well")
    configs = result.view.state.configs
    check_heads(result.run, [configs[name] for name in after.extensions[-1].configs])
    return after


def _refuse_past_deadline(after: Spec, advice: str) -> None:
    """Raise ``RunError`` if nothing would be trained: the deadline is past."""
    budget = after.load_recipe().search.budget
    if budget.until is not None and budget.until <= time.time():
        raise RunError(
            f"the deadline of run {after.plan.run!r}, {budget.deadline}, is past: {advice}, "
            f"{option('budget')} deadline=2026-12-01T08:00"
        )


def _text(extension: Extension) -> str:
    configs = list(extension.configs)
    more = ", ".join(f"{key}: {value} before" for key, value in extension.recipe_before.items())
    shown = f" ({some_of(configs, 8)})" if configs else ""
    longer = "epochs" in extension.recipe_before
    resumed = (
        ", as a resumed fit does (a schedule made for the former number of epochs stays as it was)"
        if longer
        else ""
    )
    going_on = f"{counted(len(configs), 'config')} to go on{shown}{resumed}"
    return f"extending the run; {more or 'same recipe'}; {going_on}"


def retry(run: ControlledRun, configs: Sequence[str], by: str, terms: Terms) -> RunResult:
    """``Run.retry``, of a ``run``."""
    watcher, status = terms.watcher, run.status()
    if status.live and (run.store is None or status.nodes):
        names = resume_failed(run, configs, by)
        watcher.say(f"{_listed(names)} will be tried again: run {run.id!r} goes on with them")
        return run.result
    result = run.result
    spec, state, ended = result.spec, result.view.state, result.ended
    names = failed_configs(run.id, state, configs)
    after = planned_retry(result, names, by) if ended else spec
    # Configs that an extension continues are resumed by themselves.
    extension = after.extensions[-1] if after.extensions else None
    resumed = [name for name in names if not may_go_on(state.configs[name], extension)]
    with etcd_of_hosts(result) as shared:
        if shared is not None:
            watcher.say(f"{_listed(names)} will be tried again")
            _write_for_hosts(result, after, shared, resumed, by, watcher)
            return terms.leave_to_hosts(result)
    check_code(after, state, terms.agrees, resumed)
    watcher.say(f"{_listed(names)} will be tried again")
    return terms.go_on(result, after if ended else None, resumed, by)


def planned_retry(result: RunResult, names: Sequence[str], by: str) -> Spec:
    """The spec of an ended run after the retry. Everything that can be is checked without its code. Raises
    ``RunError`` as ``Run.retry``."""
    state = result.view.state
    after = retried(result.spec, state, names, by)
    _refuse_past_deadline(after, "extend the run first by one that is to come")
    check_heads(result.run, [state.configs[name] for name in names])
    return after


def resume_failed(run: ControlledRun, configs: Sequence[str], by: str) -> list[str]:
    """Have failed configs of a live run tried again. Returns their names.

    Raises:
        RunError: The run is not live, or none of its configs has failed, or the code has changed since it
            started: its processes have imported the former code.
    """
    with live_run(*run.live_place()) as (record, spec):
        names = failed_configs(run.id, record.state(), configs)
        other = changed_code(spec, package=False) if run.store is None else ()
        # The user's files here that differ from the run's.
        if changed := [name for name in other if users_file(name, Path(here(spec.root)))]:
            raise RunError(
                f"{', '.join(changed)} has changed since run {run.id!r} was started, and its processes go on "
                "with what they have imported: stop the run, and then have the configs tried again"
            )
        for name in names:
            OperatorLedger(record).resume(name, tried_again(by))
        return names


def _write_for_hosts(
    result: RunResult, after: Spec, shared: StoreSettings, resumed: Sequence[str], by: str, watcher: Watcher
) -> None:
    """Write to the etcd of hosts that start later: the continuing configs, and the code of this machine."""
    with record_in(shared, result.run) as record:
        operator = OperatorLedger(record)
        checked = recheck(after, result.recipe, record.state(), watcher, retried=resumed)
        if after.extensions:
            after = extend_in_store(record, after)
        operator.replace_spec(replace(after, code=checked.code))
        for name in resumed:
            operator.resume(name, tried_again(by))


def _listed(names: Sequence[str]) -> str:
    return f"{counted(len(names), 'failed config')} ({some_of(names, 8)})"
