"""``cerebro extend``: lets a run that has ended go on, with more epochs or more configs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

from cerebro_elastic.config import GRACE, StoreSettings
from cerebro_elastic.core.model.run import Extension, Spec
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.attach import with_key
from cerebro_elastic.runs.callbacks import RunCallback
from cerebro_elastic.runs.extension import Wish, extended
from cerebro_elastic.runs.live import Watcher
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.start.imports import SharedImports
from cerebro_elastic.runs.start.launch import Launch
from cerebro_elastic.runs.start.lengths import check_lengths
from cerebro_elastic.runs.start.prepare_run import (
    agreement,
    check_code,
    extend_in_store,
    has_ended,
    refuse_other_code,
)
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.words import counted


def extend(
    result: RunResult,
    wish: Wish,
    *,
    grace: float = GRACE,
    callbacks: Sequence[RunCallback] = (),
    watcher: Watcher | None = None,
    imports: SharedImports | None = None,
    agrees: Callable[[str], bool] = refuse_other_code,
) -> RunResult:
    """``Run.extend``, of a ``result``. ``imports`` have begun; by default new ones are begun here."""
    watcher = watcher or Watcher()
    recipe = result.spec.load_recipe()
    shared = shared_store(result)
    after = planned(result, wish)
    if shared is None:
        check_code(after, result.view.state, agrees)
    watcher.say(_text(after.extensions[-1]))
    if shared is not None:
        with closing(EtcdStore(shared)) as etcd:
            extend_in_store(Record(etcd, result.run, shared.run_key), after)
        watcher.say(HOSTS_GO_ON.format(run=result.run))
        return result.now()
    agreed = agreement(changed_code=True)
    launch = Launch(recipe, result.folder, grace=grace, callbacks=callbacks, extended=after, agrees=agreed)
    return launch(watcher, imports)


HOSTS_GO_ON = "run {run!r} goes on once its hosts are started again, each with the command of before"


def shared_store(result: RunResult) -> StoreSettings | None:
    """The etcd that hosts of the run share; ``None`` if it has one of its own."""
    recipe = result.recipe
    if result.store is not None or recipe.etcd is None:
        return result.store
    return with_key(StoreSettings.at(recipe.etcd), result.run, result.folder.path.parent)


def planned(result: RunResult, wish: Wish) -> Spec:
    """The spec of the run after the extension that is wished for. All is checked that can be, with torch in a
    process of its own, and nothing is changed. Raises ``RunError`` as ``Run.extend``."""
    if not has_ended(result.view.state, result.spec):
        raise RunError(
            f"run {result.run!r} has not ended: only then can it be extended; if nobody runs it, the command "
            "that started it goes on with it"
        )
    after = extended(result, wish)
    configs = result.view.state.configs
    going_on = {name: configs[name] for name in after.extensions[-1].configs}
    check_lengths(result.spec, going_on, after.plan.epochs)
    return after


def _text(extension: Extension) -> str:
    configs = list(extension.configs)
    more = ", ".join(f"{key}: {value} before" for key, value in extension.recipe_before.items())
    shown = f" ({', '.join(configs[:8])}{', ...' if len(configs) > 8 else ''})" if configs else ""
    return f"extending the run; {more or 'same recipe'}; {counted(len(configs), 'config')} to go on{shown}"
