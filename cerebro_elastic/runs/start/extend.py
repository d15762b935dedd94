"""``cerebro extend``: lets a run that has ended go on, with more epochs or more configs.

Before, ``python -m cerebro_elastic.runs.start.extend`` checks in a process of its own, as ``preflight`` does:
can its configs go on from their checkpoints, and would their training have been the same so far if they had
had more epochs from the start?
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from cerebro_elastic.config import GRACE, StoreSettings
from cerebro_elastic.core.model.codec import decode, encode
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.run import Extension, Spec
from cerebro_elastic.errors import CheckpointError, RunError
from cerebro_elastic.runs.attach import with_key
from cerebro_elastic.runs.callbacks import RunCallback
from cerebro_elastic.runs.extension import Wish, extended
from cerebro_elastic.runs.live import Watcher
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.start.imports import SharedImports
from cerebro_elastic.runs.start.launch import Launch
from cerebro_elastic.runs.start.prepare_run import (
    agreement,
    check_code,
    extend_in_store,
    has_ended,
    refuse_other_code,
)
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.subprocess_call import call, serve
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


_BATCHES = 2
_SHOWN = 8


def check_lengths(spec: Spec, configs: Mapping[str, Config], epochs: int) -> None:
    """Check that the ``configs`` of the run ``spec`` can go on to ``epochs`` epochs.

    Raises:
        RunError: A checkpoint is gone or damaged, or something of the training depends on the number of
            epochs. The message names each.
    """
    if not configs:
        return
    request = {
        "spec": encode(spec),
        "configs": [encode(config) for config in configs.values()],
        "epochs": epochs,
    }
    answer = call(__name__, "the check of what depends on the number of epochs", request)
    run, longer = spec.plan.run, counted(epochs, "epoch")
    if gone := answer["gone"]:
        raise RunError(
            f"configs of run {run!r} cannot go on from checkpoints that are gone:\n{_lines(gone)}\n"
            "restore them, or name other configs"
        )
    if readers := answer["readers"]:
        raise RunError(
            f"run {run!r} cannot be extended to {longer}: this depends on their number, and would have been "
            f"different from the first epoch on:\n{_lines(readers)}\n"
            f"name other configs, or start a run of that length: cerebro run RECIPE --epochs "
            f"{epochs} --run-id NAME"
        )


def _lines(texts: list[str]) -> str:
    more = [f"  and {len(texts) - _SHOWN} more"] if len(texts) > _SHOWN else []
    return "\n".join([*(f"  {text}" for text in texts[:_SHOWN]), *more])


def _check_here(request: Mapping[str, Any]) -> dict[str, Any]:
    spec = decode(request["spec"], Spec)
    configs = [decode(config, Config) for config in request["configs"]]
    begun = [config for config in configs if config.head is not None]
    longer = [c for c in begun if request["epochs"] > spec.epochs_of(c.id, max(c.epoch - 1, 0))]
    readers = list(_readers(spec, longer, request["epochs"])) if longer else []
    return {"gone": [text for config in configs for text in _gone(config)], "readers": readers}


def _gone(config: Config) -> Iterator[str]:
    from cerebro_elastic import checkpoint

    if config.head is not None:
        try:
            checkpoint.verify(config.head)
        except CheckpointError as error:
            yield f"{config.id}: {error}"


def _readers(spec: Spec, configs: list[Config], epochs: int) -> Iterator[str]:
    """By one config of each shape."""
    from cerebro_elastic.data.manifest import read_manifest
    from cerebro_elastic.runs.exactness.check_configs import representative_configs, small_jobs
    from cerebro_elastic.training.task import ReadsLength
    from cerebro_elastic.training.unit_runner import make_task

    recipe = spec.load_recipe()
    task = make_task(recipe)
    if not isinstance(task, ReadsLength):
        yield f"a task of kind {recipe.task.kind} does not say what depends on the number of epochs"
        return
    rows = read_manifest(spec.data).rows
    points = representative_configs([config.hparams for config in configs], len(configs))
    for point in points:
        name = next(config.id for config in configs if config.hparams == point)
        jobs = small_jobs(task, recipe, spec.data, point, _BATCHES)
        first = [replace(job, epochs=spec.plan.epochs) for job in jobs if job.unit.epoch == 0]
        for text in task.length_readers(first, rows, epochs):
            yield f"{name}: {text}"


if __name__ == "__main__":
    serve(_check_here)
