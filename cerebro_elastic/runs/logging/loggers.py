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
from cerebro_elastic.runs.logging.log_forwarder import FileNote, LogForwarder
from cerebro_elastic.runs.logging.remote_loggers import RemoteLoggers
from cerebro_elastic.store.ledger.leader import note_logged
from cerebro_elastic.store.ledger.record import Record

TENSORBOARD = "tensorboard"


class LeadersNote:
    """A note in the store, for loggers that whoever leads the run writes to. A visit is noted when its rows
    are written: should the leader die in between, the next one writes them again."""

    def __init__(self, record: Record, candidate: Candidate) -> None:
        self._record = record
        self._candidate = candidate

    def ours(self) -> bool:
        """Also when a run that we led has ended, or is left by us, and nobody else leads it."""
        return self._candidate.leads and self._record.leader() in (None, self._candidate.name)

    def read(self) -> Mapping[str, int]:
        return self._record.logged()

    def write(self, config: str, visits: int) -> None:
        note_logged(self._record, self._candidate.name, config, visits)


class Loggers:
    """The loggers of the run ``spec``, as they are written on this machine, which keeps its record in
    ``folder``. TensorBoard's files every machine writes, in its folder; to Lightning's loggers only the
    leader writes, for they may write to one place: their files are where the run's checkpoints are, if that
    is a folder."""

    def __init__(self, recipe: Recipe, spec: Spec, folder: RunFolder) -> None:
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
        """Write to them while the block goes on, which takes part in the run as ``candidate``."""
        folder = self._folder
        with ExitStack() as stack:
            if self._tensorboard:
                board: Logger = load("cerebro.loggers", TENSORBOARD)(folder.tensorboard)
                note = FileNote(folder.logged)
                stack.enter_context(LogForwarder(folder.history, TENSORBOARD, board, note, say))
            if others := lightnings(self._recipe):
                run, log = self._spec.plan.run, folder.logs / "loggers.log"
                make_folder(log.parent)
                remote = RemoteLoggers(others, run, self._recipe.root, self._files(), log)
                name = ", ".join(other if isinstance(other, str) else other["class"] for other in others)
                leaders = LeadersNote(record, candidate)
                stack.enter_context(LogForwarder(folder.history, name, remote, leaders, say))
            yield

    def _files(self) -> Path:
        storage = locate(self._spec.storage)
        return (Path(storage.path) if storage.local else self._folder.path) / "loggers"


def lightnings(recipe: Recipe) -> list[str | Mapping[str, Any]]:
    """Those of the recipe's loggers that are Lightning's."""
    return [logger for logger in recipe.loggers or () if logger != TENSORBOARD]
