"""A run's history as a journal of optuna: ``optuna.load_study`` and optuna's dashboard open it during the run
and afterwards. The journal's operations are derived from the events; nothing else is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import optuna
from optuna.distributions import distribution_to_json
from optuna.storages.journal import BaseJournalBackend, JournalStorage
from optuna.study import StudyDirection
from optuna.trial import TrialState

from cerebro_elastic.core.decisions.observing import seen
from cerebro_elastic.core.history.keys import named_in
from cerebro_elastic.core.history.lineage import in_order
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.best import epoch_ends
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.interfaces import ConfigView
from cerebro_elastic.errors import SearchError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.search._optuna_internals import JournalOperation
from cerebro_elastic.search.criterion import Criterion, criteria_of
from cerebro_elastic.search.optunas import Space, trial_of


def study_of(recipe: Recipe, run: str, new_events: Callable[[], Iterable[Event]]) -> optuna.Study:
    """The run as a study of the same name. At each read it takes in the ``new_events``: those since the last
    call."""
    return optuna.load_study(study_name=run, storage=JournalStorage(HistoryJournal(recipe, run, new_events)))


class HistoryJournal(BaseJournalBackend):
    """The journal. It is read, never written."""

    def __init__(self, recipe: Recipe, run: str, new_events: Callable[[], Iterable[Event]]) -> None:
        self._run = run
        self._new_events = new_events
        self._operations = _Operations(recipe, run)
        self._logs: list[dict[str, Any]] = []

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        for event in self._new_events():
            self._logs += ({"worker_id": "history", **each} for each in self._operations.of(event))
        return self._logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Refused: a run's history is written by the run alone."""
        raise SearchError(
            f"the study {self._run!r} is read off its run's history, which {len(logs)} changes cannot become "
            "part of: copy it with optuna.copy_study to continue by yourself"
        )


class _Operations:
    """The operations that each event adds to the journal. A stopped config may be resumed, and a finished one
    may get more seeds if the recipe has these for the best, so their trials end only with the run."""

    def __init__(self, recipe: Recipe, run: str) -> None:
        self._space = Space(recipe)
        self._criteria = criteria_of(recipe)
        seeds = recipe.repeats
        self._ends = {Status.FAILED} if seeds and seeds.min < seeds.max else {Status.FINISHED, Status.FAILED}
        self._run = run
        self._view = RunView()
        self._numbers: dict[str, int] = {}
        self._points: dict[str, int] = {}
        self._closed: set[str] = set()
        self._failed: set[str] = set()
        self._count = 0

    def of(self, event: Event) -> Iterator[dict[str, Any]]:
        opened = self._view.state.plan is not None
        self._view.take(event)
        state = self._view.state
        plan = state.plan
        if plan is None:
            return
        if not opened:
            directions = [_direction(criterion) for criterion in self._criteria]
            yield _op(JournalOperation.CREATE_STUDY, study_name=self._run, directions=directions)
        of_some = any(named_in(event))
        configs: Iterable[str] = (
            named_in(event)[0] if of_some else (each.id for each in in_order(state.configs.values()))
        )
        for name in dict.fromkeys(state.configs[config].seen_as for config in configs):
            yield from self._changes(seen(state, plan, name))

    def _changes(self, view: ConfigView) -> Iterator[dict[str, Any]]:
        name = view.config
        again = name in self._failed and view.status is Status.LIVE  # optuna's trials cannot be resumed
        if name not in self._numbers or again:
            self._failed.discard(name)
            self._closed.discard(name)
            self._numbers[name] = self._count
            self._points.pop(name, None)
            self._count += 1
            yield self._created(view)
        over = view.status in self._ends or self._view.state.outcome is not None
        # A mean changes with each training that reaches an epoch.
        ends = epoch_ends(view.curve) if over or not view.members else []
        if len(self._criteria) == 1:
            for point in filter(self._criteria[0].finite, ends[self._points.get(name, 0) :]):
                yield _op(
                    JournalOperation.SET_TRIAL_INTERMEDIATE_VALUE,
                    trial_id=self._numbers[name],
                    step=point.epochs,
                    intermediate_value=self._criteria[0].value(point),
                )
        self._points[name] = len(ends)
        if over and name not in self._closed:
            self._closed.add(name)
            if view.status is Status.FAILED:
                self._failed.add(name)
            yield self._over(view)

    def _created(self, view: ConfigView) -> dict[str, Any]:
        params = self._space.params(view)
        return _op(
            JournalOperation.CREATE_TRIAL,
            study_id=0,
            datetime_start=self._now,
            params={name: d.to_internal_repr(value) for name, (value, d) in params.items()},
            distributions={name: distribution_to_json(d) for name, (_, d) in params.items()},
            user_attrs={
                "config": view.config,
                "hparams": dict(view.hparams),
                "parent": view.parent,
            },
        )

    def _over(self, view: ConfigView) -> dict[str, Any]:
        trial = trial_of(view, self._space, self._criteria)
        return _op(
            JournalOperation.SET_TRIAL_STATE_VALUES,
            trial_id=self._numbers[view.config],
            state=int(TrialState.FAIL if trial.state is TrialState.RUNNING else trial.state),
            values=trial.values,
            datetime_complete=self._now,
        )

    @property
    def _now(self) -> str:
        """The end of the last visit, by the nodes' clocks."""
        return datetime.fromtimestamp(self._view.state.usage.until, UTC).isoformat()


def _op(code: JournalOperation, **fields: Any) -> dict[str, Any]:
    return {"op_code": int(code), **fields}


def _direction(criterion: Criterion) -> int:
    return int(StudyDirection.MINIMIZE if criterion.mode == "min" else StudyDirection.MAXIMIZE)
