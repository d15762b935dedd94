"""The task adapter for estimators of scikit-learn (entry point ``sklearn`` of ``cerebro.tasks``).

Estimators without a ``random_state`` draw from numpy's global generator, whose state hops with the config.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import threadpoolctl
from numpy.typing import NDArray
from sklearn import metrics
from sklearn.base import is_classifier, is_regressor
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.recipes import import_object
from cerebro_elastic.extending.tasks import (
    ArrayTask,
    Exported,
    GraphRoot,
    HParams,
    Learner,
    ObjectGraph,
    TaskState,
    UnitBatches,
    UnitJob,
    generators,
    process_settings,
    select_arguments,
)
from cerebro_sklearn.section import SklearnSection

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
                "that has it (https://scikit-learn.org/stable/computing/scaling_strategies.html), transform "
                "the rows by it in the function that is `data.source`, or use `kind: boosting`"
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
    """An estimator or a pipeline with its objects, the number of classes and further metrics by name."""

    def __init__(
        self, estimator: Any, objects: ObjectGraph, classes: int | None, metrics: Mapping[str, Measure]
    ) -> None:
        self._estimator = estimator
        self._objects = objects
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
        return self._objects.carry()

    def arrays(self) -> Mapping[str, Any]:
        return fitted_arrays(self._estimator)


def _pair(batch: Any) -> tuple[NDArray[Any], Any]:
    """The rows of a batch with one axis of features, as scikit-learn takes them, and their targets."""
    x, *rest = batch if isinstance(batch, tuple | list) else (batch,)
    rows = np.asarray(x)
    return rows.reshape(len(rows), -1) if rows.ndim > 2 else rows, rest[0] if rest else None


def objects_of(estimator: Any) -> ObjectGraph:
    """All objects that a fresh estimator has."""
    return ObjectGraph([GraphRoot("estimator", estimator, vars, type(estimator).__name__)])


class SklearnTask(ArrayTask):
    """Trains the estimator that ``section`` names by ``partial_fit``, batch after batch."""

    makes_again = True
    settings = (
        process_settings.Setting(
            "sklearn.set_config", sklearn.get_config, lambda value: sklearn.set_config(**value)
        ),
    )

    def __init__(self, section: SklearnSection, root: Path) -> None:
        self._section = section
        self._make = import_object(section.estimator, root)
        self._metrics = {name: import_object(named, root) for name, named in section.metrics.items()}
        super().__init__({"estimator": (self._make, frozenset())}, section.args)

    def check(self, hparams: HParams) -> None:
        super().check(hparams)
        with generators.borrowed():
            estimator = self._new_estimator(self.values_for(hparams, 1, 1))
            check_estimator(estimator, self._section.estimator, self._section.classes)

    def set_threads(self, threads: int) -> None:
        """Set the threads of BLAS and OpenMP."""
        threadpoolctl.threadpool_limits(threads)

    def learner(self, job: UnitJob) -> EstimatorLearner:
        if job.state is None:
            estimator = self._new_estimator(self.values(job))
            objects = objects_of(estimator)
        else:
            estimator, objects = self._decoded(self.values(job), job.state, job.seed)
        if job.inherits is not None:
            settings = self._new_estimator(self.values(job)).get_params()
            estimator.set_params(**{key: value for key, value in settings.items() if _is_setting(value)})
        return EstimatorLearner(estimator, objects, self._section.classes, self._metrics)

    def export(self, hparams: HParams, state: TaskState, seed: int, epochs: int, batches: int) -> Exported:
        """The arrays that prediction needs. Objects inside the estimator are left out, and named."""
        all_values = self.values_for(hparams, epochs, batches)
        estimator, _ = self._decoded(all_values, state, seed)
        values = select_arguments(self._make, all_values)
        learned = [
            (at, step, key, value)
            for at, step in enumerate(steps_of(estimator))
            for key, value in vars(step).items()
            if key not in step.get_params()
        ]
        scalars = {
            f"{at}.{key}": value.item() if isinstance(value, np.generic) else value
            for at, _, key, value in learned
            if isinstance(value, str | int | float | bool | np.generic)
        }
        objects = [
            f"{type(value).__name__} {key} of {type(step).__name__}"
            for _, step, key, value in learned
            if hasattr(value, "__dict__")
        ]
        module, _, name = self._section.estimator.partition(":")
        load = _LOAD.format(module=module, name=name, values=values, scalars=scalars)
        return Exported(fitted_arrays(estimator), load, not_carried=[*objects, _GENERATORS])

    def _new_estimator(self, values: Mapping[str, Any]) -> Any:
        """A deep copy: the user's function may return objects that all configs share, such as a scaler or a
        generator that is a global variable or a default."""
        return copy.deepcopy(self._make(**select_arguments(self._make, values)))

    def _decoded(self, values: Mapping[str, Any], state: TaskState, seed: int) -> tuple[Any, ObjectGraph]:
        """The estimator of ``state`` and its objects, made again as in the config's first unit."""
        with generators.borrowed():
            generators.seed_all(seed)
            estimator = self._new_estimator(values)
        objects = objects_of(estimator)
        objects.restore(state)
        return estimator, objects


def _is_setting(value: Any) -> bool:
    return isinstance(value, str | int | float | bool | tuple | type(None))


_GENERATORS = "the random generators of numpy and Python: draws without a random_state differ"

_LOAD = """\
from safetensors.numpy import load_file
from {module} import {name}

estimator = {name}(**{values})
steps = [step for _, step in estimator.steps] if hasattr(estimator, "steps") else [estimator]
for path, value in {{**load_file("MODEL"), **{scalars}}}.items():
    step, attribute, *number = path.split(".")
    if number:
        value = [*getattr(steps[int(step)], attribute, []), value]
    setattr(steps[int(step)], attribute, value)
"""
