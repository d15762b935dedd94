"""The task adapter for estimators of scikit-learn (entry point ``sklearn`` of ``cerebro.tasks``)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.recipes import import_object
from cerebro_elastic.extending.tasks import (
    Exported,
    HParams,
    Stopped,
    TaskState,
    UnitJob,
    UnitResult,
    check_taken,
    generators,
    job_batches,
    known_names,
    not_finite_arrays,
    select_arguments,
)
from cerebro_sklearn.estimators import check_estimator, learn, measure, steps_of
from cerebro_sklearn.objects import ObjectDecoder, ObjectEncoder
from cerebro_sklearn.section import SklearnSection


class SklearnTask:
    """Trains the estimator that ``section`` names by ``partial_fit``, batch after batch.

    What draws at random without a ``random_state`` draws from numpy's global generator, whose state hops with
    the config.
    """

    def __init__(self, section: SklearnSection, root: Path) -> None:
        self._section = section
        self._make = import_object(section.estimator, root)
        self._takers = {"estimator": (self._make, frozenset[str]())}
        self._metrics = {name: import_object(named, root) for name, named in section.metrics.items()}

    @property
    def evaluates(self) -> bool:
        return True

    @property
    def splits(self) -> bool:
        return True

    def check(self, hparams: HParams) -> None:
        job_batches.check_batch_size(hparams)
        check_taken(self._takers, self._section.args, hparams)
        with generators.borrowed():
            check_estimator(self._made(hparams), self._section.estimator, self._section.classes)

    def takes(self, name: str) -> bool:
        """Whether the estimator takes a hyper-parameter of this name."""
        known = known_names(self._takers.values())
        return known is None or name in known

    def set_threads(self, threads: int) -> None:
        """Those of BLAS and OpenMP."""
        threadpoolctl.threadpool_limits(threads)

    def train(self, job: UnitJob) -> UnitResult:
        with generators.borrowed():
            estimator, step = self._taken_up(job)
            done = job.skip
            with suppress(Stopped):
                for batch in job_batches.training_batches(job):
                    learn(estimator, batch, self._section.classes)
                    done += 1
            step += done - job.skip
            whole = done == job_batches.unit_batches(job)
            metrics = self._measured(estimator, job, job.validation) if whole and job.validates else {}
            state = {
                "estimator": ObjectEncoder().tree(estimator),
                "generators": generators.capture(),
                "step": step,
            }
        return UnitResult(
            state=state,
            samples=job_batches.rows_until(job, done),
            batches=done - job.skip,
            metrics=metrics,
            log=[{"step": step, "epoch": job.unit.epoch, **metrics}] if whole else [],
            whole=whole,
            not_finite=not_finite_arrays(metrics, fitted_arrays(estimator).items()) if whole else None,
        )

    def evaluate(self, job: UnitJob) -> UnitResult:
        if job.state is None:
            raise TaskError(f"{job.unit}: an evaluation needs a trained state")
        with generators.borrowed():
            estimator, _ = self._taken_up(job)
            metrics = self._measured(estimator, job, [job.partition])
        return UnitResult(job.state, job.partition.rows, job_batches.unit_batches(job), metrics)

    def export(self, hparams: HParams, state: TaskState, seed: int, epochs: int, batches: int) -> Exported:
        """The arrays that prediction needs. Objects inside the estimator are left out, and named."""
        del seed, epochs, batches
        estimator = self._decoded(state)
        module, _, name = self._section.estimator.partition(":")
        values = select_arguments(self._make, {**self._section.args, **hparams})
        scalars = {
            f"{at}.{key}": value.item() if isinstance(value, np.generic) else value
            for at, step in enumerate(steps_of(estimator))
            for key, value in vars(step).items()
            if key not in step.get_params() and isinstance(value, str | int | float | bool | np.generic)
        }
        objects = [
            f"{type(value).__name__} {key} of {type(step).__name__}"
            for step in steps_of(estimator)
            for key, value in vars(step).items()
            if key not in step.get_params() and hasattr(value, "__dict__")
        ]
        load = _LOAD.format(module=module, name=name, values=values, scalars=scalars)
        return Exported(fitted_arrays(estimator), load, not_carried=[*objects, _GENERATORS])

    def _made(self, hparams: HParams) -> Any:
        return self._make(**select_arguments(self._make, {**self._section.args, **hparams}))

    def _taken_up(self, job: UnitJob) -> tuple[Any, int]:
        if job.state is None:
            generators.seed_all(job.seed)
            return self._made(job.hparams), 0
        estimator = self._decoded(job.state)
        if job.inherits is not None:
            made = self._made(job.hparams).get_params()
            estimator.set_params(**{key: value for key, value in made.items() if _is_setting(value)})
        generators.restore(job.state["generators"])
        return estimator, job.state["step"]

    def _decoded(self, state: TaskState) -> Any:
        return ObjectDecoder(self._section.estimator.partition(":")[0]).value(state["estimator"])

    def _measured(self, estimator: Any, job: UnitJob, partitions: Any) -> dict[str, float]:
        return measure(estimator, list(job_batches.natural_batches(job, partitions)), self._metrics)


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
