"""Estimators and pipelines that learn batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics
from sklearn.base import is_classifier, is_regressor
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.tasks import Learner, ObjectEncoder, UnitBatches

Measure = Callable[[Any, Any], float]


def steps_of(estimator: Any) -> list[Any]:
    """The steps of a pipeline; any other estimator is its only step."""
    steps = [step for _, step in estimator.steps] if isinstance(estimator, Pipeline) else [estimator]
    return [step for step in steps if step is not None and step != "passthrough"]


def check_estimator(estimator: Any, name: str, classes: int | None) -> None:
    """Raise ``TaskError`` unless each step can learn batch by batch, or has nothing to learn."""
    if not hasattr(estimator, "get_params"):
        raise TaskError(f"{name} makes a {type(estimator).__name__}: expected an estimator of scikit-learn")
    for step in steps_of(estimator):
        if not hasattr(step, "partial_fit") and get_tags(step).requires_fit:
            raise TaskError(
                f"{name}: {type(step).__name__} has no partial_fit, and cannot learn batch by batch: use one "
                "that has it (https://scikit-learn.org/stable/computing/scaling_strategies.html), or "
                "`kind: boosting`"
            )
    if is_classifier(estimator) and classes is None:
        raise TaskError(
            f"{name} makes a classifier: give their number as task.classes, since a batch may lack one"
        )


def fitted_arrays(estimator: Any) -> Mapping[str, Any]:
    """The arrays that the steps have learned, as ``<number of the step>.<attribute>``, those of a list behind
    a further number."""
    arrays = {}
    for at, step in enumerate(steps_of(estimator)):
        for key, value in vars(step).items():
            if isinstance(value, np.ndarray) and value.dtype != object:
                arrays[f"{at}.{key}"] = value
            elif isinstance(value, list) and value and all(isinstance(each, np.ndarray) for each in value):
                arrays.update({f"{at}.{key}.{number}": each for number, each in enumerate(value)})
    return arrays


class EstimatorLearner(Learner):
    """An estimator or a pipeline, with the number of classes and further metrics by name."""

    def __init__(self, estimator: Any, classes: int | None, metrics: Mapping[str, Measure]) -> None:
        self._estimator = estimator
        self._classes = classes
        self._metrics = metrics

    def learn(self, batches: UnitBatches) -> Mapping[str, float]:
        """Each batch is ``(x, y)``, or ``x`` alone; the steps of a pipeline learn one after the other."""
        *before, last = steps_of(self._estimator)
        known = {"classes": np.arange(self._classes or 0)} if is_classifier(last) else {}
        for batch in batches:
            x, y = _pair(batch)
            for step in before:
                if hasattr(step, "partial_fit"):
                    step.partial_fit(x, y)
                x = step.transform(x)
            last.partial_fit(x, y, **known)
        return {}

    def measure(self, batches: Iterator[Any]) -> Mapping[str, float]:
        estimator, pairs = self._estimator, list(map(_pair, batches))
        x = np.concatenate([x for x, _ in pairs])
        if not (is_classifier(estimator) or is_regressor(estimator)):
            return {"score": float(estimator.score(x)) / len(x)} if hasattr(estimator, "score") else {}
        y = np.concatenate([np.asarray(y) for _, y in pairs])
        predicted = estimator.predict(x)
        measured = {name: float(function(y, predicted)) for name, function in self._metrics.items()}
        if is_regressor(estimator):
            loss, r2 = metrics.mean_squared_error(y, predicted), metrics.r2_score(y, predicted)
            return {"loss": float(loss), "r2": float(r2), **measured}
        measured = {"accuracy": float(metrics.accuracy_score(y, predicted)), **measured}
        if hasattr(estimator, "predict_proba"):
            probabilities = estimator.predict_proba(x)
            labels = np.arange(probabilities.shape[1])
            measured["loss"] = float(metrics.log_loss(y, probabilities, labels=labels))
        return measured

    def state(self) -> Mapping[str, Any]:
        return {"estimator": ObjectEncoder().tree(self._estimator)}

    def arrays(self) -> Mapping[str, Any]:
        return fitted_arrays(self._estimator)


def _pair(batch: Any) -> tuple[NDArray[Any], Any]:
    """The rows of a batch with one axis of features, as scikit-learn takes them, and their targets."""
    x, *rest = batch if isinstance(batch, tuple | list) else (batch,)
    rows = np.asarray(x)
    return rows.reshape(len(rows), -1) if rows.ndim > 2 else rows, rest[0] if rest else None
