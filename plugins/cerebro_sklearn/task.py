"""The task adapter for estimators of scikit-learn (entry point ``sklearn`` of ``cerebro.tasks``).

Estimators without a ``random_state`` draw from numpy's global generator, whose state hops with the config.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import threadpoolctl

from cerebro_elastic.extending.recipes import import_object
from cerebro_elastic.extending.tasks import (
    ArrayTask,
    Exported,
    HParams,
    ObjectDecoder,
    TaskState,
    UnitJob,
    generators,
    process_settings,
    select_arguments,
)
from cerebro_sklearn.estimators import EstimatorLearner, check_estimator, fitted_arrays, steps_of
from cerebro_sklearn.section import SklearnSection

LIBRARIES = ("sklearn.", "numpy.random.", "scipy.sparse.")
"""A state's objects are of classes of these libraries, or of the user's module."""


class SklearnTask(ArrayTask):
    """Trains the estimator that ``section`` names by ``partial_fit``, batch after batch."""

    settings = (
        process_settings.Setting(
            "sklearn.set_config", sklearn.get_config, lambda value: sklearn.set_config(**value), carried=True
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
            estimator = self._new_estimator({**self._section.args, **hparams, "epochs": 1, "steps": 1})
            check_estimator(estimator, self._section.estimator, self._section.classes)

    def set_threads(self, threads: int) -> None:
        """Set the threads of BLAS and OpenMP."""
        threadpoolctl.threadpool_limits(threads)

    def learner(self, job: UnitJob) -> EstimatorLearner:
        estimator = self._new_estimator(self.values(job)) if job.state is None else self._decoded(job.state)
        if job.inherits is not None:
            settings = self._new_estimator(self.values(job)).get_params()
            estimator.set_params(**{key: value for key, value in settings.items() if _is_setting(value)})
        return EstimatorLearner(estimator, self._section.classes, self._metrics)

    def describe(self, job: UnitJob) -> Mapping[str, Mapping[str, Any]]:
        return {
            "estimator": {
                name: repr(v) for name, v in self._new_estimator(self.values(job)).get_params().items()
            }
        }

    def export(self, hparams: HParams, state: TaskState, seed: int, epochs: int, batches: int) -> Exported:
        """The arrays that prediction needs. Objects inside the estimator are left out, and named."""
        del seed
        estimator = self._decoded(state)
        budget = {"epochs": epochs, "steps": epochs * batches}
        values = select_arguments(self._make, {**self._section.args, **hparams, **budget})
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

    def _decoded(self, state: TaskState) -> Any:
        module = self._section.estimator.partition(":")[0]
        return ObjectDecoder(module, LIBRARIES).value(state["estimator"])


def _is_setting(value: Any) -> bool:
    return isinstance(value, str | int | float | bool | tuple | type(None))


_GENERATORS = "the random generators of numpy and Python: what draws without a random_state draws anew"

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
