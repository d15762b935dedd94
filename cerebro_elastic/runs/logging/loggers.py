"""The loggers of a run, as its recipe names them: TensorBoard unless it says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cerebro_elastic.controller.candidate import Candidate
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.errors import MissingExtra
from cerebro_elastic.files import locate, make_folder
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.registry import load, missing
from cerebro_elastic.reporting.logged import Logger
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.logging.log_forwarder import FileLogPosition, LogForwarder
from cerebro_elastic.runs.logging.remote_loggers import RemoteLoggers
from cerebro_elastic.store.ledger.leader import note_logged
from cerebro_elastic.store.ledger.record import Record

TENSORBOARD = "tensorboard"


class SharedLogPosition:
    """A position in the store, for loggers that the run's leader writes to. A visit is noted after its rows
    are written: if the leader dies in between, the next one writes them again."""

    def __init__(self, record: Record, candidate: Candidate) -> None:
        self._record = record
        self._candidate = candidate

    def ours(self) -> bool:
        """Whether this machine leads the run, or has led it last."""
        return self._candidate.leads and self._record.leader() in (None, self._candidate.name)

    def read(self) -> Mapping[str, int]:
        return self._record.logged()

    def write(self, config: str, visits: int) -> None:
        note_logged(self._record, self._candidate.name, config, visits)


class Loggers:
    """The loggers of a run, on this machine, which keeps the run's record in ``folder``.

    Every machine writes TensorBoard's files, in its own folder. Only the leader writes to Lightning's
    loggers, because all of them may write to one place; their files are beside the run's checkpoints, if
    these are in a folder. Their process has ``env`` in its environment, besides this process's."""

    def __init__(
        self, recipe: Recipe, spec: Spec, folder: RunFolder, env: Mapping[str, str] | None = None
    ) -> None:
        self._env = env
        self._recipe = recipe
        self._spec = spec
        self._folder = folder
        absent = missing("cerebro.loggers", TENSORBOARD)
        named = recipe.loggers if recipe.loggers is not None else () if absent else (TENSORBOARD,)
        if TENSORBOARD in named and absent:
            raise MissingExtra(f"the recipe's `loggers` name tensorboard, which is not installed: {absent}")
        self._tensorboard = TENSORBOARD in named

    @contextmanager
    def written(self, record: Record, candidate: Candidate, say: Callable[[str], None]) -> Iterator[None]:
        """Forward logged rows while the block goes on, in which ``candidate`` takes part in the run."""
        folder = self._folder
        with ExitStack() as stack:
            if self._tensorboard:
                board: Logger = load("cerebro.loggers", TENSORBOARD)(folder.tensorboard)
                position = FileLogPosition(folder.logged)
                stack.enter_context(LogForwarder(folder.history, TENSORBOARD, board, position, say))
            if specs := lightnings(self._recipe):
                run, log = self._spec.plan.run, folder.logs / "loggers.log"
                make_folder(log.parent)
                remote = RemoteLoggers(specs, run, self._recipe.root, self._files(), log, self._env)
                name = ", ".join(spec if isinstance(spec, str) else spec["class"] for spec in specs)
                position_in_store = SharedLogPosition(record, candidate)
                stack.enter_context(LogForwarder(folder.history, name, remote, position_in_store, say))
            yield

    def _files(self) -> Path:
        storage = locate(self._spec.storage)
        return (Path(storage.path) if storage.local else self._folder.path) / "loggers"


def lightnings(recipe: Recipe) -> list[str | Mapping[str, Any]]:
    """The recipe's loggers of Lightning."""
    return [logger for logger in recipe.loggers or () if logger != TENSORBOARD]
