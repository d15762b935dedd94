"""Measures the best configs of an ended run on its test set: ``cerebro test``.

No unit gets a row of the test set, so that no search, no stopping rule and no person who watches the run
learns from it. When the run has ended, the machine that started it measures the best config. Each measurement
is an event of the run's record, so that ``verify`` can check that none came before the end. Models are loaded
and measured in their own process: ``python -m cerebro_elastic.runs.results.test_set``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from cerebro_elastic.controller.follower import catch_up
from cerebro_elastic.core.history.progress import at_end
from cerebro_elastic.core.model.best import epoch_ends
from cerebro_elastic.core.model.codec import decode, encode
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.units import Measurement
from cerebro_elastic.errors import CerebroError, NoTestSet, RunError
from cerebro_elastic.reporting.results import ConfigResult
from cerebro_elastic.runs.attach import record_in
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.results.report import manifest_of, write_results
from cerebro_elastic.runs.results.result import RunResult, check_here
from cerebro_elastic.runs.terminal_view import Watcher
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.ledger.journal import Journal
from cerebro_elastic.store.ledger.operators import OperatorLedger
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.clock import SystemClock
from cerebro_elastic.system.run_key import RunKey
from cerebro_elastic.system.subprocess_call import call, serve
from cerebro_elastic.system.words import counted, for_reader

_AT_THE_END = "the run itself, at its end"
"""``Measurement.by`` of a run's own measurement."""


def check_test_set(result: RunResult) -> None:
    """Raise ``NoTestSet`` if the run's dataset has none. Only the process of a data module knows whether the
    module has one."""
    manifest, data = manifest_of(result.spec), result.recipe.data
    if manifest is None:
        raise RunError(
            f"the data of run {result.run!r} at {result.spec.data} cannot be read here: do this on a machine "
            "that has them"
        )
    if not manifest.test and data.datamodule is None:
        how = (
            f"prepare it with `--test 10%`, and give {result.spec.data!r} anew"
            if data.url is not None
            else "add `test: 10%` (or data of its own) to `data` in the recipe"
        )
        raise NoTestSet(
            f"run {result.run!r} has no test set: its rows were all used for training and validation. {how}, "
            "and run it under another id"
        )


def winners(result: RunResult, top: int) -> list[ConfigResult]:
    """The ``top`` best configs; for a config with several trainings, each of these. Raises ``RunError`` if
    fewer have a best epoch."""
    able = [row for row in result.leaderboard if row.best is not None]
    if not able:
        _ = result.best  # its error gives the reason
    if not 1 <= top <= len(able):
        raise RunError(
            f"top is {top}: run {result.run!r} has {counted(len(able), 'config')} with a value of "
            f"{result.recipe.objective.metric}; give a number from 1 to {len(able)}"
        )
    return [each for row in able[:top] for each in row.trainings if each.best is not None]


def measure(
    result: RunResult, rows: Sequence[ConfigResult], by: str, env: Mapping[str, str] | None = None
) -> list[Measurement]:
    """Measure the models of the configs ``rows`` after their best epochs, for the person ``by``.

    Raises:
        CheckpointError: A model cannot be read: the message names the cause.
        TaskError: The task cannot measure.
    """
    state = result.view.state
    models = []
    for row in rows:
        assert row.best_place is not None
        end = epoch_ends(state.curves[row.config])[row.best_place]
        models.append(encode(at_end(state.configs[row.config], end)))
    request = {"spec": encode(result.spec), "cache": str(result.folder.cache), "models": models}
    answer = call(__name__, "the process that measures the test set", request, env)
    now = SystemClock().wall()
    return [
        Measurement(
            number=0,
            config=row.config,
            epoch=row.best_epoch or 0,
            checkpoint=row.best_checkpoint,
            metrics=found["metrics"],
            rows=found["rows"],
            at=now,
            intervals={name: (low, high) for name, (low, high) in found["intervals"].items()},
            by=by,
        )
        for row, found in zip(rows, answer["found"], strict=True)
        if row.best_checkpoint is not None
    ]


def note(record: Record, journal: Journal | None, found: Sequence[Measurement]) -> None:
    """Note the ``found`` measurements in the run's record, and in the ``journal`` of this machine, if it has
    one. Raises ``RunError`` if the run is live."""
    for measurement in found:
        if not OperatorLedger(record).measure(measurement):
            raise RunError(
                f"run {record.keys.run!r} is live, and its test set is for its end: nothing was noted"
            )
    if journal is not None:
        catch_up(record, journal, journal.resume(record.read()), record.revision())


def measure_best(result: RunResult, top: int, by: str) -> list[Measurement]:
    """``Run.test``, of a ``result``."""
    if not result.ended:
        raise RunError(
            f"run {result.run!r} has not ended, and nobody looks at its test set before: wait for its end; "
            "if nobody runs it, the command that started it continues it"
        )
    check_test_set(result)
    if all(row.test is not None for row in winners(result, top)):
        return _known(result, top)
    check_here(result, modules=result.spec.root, data=result.spec.data, checkpoints=result.spec.storage)
    with _ended_record(result) as (record, journal):
        note(record, journal, ())  # measurements of another machine, or of a killed process
        result = result.now()
        if new := [row for row in winners(result, top) if row.test is None]:
            note(record, journal, measure(result, new, by))
    return _known(write_results(result.folder) if result.store is None else result.now(), top)


def _known(result: RunResult, top: int) -> list[Measurement]:
    return [row.test for row in winners(result, top) if row.test is not None]


@contextmanager
def _ended_record(result: RunResult) -> Iterator[tuple[Record, Journal | None]]:
    """The record of an ended run, in its store, and its journal if this machine has one."""
    folder, shared = result.folder, result.shared_store
    here = folder.spec.exists()
    with ExitStack() as stack:
        if here:
            stack.enter_context(folder.locked())
        if shared is None:
            shared = stack.enter_context(EmbeddedEtcd(folder.etcd, key=RunKey.kept(folder.key))).settings
        record = stack.enter_context(record_in(shared, result.run))
        yield record, Journal(folder.history) if here else None


def measure_winner(
    record: Record, folder: RunFolder, journal: Journal, watcher: Watcher, env: Mapping[str, str]
) -> None:
    """Measure the best config of a run that has just ended, unless that model was measured before. Errors are
    reported; the run has ended all the same."""
    result = RunResult(folder)
    try:
        check_test_set(result)
        if new := [row for row in winners(result, 1) if row.test is None]:
            watcher.say(f"measuring {result.best.config}, the best config, on the test set")
            note(record, journal, measure(result, new, _AT_THE_END, env))
    except NoTestSet:
        return
    except CerebroError as error:
        if any(row.best is not None for row in result.leaderboard):
            again = for_reader(f"`cerebro test {folder.argument}`", f"Run.open({result.run!r}).test()")
            watcher.say(
                f"note: the best config was not measured on the test set: {error}. {again} tries again"
            )


def _measure_here(request: Mapping[str, Any]) -> dict[str, Any]:
    spec = decode(request["spec"], Spec)
    from pathlib import Path

    from cerebro_elastic.hop import checkpoint
    from cerebro_elastic.system.devices import CPU, device_of, kind_here, use
    from cerebro_elastic.training.test_metrics import intervals
    from cerebro_elastic.training.unit_runner import UnitRunner

    device = device_of(kind_here() if spec.load_recipe().task.ARRAYS == "torch" else CPU, 0)
    use(device)
    runner = UnitRunner(spec, Path(request["cache"]), device)
    runner.use_threads()
    found = []
    for model in request["models"]:
        config = decode(model, Config)
        assert config.head is not None
        values, rows = runner.measure_test(config, checkpoint.load(config.head))
        found.append(
            {
                "metrics": dict(values.metrics),
                "rows": rows,
                "intervals": intervals(values, rows, spec.plan.seed),
            }
        )
    return {"found": found}


if __name__ == "__main__":
    serve(_measure_here)
