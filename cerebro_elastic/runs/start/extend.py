"""``cerebro extend``: lets a run that has ended go on, with more epochs or more configs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from cerebro_elastic.config import GRACE, StoreSettings
from cerebro_elastic.core.model.run import Extension, Spec
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.attach import with_key
from cerebro_elastic.runs.callbacks import RunCallback
from cerebro_elastic.runs.control.extension import Wish, extended
from cerebro_elastic.runs.live import Watcher
from cerebro_elastic.runs.results.result import RunResult, open_run
from cerebro_elastic.runs.start.imports import SharedImports
from cerebro_elastic.runs.start.launch import Launch
from cerebro_elastic.runs.start.lengths import check_lengths
from cerebro_elastic.runs.start.prepare_run import extend_in_store, has_ended
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.words import counted, one_line


def extend(
    run: str | Path,
    *,
    epochs: int | None = None,
    num: int | None = None,
    budget: Mapping[str, float] | None = None,
    configs: Sequence[str] = (),
    top: int | None = None,
    by: str = "",
    home: str | Path | None = None,
    store: StoreSettings | None = None,
    grace: float = GRACE,
    callbacks: Sequence[RunCallback] = (),
    watcher: Watcher | None = None,
    imports: SharedImports | None = None,
) -> RunResult:
    """Let a run that has ended go on, as if it had been that long from the start.

    A run with an etcd of its own goes on in this process, as by ``run``. One of a shared etcd goes on as soon
    as its hosts are started again, each with the same command as before.

    Args:
        run: The run's id, or its folder on this machine.
        epochs: The epochs of each config in all. Those that have used up theirs go on from their checkpoints.
        num: How many configs the search may propose in all.
        budget: Bounds of the recipe's ``search.budget`` by name, and their new values.
        configs: Only these configs get more epochs, also if the search or the task had stopped them.
        top: The number of best configs that get more epochs.
        by: The name of the person who requests it, for the record.
        home: The folder of runs, by default ``$CEREBRO_HOME``, else ``./runs``.
        store: The etcd of a run of other machines.
        grace: Seconds that the nodes have to leave when the run is stopped.
        callbacks: They are called when a unit, an epoch and the run have ended.
        watcher: It gets lines of text and the run's state, as the command line shows them.
        imports: What the run's processes share and has begun; by default it is begun here.

    Returns:
        The run's result; of a shared etcd, the run as it is now.

    Raises:
        RunError: The run has not ended, or a training or the search depends on the number of epochs: the
            message names what, and what would have been different.

    Example:
        >>> short = run("sweep.yaml", run_id="short", epochs=1)
        >>> result = extend("short", epochs=2)
        >>> [(len(row.curve), row.status.value) for row in result.leaderboard]
        [(2, 'finished'), (2, 'finished')]
    """
    watcher = watcher or Watcher()
    result = open_run(run, home=home, store=store)
    wish = Wish(epochs, num, budget or {}, tuple(configs), top, one_line(by))
    named = result.spec.load_recipe().etcd
    shared = store or (StoreSettings.at(named) if named is not None else None)
    after = planned(result, wish)
    watcher.say(_text(after.extensions[-1]))
    if shared is not None:
        with closing(EtcdStore(with_key(shared, result.run, home))) as etcd:
            extend_in_store(Record(etcd, result.run, with_key(shared, result.run, home).run_key), after)
        watcher.say(
            f"run {result.run!r} goes on once its hosts are started again, each with the command of before"
        )
        return result.now()
    recipe = result.spec.load_recipe()
    launch = Launch(recipe, result.folder, None, False, grace, callbacks, None, after)
    return launch(watcher, imports)


def planned(result: RunResult, wish: Wish) -> Spec:
    """The spec of the run after the extension that is wished for. All is checked that can be, with torch in a
    process of its own, and nothing is changed. Raises ``RunError`` as ``extend``."""
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
