"""The results of a run, during it or after its end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.history.lineage import in_order
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.run import Spec, specs_of
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import CheckpointRef, RecordHead
from cerebro_elastic.errors import DamagedCheckpoint, MissingExtra, RunError, RunFailed, did_you_mean
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.search import Constraint
from cerebro_elastic.registry import install_extra
from cerebro_elastic.reporting.picture import curves_html, draw_curves
from cerebro_elastic.reporting.results import (
    ConfigResult,
    front,
    leaderboard,
    leaderboard_records,
    logged_metrics,
    ranked,
    records,
    why_no_value,
)
from cerebro_elastic.reporting.tables import failure_texts, leaderboard_table, why_failed
from cerebro_elastic.reporting.terminal import html_text
from cerebro_elastic.runs.attach import read_record, with_key
from cerebro_elastic.runs.exactness.outcome import RunExactness, known
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.results.record_chain import Heads, heads
from cerebro_elastic.store.ledger.journal import JournalReader, Line, chained, read_lines
from cerebro_elastic.system.files import check_own, here, locate
from cerebro_elastic.system.words import counted, for_reader, number, option

if TYPE_CHECKING:
    import optuna
    import pandas
    from matplotlib.axes import Axes


T = TypeVar("T")

_PATIENCE, _PAUSE = 20.0, 0.2
"""Seconds of the search for a state of a live run, and between two looks."""


class RunResult:
    """A run's configs with their metrics, visits and checkpoints, read from its history.

    ``run`` returns it, and ``Run.result``. A result stays as it was read; ``now()`` reads again. The history
    is that of its ``store`` if one is given, else that in its ``folder``.

    Example:
        >>> result = Run.open("sweep").result
        >>> result
        <RunResult 'sweep': 2 configs, best c0000 with val_acc 0...>
        >>> result.best.hparams
        {'lr': 0.1}
        >>> [row.config for row in result.leaderboard]
        ['c0000', 'c0001']
        >>> list(result.to_pandas().columns)
        ['place', 'config', 'status', 'reason', 'metric', 'best', 'best_epoch', 'epochs', 'lr']
        >>> result.plot_curves("val_acc").get_ylabel()
        'val_acc'
    """

    def __init__(self, folder: RunFolder, store: StoreSettings | None = None) -> None:
        self.folder = folder
        self.store = store and with_key(store, folder.run, folder.path.parent)
        """The etcd from which the record was read; ``None``: it was read from the folder."""
        self.spec, self.lines = self._read()
        self.events: Sequence[Event] = [line.event for line in self.lines]

    def _read(self) -> tuple[Spec, Sequence[Line]]:
        if self.store is not None:
            spec, events = read_record(self.folder.run, self.store)
            return spec, chained(events)
        return self.folder.read_spec(), read_lines(self.folder.history)

    @property
    def head(self) -> RecordHead | None:
        """The head of the record in the folder. Keep it to prove later that the record was not changed
        (``Run.verify(head=...)``). It is that of the leader's record, and so the same on all machines of the
        run. ``None`` if the record was read from a store, which keeps no digests."""
        if self.store is not None or not self.lines:
            return None
        return RecordHead(self.events[-1].revision, self._heads.last)

    def line_of(self, digest: str) -> int | None:
        """The number of the line at which this record, or the leader's, has this head, or one that begins
        with it."""
        return next((number for head, number in self._heads.lines.items() if head.startswith(digest)), None)

    @cached_property
    def _heads(self) -> Heads:
        return heads(self.lines)

    def upto(self, lines: int, exactness: RunExactness | None = None) -> RunResult:
        """The run as it was when its record had ``lines`` lines, and its check had found ``exactness``; by
        default its present result."""
        earlier = copy(self)
        earlier.lines, earlier.events = self.lines[:lines], self.events[:lines]
        for name in ("view", "leaderboard", "front", "configs", "failures", "_heads"):
            vars(earlier).pop(name, None)
        earlier.exactness = exactness or self.exactness
        return earlier

    @property
    def ended(self) -> bool:
        """Whether the run has ended, and its spec has no extension still to come."""
        return has_ended(self.view.state, self.spec)

    @property
    def shared_store(self) -> StoreSettings | None:
        """The etcd that hosts of the run share; ``None`` if it has its own."""
        if self.store is not None or self.recipe.etcd is None:
            return self.store
        return with_key(StoreSettings.at(self.recipe.etcd), self.run, self.folder.path.parent)

    def now(self) -> RunResult:
        """The run as it is now, read again."""
        return RunResult(self.folder, self.store)

    def __repr__(self) -> str:
        parts = [counted(len(self.leaderboard), "config")]
        if self.failures:
            parts.append(f"{len(self.failures)} failed")
        if self.leaderboard and (best := self.leaderboard[0]).best is not None:
            parts.append(f"best {best.config} with {self.recipe.objective.metric} {number(best.best)}")
        return f"<RunResult {self.run!r}: {', '.join(parts)}>"

    @property
    def run(self) -> str:
        """The run's id."""
        return self.spec.plan.run

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe with which the run was opened."""
        return self.spec.load_recipe()

    @cached_property
    def view(self) -> RunView:
        """The run after all its events."""
        return RunView(self.events)

    @cached_property
    def leaderboard(self) -> list[ConfigResult]:
        """All configs, the best first by the recipe's objective."""
        return leaderboard(self.view, self.recipe.objective)

    @cached_property
    def front(self) -> list[ConfigResult]:
        """With several objectives: the configs that no other one surpasses in all of them, in the order of
        the leaderboard. With one, the best config."""
        return front(self.leaderboard, self.recipe.search.objectives or (self.recipe.objective,))

    @property
    def best(self) -> ConfigResult:
        """The config with the best value of the objective in any epoch. Raises ``RunError`` if no config has
        one, ``RunFailed`` with the cause if all have failed."""
        check_not_all_failed(self)
        first = self.leaderboard[0] if self.leaderboard else None
        if first is None or first.best is None:
            metric, constraints = self.recipe.objective.metric, self.recipe.objective.constraints
            if metric in logged_metrics(self.leaderboard) and constraints:
                raise RunError(
                    f"no config of run {self.run!r} has an epoch within the constraints: "
                    f"{'; '.join(map(self._nearest, constraints))}; name a config to use it all the same"
                )
            failed = "".join(f"\n{text}" for text in self._failure_texts())
            raise RunError(
                f"no config of run {self.run!r} has a value of objective.metric, {metric!r}; "
                f"{why_no_value(metric, self.leaderboard)}{failed}"
            )
        return first

    def _nearest(self, constraint: Constraint) -> str:
        """The nearest that a config has come to meeting a constraint, in words."""
        epochs = [(row, metrics) for row in self.leaderboard for metrics in row.curve]
        row, metrics = min(epochs, key=lambda epoch: constraint.excess(epoch[1]))
        value = metrics.get(constraint.metric)
        return f"{constraint}: " + (
            "it was never logged" if value is None else f"the nearest is {number(value)} of {row.config}"
        )

    @cached_property
    def failures(self) -> Mapping[str, str]:
        """By the id of each failed config, why: the user's own lines, nearest first, then the error."""
        configs = in_order(self.view.state.configs.values())
        return {config.id: why_failed(config) for config in configs if config.status is Status.FAILED}

    def _failure_texts(self) -> list[str]:
        """A text for each reason for failures."""
        return list(failure_texts(self.view.state.configs.values(), None))

    @cached_property
    def configs(self) -> Mapping[str, ConfigResult]:
        """The configs by id, those of their trainings too (``c0003`` and ``c0003.f1``)."""
        rows = (each for row in self.leaderboard for each in (row, *row.members))
        return {row.config: row for row in sorted(rows, key=lambda row: row.config)}

    @cached_property
    def exactness(self) -> RunExactness:
        """Whether the run's units were found to equal an ordinary fit: the results of the check beside its
        start, in the folder of the machine that started the run."""
        return RunExactness(known(self.folder))

    @property
    def records(self) -> list[dict[str, Any]]:
        """A row for each config and full epoch (from 1), with hyper-parameters and metrics."""
        return records(self.leaderboard)

    def to_pandas(self, per: Literal["config", "epoch"] = "config") -> pandas.DataFrame:
        """The results as a table.

        Args:
            per: ``config``: the leaderboard, a row for each config with its best value and its
                hyper-parameters. ``epoch``: the learning curves, a row for each config and full epoch.

        Raises:
            MissingExtra: pandas (extra ``pandas``) is not installed.
        """
        try:
            import pandas
        except ImportError as exc:
            raise MissingExtra(f"a table of results needs pandas: {install_extra('pandas')}") from exc
        if per == "epoch":
            return pandas.DataFrame(self.records)
        return pandas.DataFrame(leaderboard_records(self.leaderboard, self.recipe.objective.metric))

    def plot_curves(self, metric: str | None = None, *, ax: Axes | None = None) -> Axes:
        """Draw the learning curves, a line for each config.

        Args:
            metric: The metric to draw, by default the objective's.
            ax: Where to draw, by default in a new figure.

        Raises:
            RunError: No config has logged the metric.
            MissingExtra: matplotlib (extra ``plots``) is not installed.
        """
        try:
            from matplotlib import pyplot
        except ImportError as exc:
            raise MissingExtra(f"curves need matplotlib: {install_extra('plots')}") from exc
        name = self.recipe.objective.metric if metric is None else metric
        logged = logged_metrics(self.leaderboard)
        if name not in logged:
            raise RunError(f"no config of run {self.run!r} has logged {name!r}; {did_you_mean(name, logged)}")
        axes = ax if ax is not None else pyplot.subplots()[1]
        draw_curves(axes, self.leaderboard, name)
        return axes

    def _repr_html_(self) -> str:
        """The leaderboard and the curves, in a notebook."""
        metric = self.recipe.objective.metric
        board = html_text(leaderboard_table(self.leaderboard, metric))
        board += html_text("\n".join([*self._failure_texts(), f"exactness: {self.exactness.text}"]))
        return board + curves_html(self.leaderboard, metric)

    def config(self, config: str) -> ConfigResult:
        """The config of this id; ``best`` is the best one. Raises ``RunError`` with the known ids."""
        if config == "best":
            return self.best
        if config not in self.configs:
            raise RunError(
                f"run {self.run!r} has no config {config!r}; {did_you_mean(config, ['best', *self.configs])}"
            )
        return self.configs[config]

    def training(self, config: str) -> ConfigResult:
        """The config of this id, which has a state; if it has several trainings, the one with the best
        value."""
        row = self.config(config)
        objective = self.recipe.objective
        return next(iter(ranked(row.members, objective.mode)), row)

    @property
    def trainings(self) -> list[ConfigResult]:
        """The trainings: the configs without members, and the members of the others."""
        return [each for row in self.leaderboard for each in row.trainings]

    def state(self, config: str, *, best: bool = True) -> Any:
        """The config's state at the end of its best epoch, or its last state (imports torch).

        In a live run it may be a later state than that of this result.

        Args:
            config: The config's id; ``best`` for the best one. Of several trainings the best one is taken.
            best: Whether to take the best epoch's state, not the last one.

        Raises:
            RunError: No such config, or it has no checkpoint yet.
            CheckpointError: The checkpoint cannot be read.
        """

        def pick(result: RunResult) -> tuple[CheckpointRef, CheckpointRef]:
            row = result.training(config)
            ref = row.best_checkpoint if best else row.checkpoint
            if ref is None:
                raise RunError(f"config {config!r} of run {self.run!r} has no checkpoint yet")
            return ref, ref

        return load_picked(self, pick)[2]

    def study(self) -> optuna.Study:
        """The run as a study of optuna's (extra ``search``), for its plots and its dashboard, or to copy with
        ``optuna.copy_study``. During the run, each look at it shows the present state."""
        from cerebro_elastic.search.study_journal import study_of

        check_search(self)
        reader = JournalReader(self.folder.history)
        return study_of(
            self.recipe, self.run, reader.new_events if self.store is None else self._new_events()
        )

    def _new_events(self) -> Callable[[], Sequence[Event]]:
        """The new events in the store's record since the last call."""
        known = 0

        def new() -> Sequence[Event]:
            nonlocal known
            events = [line.event for line in self._read()[1]][known:]
            known += len(events)
            return events

        return new


def has_ended(state: State, spec: Spec) -> bool:
    """Whether a run has ended, and the last extension of its ``spec``, if any, has been made."""
    return state.outcome is not None and is_made(spec, state)


def is_made(spec: Spec, state: State) -> bool:
    """Whether the last extension of the run's ``spec``, if any, has been made."""
    number = state.extension.number if state.extension is not None else 0
    return number == len(spec.extensions)


def check_not_all_failed(result: RunResult) -> RunResult:
    """The ``result``. Raises ``RunFailed`` if all its configs have failed."""
    failures = result.failures
    if not failures or len(failures) < len(result.leaderboard):
        return result
    configs, reasons = counted(len(failures), "config"), len(set(failures.values()))
    have_them = for_reader("", ", which `error.result.failures` has")
    others = f", for {reasons} reasons{have_them}" if reasons > 1 else ""
    raise RunFailed(
        f"{next(iter(failures.values()))}\nall {configs} of run {result.run!r} failed{others}; correct it, "
        f"and train them again with {option('fresh', 'fresh=True')}",
        result,
    )


def load_picked(
    result: RunResult, pick: Callable[[RunResult], tuple[T, CheckpointRef]]
) -> tuple[RunResult, T, Any]:
    """Load the state that ``pick`` chooses from a run; returns the run at that moment, the choice, and the
    state.

    A live run deletes a state as soon as it has a better one: then ``pick`` chooses again, from the run as it
    is then. Raises ``RunError`` if each state is gone before it is read, ``CheckpointError`` if a state of an
    ended run cannot be read."""
    from cerebro_elastic.hop import checkpoint

    until = time.monotonic() + _PATIENCE
    while True:
        picked, ref = pick(result)
        try:
            return result, picked, checkpoint.load(ref)
        except DamagedCheckpoint as damaged:
            if result.view.state.outcome is not None:
                raise
            if time.monotonic() > until:
                raise RunError(
                    f"the state {ref.url} is not there, or damaged, and run {result.run!r} tells of no other "
                    "that could be read: wait for its end, or stop the config first (`stop`)"
                ) from damaged
            time.sleep(_PAUSE)  # the record may lag behind deletions
            result = result.now()


def check_search(result: RunResult) -> None:
    """Raise ``RunError`` if the run's search calls functions of files that may belong to others: reading a
    record runs no code of others. Such runs are those in their folder, those with their project, and
    copies."""
    if not any(spec.load_recipe().search.functions for spec in specs_of(result.spec)):
        return
    check_here(result, modules=result.spec.root)
    root, folder = Path(here(result.spec.root)), result.folder.path
    code = f"run {result.run!r} calls functions of {root} to choose configs, and these are not called"
    if root.stat().st_uid not in (os.geteuid(), 0):
        raise RunError(f"{code}: the folder belongs to another user; copy it, and run its recipe as your own")
    copied = result.spec.recipe.get("checkpoints") is None and result.spec.storage != str(folder)
    if copied and result.store is None:
        raise RunError(f"{code}: {folder} is a copy of the run in {result.spec.storage}; do this there")


def check_here(result: RunResult, **needed: str) -> None:
    """Raise ``RunError`` if one of the URLs ``needed`` is a folder that does not exist on this machine (a run
    of a shared etcd can be opened anywhere), or if others can have made the run whose ``modules`` are
    needed."""
    if "modules" in needed and result.store is None:
        check_own(result.folder.path)
    for what, url in needed.items():
        place = locate(url)
        if place.local and not Path(place.path).is_dir():
            raise RunError(
                f"the {what} of run {result.run!r} should be in {place.path}, which is not on this machine: "
                "put it there as the run has it, or do this on a machine of the run"
            )
