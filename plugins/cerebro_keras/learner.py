"""A unit as one call of ``fit``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.recipes import named_class
from cerebro_elastic.extending.tasks import (
    Learner,
    UnitBatches,
    UnitJob,
    as_found,
    is_users,
    job_batches,
    object_digest,
)
from cerebro_keras._keras_internals import choose_order, has_chosen_order
from cerebro_keras.model import TrainedModel

_NOT_STATE = frozenset({"model", "_model", "params", "validation_data"})


def make_callbacks(specs: Sequence[str | Mapping[str, Any]], root: Path) -> list[keras.callbacks.Callback]:
    """Fresh callbacks as the section names them. Raises ``TaskError``."""
    known = {name: value for name, value in vars(keras.callbacks).items() if name[0].isupper()}
    callbacks = []
    for spec in specs:
        make, args = named_class(spec, known, root, "task.callbacks", "Keras' callbacks")
        try:
            callbacks.append(make(**args))
        except (TypeError, ValueError) as exc:
            raise TaskError(f"task.callbacks: {make.__name__} with {args}: {exc}") from exc
    return callbacks


class LoadsAtTest(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Calls ``load`` when an evaluation has built all variables."""

    def __init__(self, load: Callable[[], None]) -> None:
        super().__init__()
        self._load = load

    def on_test_begin(self, logs: Any = None) -> None:
        del logs
        self._load()


class UnitCallbacks(keras.callbacks.Callback):  # type: ignore[misc]
    """Calls ``callbacks`` as one ordinary ``fit`` would.

    Args:
        callbacks: The user's.
        job: The unit.
        done: How many batches of the epoch were trained before.
        begin: Called when all variables are built: it loads the state.
        continue_epoch: Called when Keras has reset the metrics, if the epoch has begun before.
        continue_draws: Called when Keras has drawn for its loader of batches, if the epoch has begun before.
    """

    def __init__(
        self,
        callbacks: Sequence[keras.callbacks.Callback],
        job: UnitJob,
        done: int,
        *,
        begin: Callable[[], None],
        continue_epoch: Callable[[], None],
        continue_draws: Callable[[], None],
    ) -> None:
        super().__init__()
        self._callbacks = callbacks
        self._not_carried = list(map(_not_plain, callbacks))
        self._job = job
        self._done = done
        self._begin = begin
        self._continue_epoch = continue_epoch
        self._continue_draws = continue_draws
        self.whole = False
        """Whether the unit reached its end."""
        self.logs: dict[str, float] = {}
        """The epoch's present metrics."""

    def load(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Restore the callbacks' attributes."""
        for callback, state in zip(self._callbacks, states, strict=True):
            if state["ordered"]:
                choose_order(callback)
            for name, value in state["attributes"].items():
                setattr(callback, name, value)

    def state(self) -> list[dict[str, Any]]:
        """The callbacks' attributes that are plain values and arrays. Raises ``TaskError`` if others of the
        user's callbacks have changed."""
        for callback, before in zip(self._callbacks, self._not_carried, strict=True):
            now = _not_plain(callback)
            if changed := sorted(name for name, token in now.items() if before.get(name) != token):
                raise TaskError(
                    f"task.callbacks: {type(callback).__name__}.{changed[0]} changed in training, which "
                    "cannot hop to another node: keep numbers, text, arrays, and lists and dicts of them"
                )
        return [
            {
                "ordered": has_chosen_order(callback),
                "attributes": {
                    name: value
                    for name, value in vars(callback).items()
                    if name not in _NOT_STATE and _plain(value) and name != "monitor_op"
                },
            }
            for callback in self._callbacks
        ]

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        for callback in self._callbacks:
            callback.set_model(model)

    def set_params(self, params: dict[str, Any]) -> None:
        super().set_params(params)
        for callback in self._callbacks:
            callback.set_params({**params, "epochs": self._job.epochs})

    def on_train_begin(self, logs: Any = None) -> None:
        self._call("on_train_begin", logs)
        self._begin()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._done:
            self._continue_epoch()
        else:
            self._call("on_epoch_begin", epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == 0 and self._done:
            self._continue_draws()
        self._call("on_train_batch_begin", batch + self._done, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._call("on_train_batch_end", batch + self._done, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.logs = {name: float(value) for name, value in (logs or {}).items()}
        if self.whole and self._job.last:
            self._call("on_epoch_end", epoch, logs)
            self.logs = {name: float(value) for name, value in (logs or {}).items()}

    def on_train_end(self, logs: Any = None) -> None:
        if self.ends:
            self._call("on_train_end", logs)

    @property
    def ends(self) -> bool:
        """Whether an ordinary ``fit`` would end here."""
        job = self._job
        ends = self.whole and job.last and job.unit.epoch + 1 == job.epochs
        return ends or bool(self.model.stop_training)

    def on_test_begin(self, logs: Any = None) -> None:
        self._call("on_test_begin", logs)

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._call("on_test_batch_begin", batch, logs)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self._call("on_test_batch_end", batch, logs)

    def on_test_end(self, logs: Any = None) -> None:
        self._call("on_test_end", logs)

    def _call(self, hook: str, *args: Any) -> None:
        for callback in self._callbacks:
            getattr(callback, hook)(*args)


def _not_plain(callback: keras.callbacks.Callback) -> dict[str, str]:
    """Digests of the attributes of a user's callback that are not carried."""
    if not is_users(type(callback)):
        return {}
    attributes = {name: value for name, value in vars(callback).items() if name not in _NOT_STATE}
    return {name: object_digest(value) for name, value in attributes.items() if not _plain(value)}


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _plain(item) for key, item in value.items())
    return isinstance(value, str | bytes | bool | int | float | type(None) | np.generic | np.ndarray)


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
        if not self._state:
            self.found = as_found({"variables": self._trained.values()})
        else:
            self._callbacks.load(self._state["callbacks"])
            self._trained.generators.restore(self._state["generators"])


def _generator(batches: Iterator[Any]) -> Iterator[Any]:
    """Keras takes generators, and no other iterators."""
    yield from batches
