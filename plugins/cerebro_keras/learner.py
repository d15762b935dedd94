"""A unit as one call of ``fit``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras

from cerebro_elastic.extending.tasks import Learner, UnitBatches, UnitJob, job_batches
from cerebro_keras.callbacks import LoadsAtTest, UnitCallbacks
from cerebro_keras.model import TrainedModel


class KerasLearner(Learner):
    """A compiled model. It gets the state when ``fit`` has built its variables."""

    validates = True

    def __init__(
        self, trained: TrainedModel, callbacks: Sequence[keras.callbacks.Callback], job: UnitJob
    ) -> None:
        self._trained = trained
        self._job = job
        self._state: Mapping[str, Any] = job.state or {}
        self._done = 0 if job.begins_epoch else int(self._state["done"])
        """How many batches of the epoch are trained."""
        self._callbacks = UnitCallbacks(
            callbacks,
            job,
            self._done,
            begin=self._begin,
            continue_epoch=lambda: trained.load_metrics(self._state["metrics"]),
            continue_draws=lambda: trained.generators.restore(self._state["generators"]),
        )

    def learn(self, batches: UnitBatches) -> Mapping[str, float]:
        job, epoch = self._job, self._job.unit.epoch
        before, validated = batches.done, [epoch + 1]

        def training() -> Iterator[Any]:
            yield from batches
            self._callbacks.whole = batches.whole
            if not batches.whole:
                validated.clear()  # Keras reads it after the last batch

        with self._trained.ending_as(lambda: self._callbacks.ends):
            self._trained.model.fit(
                training(),
                initial_epoch=epoch,
                epochs=epoch + 1,
                verbose=0,
                shuffle=False,
                callbacks=[self._callbacks],
                validation_data=_generator(job_batches.natural_batches(job, job.validation))
                if job.validates
                else None,
                validation_freq=validated,
            )
        self._done += batches.done - before
        self.done = job.last and bool(self._trained.model.stop_training)
        return self._callbacks.logs

    def measure(self, batches: Iterator[Any]) -> Mapping[str, float]:
        loading = LoadsAtTest(lambda: self._trained.load(self._state["variables"]))
        measured: dict[str, float] = self._trained.model.evaluate(
            _generator(batches), verbose=0, return_dict=True, callbacks=[loading]
        )
        self._trained.held()
        return measured

    def state(self) -> Mapping[str, Any]:
        return {
            "variables": {**self._trained.values(), "held": self._trained.held()},
            "metrics": self._trained.metrics(),
            "callbacks": self._callbacks.state(),
            "done": self._done,
        }

    def arrays(self) -> Mapping[str, Any]:
        return self._trained.values()["model"]

    def _begin(self) -> None:
        inherits = self._job.inherits is not None
        self._trained.load(self._state.get("variables"), keep_rate=inherits)
        if self._state:
            self._callbacks.load(self._state["callbacks"])
            self._trained.generators.restore(self._state["generators"])


def _generator(batches: Iterator[Any]) -> Iterator[Any]:
    """Keras takes generators, and no other iterators."""
    yield from batches
