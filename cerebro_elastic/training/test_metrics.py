"""A model measured row by row on a test set, to say how far metrics would differ with other rows.

An interval is computed for metrics that are means over rows. A row's value is what the task measures on that
row alone. If the mean of these values is the metric over all rows, the rows are resampled with replacement,
many times, and the interval holds 95 % of the means (the percentile bootstrap of B. Efron, 1979). Any other
metric, such as the area under a curve, gets none. Nothing here imports torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cerebro_elastic.training import job_batches
from cerebro_elastic.training.metrics import not_finite
from cerebro_elastic.training.task import ModelValues, UnitJob, UnitResult

COVERED = 0.95
"""The share of the means that an interval holds."""
_DRAWS = 2000
"""How often the rows are drawn."""
_AT_ONCE = 1 << 22
"""The number of rows drawn at once: their memory stays far below the size of a model."""
_TOLERANCE = 1e-4
"""The largest relative difference between a metric and the mean of its rows: a model computes a row alone and
in a batch with differences of rounding."""


def named_as_test(metric: str) -> str:
    """The name of a metric of validation, measured on the test set: ``test_loss`` for ``val_loss``."""
    return f"test_{metric.removeprefix('val_')}" if metric.startswith("val_") else metric


def row_by_row(job: UnitJob) -> UnitJob:
    """The job with batches of one row."""
    return replace(job, loader=replace(job.loader, valid_batch_size=1))


def measured_alone(
    measure: Callable[[Iterator[Any]], Mapping[str, float]], batches: Iterable[Any]
) -> dict[str, list[float]]:
    """The results of ``measure`` for each of the ``batches`` alone, by the metric's name; empty if it fails
    for one: some metrics have no value for a single row."""
    values: dict[str, list[float]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for batch in batches:
                for name, value in measure(iter([batch])).items():
                    values.setdefault(name, []).append(float(value))
        except Exception:  # the user's code may fail on a single row
            return {}
    return values


def evaluated(job: UnitJob, metrics: Mapping[str, float]) -> UnitResult:
    """The result of an evaluation of the job's partition. The state does not change."""
    assert job.state is not None
    return UnitResult(
        state=job.state,
        samples=job.partition.rows,
        batches=job_batches.unit_batches(job),
        metrics=metrics,
        not_finite=not_finite(metrics),
    )


def intervals(values: ModelValues, rows: int, seed: int) -> dict[str, tuple[float, float]]:
    """The interval of each metric that is a mean over the ``rows`` of the test set, by name. None where all
    rows have one value: other draws of them say nothing."""
    means = {
        name: np.asarray(each, np.float64)
        for name, each in values.rows.items()
        if len(each) == rows > 1 and _is_mean(values.metrics.get(name), each)
    }
    if not means:
        return {}
    drawn = _drawn_means(np.stack(list(means.values()), axis=1), seed)
    ends = np.quantile(drawn, [(1 - COVERED) / 2, (1 + COVERED) / 2], axis=0)
    return {name: (float(low), float(high)) for name, low, high in zip(means, *ends, strict=True)}


def _is_mean(metric: float | None, rows: Sequence[float]) -> bool:
    if metric is None or not np.isfinite(metric) or not np.isfinite(rows).all() or np.ptp(rows) == 0:
        return False
    scale = max(abs(metric), float(np.mean(np.abs(rows))))
    return abs(metric - float(np.mean(rows))) <= _TOLERANCE * scale


def _drawn_means(table: Any, seed: int) -> Any:
    """Means of rows of ``table`` that are drawn with replacement; shape (draws, columns)."""
    generator, rows = np.random.default_rng(seed), len(table)
    step = max(1, _AT_ONCE // rows)
    return np.concatenate(
        [
            table[generator.integers(0, rows, (min(step, _DRAWS - begun), rows))].mean(axis=1)
            for begun in range(0, _DRAWS, step)
        ]
    )
