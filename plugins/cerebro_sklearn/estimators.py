"""Estimators and pipelines that learn batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics
from sklearn.base import is_classifier, is_regressor
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from cerebro_elastic.extending.errors import TaskError

Measure = Callable[[Any, Any], float]


def steps_of(estimator: Any) -> list[Any]:
    """The steps of a pipeline; of any other estimator that one."""
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


def rows_of(x: Any) -> NDArray[Any]:
    """Rows as scikit-learn takes them: with one axis of features."""
    rows = np.asarray(x)
    return rows.reshape(len(rows), -1) if rows.ndim > 2 else rows


def learn(estimator: Any, batch: Any, classes: int | None) -> None:
    """Learn from one batch ``(x, y)``, or ``x`` alone; the steps of a pipeline one after the other."""
    x, *rest = batch if isinstance(batch, tuple | list) else (batch,)
    x, y = rows_of(x), rest[0] if rest else None
    *before, last = steps_of(estimator)
    for step in before:
        if hasattr(step, "partial_fit"):
            step.partial_fit(x, y)
        x = step.transform(x)
    known = {"classes": np.arange(classes)} if classes is not None and is_classifier(last) else {}
    last.partial_fit(x, y, **known)


def measure(estimator: Any, batches: Sequence[Any], named: Mapping[str, Measure]) -> dict[str, float]:
    """Metrics over the rows of all batches."""
    pairs = [batch if isinstance(batch, tuple | list) else (batch, None) for batch in batches]
    x = np.concatenate([rows_of(x) for x, *_ in pairs])
    if not (is_classifier(estimator) or is_regressor(estimator)):
        return {"score": float(estimator.score(x)) / len(x)} if hasattr(estimator, "score") else {}
    y = np.concatenate([np.asarray(y) for _, y, *_ in pairs])
    predicted = estimator.predict(x)
    measured = {name: float(function(y, predicted)) for name, function in named.items()}
    if is_regressor(estimator):
        loss = metrics.mean_squared_error(y, predicted)
        return {"loss": float(loss), "r2": float(metrics.r2_score(y, predicted)), **measured}
    measured = {"accuracy": float(metrics.accuracy_score(y, predicted)), **measured}
    if hasattr(estimator, "predict_proba"):
        probabilities = estimator.predict_proba(x)
        labels = np.arange(probabilities.shape[1])
        measured = {"loss": float(metrics.log_loss(y, probabilities, labels=labels)), **measured}
    return measured
