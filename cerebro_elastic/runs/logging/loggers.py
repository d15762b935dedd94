"""The loggers named in a run's recipe; by default TensorBoard."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cerebro_elastic.controller.candidate import Candidate
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.loggers import (
    TENSORBOARD,
    check_installed,
    lightning_loggers,
    logger_name,
    tracker_arguments,
)
from cerebro_elastic.registry import load, missing
from cerebro_elastic.reporting.logged import Logger, Tracker
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.logging.log_forwarder import FileLogPosition, LogForwarder
from cerebro_elastic.runs.logging.remote_loggers import RemoteLogger, RemoteTracker
from cerebro_elastic.store.ledger.leader import note_logged
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.files import locate, make_folder
from cerebro_elastic.system.run_key import RunKey


class SharedLogPosition:
    """A position in the store, for loggers to which the run's leader writes. A visit is noted after its rows
    are written: if the leader dies in between, the next one writes them again. ``prefix`` separates the names
    of loggers."""

    def __init__(self, record: Record, candidate: Candidate, prefix: str = "") -> None:
        self._record = record
        self._candidate = candidate
        self._prefix = prefix

    def ours(self) -> bool:
        """Whether this machine leads the run, or was the last to lead it."""
        return self._candidate.leads and self._record.leader() in (None, self._candidate.name)

    def read(self) -> Mapping[str, int]:
        numbers, prefix = self._record.logged(), self._prefix
        return {name.removeprefix(prefix): n for name, n in numbers.items() if name.startswith(prefix)}

    def write(self, name: str, number: int) -> None:
        note_logged(self._record, self._candidate.name, self._prefix + name, number)


def tensorboard_of(recipe: Recipe) -> Callable[[Path], Logger] | None:
    """TensorBoard's logger, which is slow to import, if the recipe has it; without loggers in the recipe, if
    it is installed."""
    if recipe.loggers is None:
        wanted = missing("cerebro.loggers", TENSORBOARD) is None
    else:
        wanted = TENSORBOARD in map(logger_name, recipe.loggers)
    logger: Callable[[Path], Logger] | None = load("cerebro.loggers", TENSORBOARD) if wanted else None
    return logger


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
        self._tensorboard = tensorboard_of(recipe)

    @contextmanager
    def written(self, record: Record, candidate: Candidate, say: Callable[[str], None]) -> Iterator[None]:
        """Forward logged rows during the block, in which ``candidate`` takes part in the run."""
        history = self._folder.history
        with ExitStack() as stack:
            if self._tensorboard is not None:
                board = self._tensorboard(self._folder.tensorboard)
                file = FileLogPosition(self._folder.logged)
                stack.enter_context(LogForwarder(history, TENSORBOARD, board, file, say))
            if specs := lightning_loggers(self._recipe.loggers):
                names = ", ".join(map(logger_name, specs))
                shared = SharedLogPosition(record, candidate)
                stack.enter_context(LogForwarder(history, names, self._lightning(specs), shared, say))
            for name, arguments in tracker_arguments(self._recipe.loggers).items():
                kind: type[Tracker] = load("cerebro.trackers", name)
                shared = SharedLogPosition(record, candidate, f"{name}/")
                tracker = self._tracker(name, arguments, kind.environment)
                stack.enter_context(LogForwarder(history, name, tracker, shared, say, buffers=kind.buffers))
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
        return RemoteLogger("lightning", settings, self._log(), self._env)

    def _tracker(
        self, name: str, arguments: Mapping[str, Any], environment: Mapping[str, str]
    ) -> RemoteTracker:
        """The tracker with these ``args`` of the recipe.

        Its files are beside the folders of runs, where other runs find them too: with the checkpoints of all
        runs, if these are in a folder."""
        storage = locate(self._spec.storage)
        runs = Path(storage.path).parent if storage.local else self._folder.path.parent
        settings = {
            "run": self._spec.plan.run,
            "identity": self._identity(),
            "folder": str(runs),
            **arguments,
        }
        given = {key: value for key, value in environment.items() if key not in os.environ}
        return RemoteTracker(name, settings, self._log(), {**given, **(self._env or {})})

    def _identity(self) -> str:
        """Distinguishes the run from another one with its id. All its machines have it. The key cannot be
        computed from it."""
        spec, key = self._spec, self._folder.key
        if key.exists():
            source = RunKey.read(key).signature("trackers", b"")
        else:
            source = f"{spec.storage} {spec.data_digest}".encode()
        return hashlib.sha256(spec.plan.run.encode() + b" " + source).hexdigest()[:16]

    def _log(self) -> Path:
        make_folder(self._folder.logs)
        return self._folder.logs / "loggers.log"
