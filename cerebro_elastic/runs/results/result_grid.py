"""A run's results with the names of Ray Tune's ``ResultGrid``, for notebooks that come from there.

Ray is not needed. A trial is a config here, its results are those of its full epochs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from cerebro_elastic.core.model.configs import HParams, Status
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.errors import MissingExtra, RunError, did_you_mean
from cerebro_elastic.recipes import Objective
from cerebro_elastic.registry import install_extra
from cerebro_elastic.reporting.results import ConfigResult, why_no_value

if TYPE_CHECKING:
    import pandas

_SCOPES: Mapping[str, Callable[[Sequence[float], Callable[..., float]], float]] = MappingProxyType(
    {
        "last": lambda values, _best: values[-1],
        "all": lambda values, best: best(values),
        "avg": lambda values, _best: math.fsum(values) / len(values),
        "last-5-avg": lambda values, _best: math.fsum(values[-5:]) / len(values[-5:]),
        "last-10-avg": lambda values, _best: math.fsum(values[-10:]) / len(values[-10:]),
    }
)
"""What a trial is compared by: of its values of the metric, and of min or max."""


@dataclass(frozen=True, slots=True)
class Result:
    """One config, as a trial of Ray Tune."""

    config: HParams
    """Its hyper-parameters by name."""
    metrics: Mapping[str, Any]
    """What its last full epoch logged, with `trial_id`, `training_iteration`, `done` and `config`."""
    checkpoint: CheckpointRef | None
    """Its last committed state."""
    error: RunError | None
    """Why it has failed; ``None`` if it has not."""
    best_checkpoints: Sequence[tuple[CheckpointRef, Mapping[str, float]]]
    """The state of its best epoch, if there is one, and what that logged."""
    curve: Sequence[Mapping[str, Any]] = field(repr=False)
    """The same as ``metrics`` for each full epoch."""

    @property
    def metrics_dataframe(self) -> pandas.DataFrame:
        """A row for each full epoch. Raises ``MissingExtra`` without pandas."""
        return data_frame([_flat(row) for row in self.curve])


class ResultGrid(Sequence[Result]):
    """The configs of a run in the order of their ids."""

    def __init__(self, run: str, rows: Sequence[ConfigResult], objective: Objective) -> None:
        self._run, self._metric, self._mode = run, objective.metric, objective.mode
        self._rows = rows
        self._results = [_result(row) for row in rows]

    def __len__(self) -> int:
        return len(self._results)

    def __getitem__(self, place: Any) -> Any:
        return self._results[place]

    @property
    def errors(self) -> list[RunError]:
        """Why configs have failed, for each that has."""
        return [result.error for result in self._results if result.error is not None]

    @property
    def num_errors(self) -> int:
        """The number of failed configs."""
        return len(self.errors)

    @property
    def num_terminated(self) -> int:
        """The number of configs that were trained to their end or stopped."""
        return sum(row.status in (Status.FINISHED, Status.STOPPED) for row in self._rows)

    def get_best_result(
        self,
        metric: str | None = None,
        mode: Literal["min", "max"] | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> Result:
        """The config with the best value of a metric. ``RunResult.best`` is the one of the best epoch
        (``scope="all"``).

        Args:
            metric: By default the objective's.
            mode: ``min`` or ``max``; by default the objective's.
            scope: What a config is compared by: its ``last`` epoch, the best of ``all``, their ``avg``, or
                ``last-5-avg``, ``last-10-avg``.
            filter_nan_and_inf: Whether values that are not finite are left out.

        Raises:
            RunError: No config has a value of the metric, or mode or scope is unknown.
        """
        metric, mode = metric or self._metric, mode or self._mode
        best = self._best_of(mode)
        if scope not in _SCOPES:
            raise RunError(f"scope is {scope!r}; {did_you_mean(scope, _SCOPES)}")
        scores = {
            place: _SCOPES[scope](values, best)
            for place, row in enumerate(self._rows)
            if (values := _values(row, metric, finite=filter_nan_and_inf))
        }
        if not scores:
            why = why_no_value(metric, self._rows)
            raise RunError(f"no config of run {self._run!r} has a value of {metric!r}; {why}")
        place: int = best(scores, key=scores.__getitem__)
        return self._results[place]

    def get_dataframe(
        self, filter_metric: str | None = None, filter_mode: Literal["min", "max"] | None = None
    ) -> pandas.DataFrame:
        """A row for each config: its last epoch, or the one with the best value of ``filter_metric``. Raises
        ``MissingExtra`` without pandas."""
        rows = [_flat(result.metrics) for result in self._results]
        if filter_metric is not None:
            best = self._best_of(filter_mode or self._mode)
            for place, result in enumerate(self._results):
                epochs = [row for row in result.curve if math.isfinite(row.get(filter_metric, math.nan))]
                if epochs:
                    rows[place] = _flat(best(epochs, key=lambda row: row[filter_metric]))
        return data_frame(rows)

    @staticmethod
    def _best_of(mode: str) -> Callable[..., Any]:
        ways: Mapping[str, Callable[..., Any]] = {"min": min, "max": max}
        if mode not in ways:
            raise RunError(f"mode is {mode!r}; {did_you_mean(mode, ways)}")
        return ways[mode]


def _result(row: ConfigResult) -> Result:
    done = row.status is not Status.LIVE
    last = len(row.curve) - 1
    common = {"trial_id": row.config, "config": dict(row.hparams)}
    curve = [
        {**epoch, **common, "training_iteration": row.behind + place + 1, "done": done and place == last}
        for place, epoch in enumerate(row.curve)
    ]
    kept = []
    if row.best_checkpoint is not None and row.best_place is not None:
        kept = [(row.best_checkpoint, row.curve[row.best_place])]
    failed = row.status is Status.FAILED
    return Result(
        config=row.hparams,
        metrics=curve[-1] if curve else {**common, "training_iteration": row.behind, "done": done},
        checkpoint=row.checkpoint,
        error=RunError(f"config {row.config}: {row.reason}") if failed else None,
        best_checkpoints=kept,
        curve=curve,
    )


def _values(row: ConfigResult, metric: str, *, finite: bool) -> list[float]:
    values = [value for _, value in row.values(metric)]
    return [value for value in values if math.isfinite(value)] if finite else values


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with a column ``config/NAME`` for each hyper-parameter."""
    hparams = {f"config/{name}": value for name, value in row["config"].items()}
    return {**{name: value for name, value in row.items() if name != "config"}, **hparams}


def data_frame(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """The rows as a table. Raises ``MissingExtra`` without pandas (extra ``pandas``)."""
    try:
        import pandas
    except ImportError as exc:
        raise MissingExtra(f"a table of results needs pandas: {install_extra('pandas')}") from exc
    return pandas.DataFrame(rows)
