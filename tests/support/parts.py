"""A unit done in parts: stopped at batch boundaries, and taken up again from the state that was left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cerebro_elastic.training.task import TaskState, UnitJob, UnitResult


def in_parts(
    train: Callable[[UnitJob], UnitResult],
    job: UnitJob,
    stops: Sequence[int],
    hop: Callable[[TaskState], TaskState],
) -> list[UnitResult]:
    """``job`` stopped after each number of batches in ``stops`` (rising, inside the partition); what each
    part leaves goes through ``hop`` to the next. Raises ``AssertionError`` if a part is not as it was cut."""
    results: list[UnitResult] = []
    for stop in (*stops, None):
        results.append(train(replace(job, stop=_at(stop))))
        whole, reached = results[-1].whole, job.skip + results[-1].batches
        assert whole == (stop is None), f"asked to stop after {stop} batches: whole is {whole}"
        assert whole or reached == stop, f"asked to stop after {stop} batches, stopped after {reached}"
        job = replace(job, skip=reached, state=hop(results[-1].state))
    return results


def _at(stop: int | None) -> Callable[[int], bool]:
    return lambda done: done == stop
