"""A run after the fact, or while it goes on: what Python users get from ``run`` and ``open_run``."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.units import CheckpointRef, RecordHead
from cerebro_elastic.errors import DamagedCheckpoint, RunError, did_you_mean
from cerebro_elastic.files import locate
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.reporting.curves import records
from cerebro_elastic.reporting.results import ConfigResult, gather, leaderboard
from cerebro_elastic.reporting.tables import leaderboard_table
from cerebro_elastic.reporting.terminal import terminal
from cerebro_elastic.runs.attach import read_record, with_key
from cerebro_elastic.runs.folder import RunFolder, find_run, run_folder
from cerebro_elastic.store.ledger.journal import Line, read_lines
from cerebro_elastic.words import counted

if TYPE_CHECKING:
    import optuna


T = TypeVar("T")

_PATIENCE, _PAUSE = 20.0, 0.2
"""Seconds for which a state of a live run is looked for, and between two looks."""


class RunResult:
    """The configs of a run with their metrics, visits and checkpoints, as its history tells them: that in its
    ``store`` if one is given, else that in its ``folder``, which need not exist if there is a store."""

    def __init__(self, folder: RunFolder, store: StoreSettings | None = None) -> None:
        self.folder = folder
        self._store = store and with_key(store, folder.run, folder.path.parent)
        self.spec, self.lines = self._read()
        self.events: Sequence[Event] = [line.event for line in self.lines]

    def _read(self) -> tuple[Spec, Sequence[Line]]:
        if self._store is not None:
            spec, events = read_record(self.folder.run, self._store)
            return spec, [Line(event, encode(event), None) for event in events]
        return self.folder.read_spec(), read_lines(self.folder.history)

    @property
    def head(self) -> RecordHead | None:
        """Where the record in the folder ends: whoever keeps this can tell later whether it was changed.
        ``None`` if it has no digests, or was read from a store."""
        last = self.lines[-1] if self.lines else None
        if last is None or last.digest is None:
            return None
        return RecordHead(last.event.revision, last.digest)

    def line_of(self, digest: str) -> int | None:
        """The number of the record's line that bears this digest, or one that begins so."""
        found = (n for n, line in enumerate(self.lines, 1) if line.digest and line.digest.startswith(digest))
        return next(found, None)

    def upto(self, lines: int) -> RunResult:
        """The run as it was when its record had so many lines."""
        earlier = copy(self)
        earlier.lines, earlier.events = self.lines[:lines], self.events[:lines]
        for name in ("leaderboard", "configs"):
            vars(earlier).pop(name, None)
        return earlier

    @property
    def from_store(self) -> bool:
        """Whether the record is that of a store."""
        return self._store is not None

    def now(self) -> RunResult:
        """The run as it is now: this is as it was when it was read."""
        return RunResult(self.folder, self._store)

    def __repr__(self) -> str:
        best = self.leaderboard[0] if self.leaderboard else None
        told = f", best {best.config} with {self.recipe.objective.metric} {best.best}" if best else ""
        return f"<RunResult {self.run!r}: {counted(len(self.leaderboard), 'config')}{told}>"

    @property
    def run(self) -> str:
        """The run's id."""
        return self.spec.plan.run

    @cached_property
    def recipe(self) -> Recipe:
        return load_recipe(self.spec.recipe, root=self.spec.root)

    @cached_property
    def leaderboard(self) -> list[ConfigResult]:
        """All configs, the best first by the recipe's objective."""
        objective = self.recipe.objective
        return leaderboard(self.events, objective.metric, objective.mode)

    @property
    def best(self) -> ConfigResult:
        """The config with the best value of the objective in any epoch."""
        first = self.leaderboard[0] if self.leaderboard else None
        if first is None or first.best is None:
            logged = sorted({name for row in self.leaderboard for metrics in row.curve for name in metrics})
            metric = self.recipe.objective.metric
            raise RunError(
                f"no config of run {self.run!r} has a value of objective.metric, {metric!r}; logged so far: "
                f"{did_you_mean(metric, logged)}"
            )
        return first

    @cached_property
    def configs(self) -> Mapping[str, ConfigResult]:
        """By config id."""
        return {row.config: row for row in sorted(self.leaderboard, key=lambda row: row.config)}

    @property
    def records(self) -> list[dict[str, Any]]:
        """A row for each config and full epoch, hyper-parameters and metrics: for ``pandas.DataFrame``."""
        return records(self.leaderboard)

    def _repr_html_(self) -> str:
        """The leaderboard, in a notebook."""
        console = terminal(record=True, width=120, file=io.StringIO(), force_jupyter=False)
        console.print(leaderboard_table(self.leaderboard, self.recipe.objective.metric))
        return console.export_html(
            inline_styles=True, code_format="<pre style='line-height: 1.2'>{code}</pre>"
        )

    def config(self, config: str) -> ConfigResult:
        """One config; ``RunError`` lists those that there are."""
        if config not in self.configs:
            raise RunError(f"run {self.run!r} has no config {config!r}; {did_you_mean(config, self.configs)}")
        return self.configs[config]

    def state(self, config: str, *, best: bool = True) -> Any:
        """The config's state tree at the end of its best epoch, or its last one (imports torch). Of a live
        run it may be a later one than when this was read."""

        def pick(result: RunResult) -> tuple[CheckpointRef, CheckpointRef]:
            row = result.config(config)
            ref = row.best_checkpoint if best else row.checkpoint
            if ref is None:
                raise RunError(f"config {config!r} of run {self.run!r} has no checkpoint yet")
            return ref, ref

        return load_picked(self, pick)[2]

    def study(self) -> optuna.Study:
        """The run as a study of optuna's (extra ``search``): for its plots and its dashboard, or to copy with
        ``optuna.copy_study``. While the run goes on, each look shows what has happened by then."""
        from cerebro_elastic.search.study_journal import study_of

        return study_of(self.recipe, self.run, lambda: [line.event for line in self._read()[1]])


def load_picked(
    result: RunResult, pick: Callable[[RunResult], tuple[T, CheckpointRef]]
) -> tuple[RunResult, T, Any]:
    """What ``pick`` chooses of a run, and the state that it names. A live run deletes that as soon as there
    is a better one: then it is chosen anew, of the run as it is by then, which comes first. Raises
    ``RunError`` if each is gone before it is read, ``CheckpointError`` if one of a run that has ended cannot
    be."""
    from cerebro_elastic import checkpoint

    until = time.monotonic() + _PATIENCE
    while True:
        picked, ref = pick(result)
        try:
            return result, picked, checkpoint.load(ref)
        except DamagedCheckpoint as damaged:
            if gather(result.events)[0].outcome is not None:
                raise
            if time.monotonic() > until:
                raise RunError(
                    f"the state {ref.url} is not there, or damaged, and run {result.run!r} tells of no other "
                    "that could be read: wait for its end, or stop the config first (`cerebro stop`)"
                ) from damaged
            time.sleep(_PAUSE)  # the record may lag behind what was deleted
            result = result.now()


def open_run(
    run: str | Path, *, home: str | Path | None = None, store: StoreSettings | None = None
) -> RunResult:
    """A run by its id (in ``home``, by default ``$CEREBRO_HOME`` or ``./runs``) or its folder. With ``store``
    a run on a shared etcd, by its id, from any machine."""
    if store is not None:
        return RunResult(run_folder(str(run), home), store)
    return RunResult(find_run(run, Path(home) if home is not None else None))


def check_here(result: RunResult, **needed: str) -> None:
    """Whether what is ``needed`` of the run, by URL, is in reach: the record may be that of a shared etcd.
    Raises ``RunError`` for what should be in a folder that is not on this machine."""
    for what, url in needed.items():
        place = locate(url)
        if place.local and not Path(place.path).is_dir():
            raise RunError(
                f"the {what} of run {result.run!r} should be in {place.path}, which is not on this machine: "
                "put it there as the run has it, or do this on a machine of the run"
            )
