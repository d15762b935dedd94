"""What ``cerebro check`` compares units with if their task has no ordinary fit: the same units one after the
other in one process, which gets no state through a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from cerebro_elastic.training.task import MetricRow, Observe, OrdinaryFit, Task, UnitJob, UnitResult


class UnitsInARow:
    """Shows the state after each whole unit, and stands for ``SupportsCheck`` of any ``task``."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._observe: Observe | None = None

    @property
    def splits(self) -> bool:
        return self._task.splits

    def train(self, job: UnitJob) -> UnitResult:
        result = self._task.train(job)
        if self._observe is not None and result.whole:
            self._observe("after", {"state": result.state})
        return result

    @contextmanager
    def observed(self, observe: Observe) -> Iterator[None]:
        self._observe = observe
        try:
            yield
        finally:
            self._observe = None

    def ordinary_fit(self, jobs: Sequence[UnitJob], observe: Observe) -> OrdinaryFit:
        log: list[MetricRow] = []
        metrics: list[Mapping[str, float]] = []
        state = None
        with self.observed(observe):
            for job in jobs:
                result = self.train(replace(job, state=state))
                state = result.state
                log += result.log
                metrics += [result.metrics] if job.last else []
                if result.done:
                    break
        return OrdinaryFit(log, metrics)
