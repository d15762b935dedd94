"""``cerebro retry``: trains failed configs again, from their last checkpoints or from the start, with the
code as it is now.

- In a live run each is resumed by a transaction of its own.
- A run that has ended is extended by nothing but them (``RunExtended``), and goes on.
- A run that has neither ended nor is live goes on, and they are resumed when it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cerebro_elastic.config import GRACE, StoreSettings
from cerebro_elastic.core.history.lineage import may_go_on, tried_again
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.errors import RunError
from cerebro_elastic.registry import users_file
from cerebro_elastic.runs.attach import live_run
from cerebro_elastic.runs.callbacks import RunCallback
from cerebro_elastic.runs.extension import failed_configs, retried
from cerebro_elastic.runs.live import Watcher
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.start.extend import HOSTS_GO_ON, shared_store
from cerebro_elastic.runs.start.imports import SharedImports
from cerebro_elastic.runs.start.launch import Launch
from cerebro_elastic.runs.start.lengths import check_lengths
from cerebro_elastic.runs.start.prepare_run import (
    agreement,
    check_code,
    extend_in_store,
    has_ended,
    recheck,
    refuse_other_code,
)
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.ledger.operators import OperatorLedger
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.words import counted, one_line
from cerebro_elastic.worker.rendezvous.compatibility import changed_code

if TYPE_CHECKING:
    from cerebro_elastic.runs.run import Run


def retry(
    run: Run,
    configs: Sequence[str] = (),
    *,
    by: str = "",
    grace: float = GRACE,
    callbacks: Sequence[RunCallback] = (),
    watcher: Watcher | None = None,
    imports: SharedImports | None = None,
    agrees: Callable[[str], bool] = refuse_other_code,
) -> RunResult:
    """``Run.retry``, of a ``run``. ``imports`` have begun; by default new ones are begun here."""
    watcher, by, status = watcher or Watcher(), one_line(by), run.status()
    if status.live and (run.store is None or status.nodes):
        names = resume_failed(run, configs, by)
        watcher.say(f"{_listed(names)} will be tried again: run {run.id!r} goes on with them")
        return run.result
    result = run.result
    spec, state, shared = result.spec, result.view.state, shared_store(result)
    ended = has_ended(state, spec)
    names = failed_configs(run.id, state, configs)
    after = planned_retry(result, names, by) if ended else spec
    # Those that an extension lets go on do so by themselves.
    extension = after.extensions[-1] if after.extensions else None
    resumed = [name for name in names if not may_go_on(state.configs[name], extension)]
    if shared is None:
        check_code(after, state, agrees, resumed)
    watcher.say(f"{_listed(names)} will be tried again")
    if shared is not None:
        _write_for_hosts(result, after, shared, resumed, by, watcher)
        watcher.say(HOSTS_GO_ON.format(run=run.id))
        return result.now()
    launch = Launch(
        spec.load_recipe(),
        result.folder,
        grace=grace,
        callbacks=callbacks,
        extended=after if ended else None,
        agrees=agreement(changed_code=True),  # by now
        retried=resumed,
        by=by,
    )
    return launch(watcher, imports)


def planned_retry(result: RunResult, names: Sequence[str], by: str) -> Spec:
    """The spec of a run that has ended after the retry. All is checked that can be without its code. Raises
    ``RunError`` as ``Run.retry``."""
    state = result.view.state
    after = retried(result.spec, state, names, by)
    begun = {name: state.configs[name] for name in names if state.configs[name].head is not None}
    check_lengths(result.spec, begun, after.plan.epochs)
    return after


def resume_failed(run: Run, configs: Sequence[str], by: str) -> list[str]:
    """Have failed configs of a live run tried again. Returns their names.

    Raises:
        RunError: The run is not live, or none of its configs has failed, or the code has changed since it
            started: its processes have imported what was there then.
    """
    with live_run(*run.live_place()) as (record, spec):
        names = failed_configs(run.id, record.state(), configs)
        if run.store is None and (changed := _changed_files(spec)):
            raise RunError(
                f"{', '.join(changed)} has changed since run {run.id!r} was started, and its processes go on "
                "with what they have imported: stop the run, and then have the configs tried again"
            )
        for name in names:
            OperatorLedger(record).resume(name, tried_again(by))
        return names


def _changed_files(spec: Spec) -> list[str]:
    """The user's files that are here, but not as the run has imported them."""
    return [name for name in changed_code(spec, package=False) if users_file(name, Path(spec.root))]


def _write_for_hosts(
    result: RunResult, after: Spec, shared: StoreSettings, resumed: Sequence[str], by: str, watcher: Watcher
) -> None:
    """Write to the etcd of hosts that start later: what goes on, and with the code of this machine."""
    with closing(EtcdStore(shared)) as etcd:
        record = Record(etcd, result.run, shared.run_key)
        operator = OperatorLedger(record)
        checked = recheck(after, result.recipe, record.state(), watcher, retried=resumed)
        if after.extensions:
            after = extend_in_store(record, after)
        operator.replace_spec(replace(after, code=checked.code))
        for name in resumed:
            operator.resume(name, tried_again(by))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"{counted(len(names), 'failed config')} ({shown})"
