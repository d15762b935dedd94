"""The loggers of a run, as its recipe names them: TensorBoard unless it says otherwise. ``cerebro
report --to`` sends a run's record to a tracker after the run."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from cerebro_elastic.controller.candidate import Candidate
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.errors import MissingExtra, RunError, did_you_mean
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.loggers import (
    TENSORBOARD,
    check_installed,
    lightning_loggers,
    logger_name,
    tracker_arguments,
    trackers,
)
from cerebro_elastic.registry import load, missing
from cerebro_elastic.reporting.logged import Logger, RunEnd, Tracker
from cerebro_elastic.runs.folder import RunFolder, find_run
from cerebro_elastic.runs.logging.log_forwarder import FileLogPosition, LogForwarder, LogPosition
from cerebro_elastic.runs.logging.remote_loggers import RemoteLogger, RemoteTracker
from cerebro_elastic.runs.results.export import RECORD
from cerebro_elastic.runs.results.report import write_results
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.store.ledger.leader import note_logged
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.files import locate, make_folder
from cerebro_elastic.system.run_key import RunKey


class SharedLogPosition:
    """A position in the store, for loggers that the run's leader writes to. A visit is noted after its rows
    are written: if the leader dies in between, the next one writes them again. ``prefix`` sets the names of
    a logger apart from those of others."""

    def __init__(self, record: Record, candidate: Candidate, prefix: str = "") -> None:
        self._record = record
        self._candidate = candidate
        self._prefix = prefix

    def ours(self) -> bool:
        """Whether this machine leads the run, or has led it last."""
        return self._candidate.leads and self._record.leader() in (None, self._candidate.name)

    def read(self) -> Mapping[str, int]:
        numbers, prefix = self._record.logged(), self._prefix
        return {name.removeprefix(prefix): n for name, n in numbers.items() if name.startswith(prefix)}

    def write(self, name: str, number: int) -> None:
        note_logged(self._record, self._candidate.name, self._prefix + name, number)


class TrackerPosition:
    """The position of a tracker that notes itself what it has; ``ours`` says whether this machine writes."""

    def __init__(self, tracker: RemoteTracker, ours: Callable[[], bool]) -> None:
        self._tracker = tracker
        self.ours = ours

    def read(self) -> Mapping[str, int]:
        return self._tracker.written()

    def write(self, _name: str, _number: int) -> None:
        """The tracker has noted it with the rows."""


class Loggers:
    """The loggers of a run, on this machine, which keeps the run's record in ``folder``.

    Every machine writes TensorBoard's files, in its own folder. Only the leader writes to trackers and to
    Lightning's loggers, because all of them may write to one place; their files are beside the run's
    checkpoints, if these are in a folder. Their processes have ``env`` in their environment, besides this
    process's. Raises ``MissingExtra``."""

    def __init__(
        self, recipe: Recipe, spec: Spec, folder: RunFolder, env: Mapping[str, str] | None = None
    ) -> None:
        check_installed(recipe.loggers)
        self._env = env
        self._recipe = recipe
        self._spec = spec
        self._folder = folder
        if recipe.loggers is None:
            self._tensorboard = missing("cerebro.loggers", TENSORBOARD) is None
        else:
            self._tensorboard = TENSORBOARD in map(logger_name, recipe.loggers)

    @contextmanager
    def written(self, record: Record, candidate: Candidate, say: Callable[[str], None]) -> Iterator[None]:
        """Forward logged rows during the block, in which ``candidate`` takes part in the run."""
        history = self._folder.history
        with ExitStack() as stack:
            if self._tensorboard:
                board: Logger = load("cerebro.loggers", TENSORBOARD)(self._folder.tensorboard)
                file = FileLogPosition(self._folder.logged)
                stack.enter_context(LogForwarder(history, TENSORBOARD, board, file, say))
            if specs := lightning_loggers(self._recipe.loggers):
                names = ", ".join(map(logger_name, specs))
                shared = SharedLogPosition(record, candidate)
                stack.enter_context(LogForwarder(history, names, self._lightning(specs), shared, say))
            for name, arguments in tracker_arguments(self._recipe.loggers).items():
                in_store = SharedLogPosition(record, candidate, f"{name}/")
                tracker = make_tracker(name, arguments, self._spec, self._folder, self._env)
                stack.enter_context(forwarder(self._folder, name, tracker, in_store, say))
            yield

    def _lightning(self, specs: list[str | Mapping[str, Any]]) -> RemoteLogger:
        storage = locate(self._spec.storage)
        files = (Path(storage.path) if storage.local else self._folder.path) / "loggers"
        settings = {
            "specs": specs,
            "run": self._spec.plan.run,
            "root": str(self._recipe.root),
            "folder": str(files),
        }
        return RemoteLogger("lightning", settings, _log(self._folder), self._env)


def make_tracker(
    name: str,
    arguments: Mapping[str, Any],
    spec: Spec,
    folder: RunFolder,
    env: Mapping[str, str] | None = None,
) -> RemoteTracker:
    """The tracker that the recipe names, with these ``args``.

    Its files are beside the folders of runs, where other runs find them too: with the checkpoints of all
    runs, if these are in a folder."""
    storage = locate(spec.storage)
    runs = Path(storage.path).parent if storage.local else folder.path.parent
    settings = {"run": spec.plan.run, "identity": _identity(spec, folder), "folder": str(runs), **arguments}
    kind: type[Tracker] = load("cerebro.trackers", name)
    given = {key: value for key, value in kind.environment.items() if key not in os.environ}
    return RemoteTracker(name, settings, _log(folder), {**given, **(env or {})})


def forwarder(
    folder: RunFolder,
    name: str,
    tracker: RemoteTracker,
    position: LogPosition,
    say: Callable[[str], None],
    models: Mapping[str, str] | None = None,
) -> LogForwarder:
    """What sends the record in ``folder`` to a tracker. One that takes files gets the run's report and these
    exported ``models`` (by config) with the run's end."""
    if not _takes_files(name):
        return LogForwarder(folder.history, name, tracker, position, say, buffers=True)
    own = TrackerPosition(tracker, position.ours)
    finish: Callable[[], None] = lambda: tracker.end_run(_run_end(folder, models or {}))  # noqa: E731
    return LogForwarder(folder.history, name, tracker, own, say, finish)


def _takes_files(name: str) -> bool:
    """Whether the tracker takes files, and knows how far it has come."""
    return hasattr(load("cerebro.trackers", name), "end_run")


def _run_end(folder: RunFolder, models: Mapping[str, str]) -> RunEnd:
    """The result of a run that has ended; its report is written for it."""
    result = write_results(folder)
    best = result.leaderboard[0] if result.leaderboard else None
    value = None if best is None else best.best
    name = best.config if best is not None and value is not None else ""
    time = max((visit.ended for row in result.leaderboard for visit in row.visits), default=0.0)
    files = [str(folder.report), str(folder.curves)]
    return RunEnd(name, result.recipe.objective.metric, value, time, files, models)


def _identity(spec: Spec, folder: RunFolder) -> str:
    """Distinguishes the run from another one with its id. All its machines know it. The key cannot be
    computed from it."""
    if folder.key.exists():
        source = RunKey.read(folder.key).signature("trackers", b"")
    else:
        source = f"{spec.storage} {spec.data_digest}".encode()
    return hashlib.sha256(spec.plan.run.encode() + b" " + source).hexdigest()[:16]


def _log(folder: RunFolder) -> Path:
    make_folder(folder.logs)
    return folder.logs / "loggers.log"


def track(
    run: str | Path,
    to: str,
    *,
    home: str | Path | None = None,
    models: Sequence[str | Path] = (),
    say: Callable[[str], None] = print,
) -> None:
    """Send the record of a run to a tracker: what it lacks, or all if it cannot say that.

    Args:
        run: The run's id, or its folder.
        to: The tracker, such as ``mlflow``, with the arguments that the run's recipe gives it.
        home: The folder of runs, by default ``$CEREBRO_HOME``, else ``./runs``.
        models: Folders that ``export`` has written; a tracker that takes files stores them.
        say: Gets a sentence about rows that cannot be read.

    Raises:
        RunError: There is no such run here, or it is live; or there is no such tracker.
        MissingExtra: The tracker's package is not installed.
        TrackerAway: The tracker cannot be reached, or refuses.
    """
    if to not in trackers():
        raise RunError(f"there is no tracker {to!r}; {did_you_mean(to, trackers())}")
    if models and not _takes_files(to):
        takers = ", ".join(filter(_takes_files, trackers()))
        raise RunError(f"{to} takes no exported models: give them to {takers}")
    if remedy := missing("cerebro.trackers", to):
        raise MissingExtra(f"{to} is not installed: {remedy}")
    result = RunResult(find_run(run, home))
    if result.folder.is_locked():
        raise RunError(f"run {result.run!r} is live: its leader sends what it logs; track it after its end")
    arguments = tracker_arguments(result.recipe.loggers).get(to, {})
    by_config = {_config_of(result, Path(folder)): str(Path(folder).resolve()) for folder in models}
    with closing(make_tracker(to, arguments, result.spec, result.folder)) as tracker:
        forwarder(result.folder, to, tracker, FileLogPosition(), say, by_config).send(finish=True)


def _config_of(result: RunResult, folder: Path) -> str:
    """The config whose exported model the folder has."""
    try:
        record = json.loads((folder / RECORD).read_text())
        run, config = record["run"], record["config"]
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise RunError(f"{folder} is no exported model: give a folder that `cerebro export` wrote") from exc
    if run != result.run or config not in result.configs:
        raise RunError(f"{folder} has a model of run {run!r}, not of {result.run!r}")
    return str(config)
