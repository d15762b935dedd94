"""The task adapter for Keras 3 (entry point ``keras`` of ``cerebro.tasks``).

``model_fn(<hyper-parameters>, epochs, steps)`` makes the compiled model. A unit is one call of ``model.fit``
on the unit's batches, with the variables of model, optimizer and metrics as the unit before has left them; so
all units together are one ``fit`` over the same batches, bit for bit on the same backend. The model is made
once per rank for each set of hyper-parameters, and stays compiled.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

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
    job_batches,
    known_names,
    not_finite_arrays,
    select_arguments,
)
from cerebro_keras._keras_internals import ignore_warnings_of_short_input
from cerebro_keras.section import KerasSection

_BUDGET = frozenset({"epochs", "steps"})
_KEPT = 8
"""So many models stay in a rank's memory: those of the configs that it has trained last."""


class KerasTask:
    """Trains the model that ``section`` names."""

    def __init__(self, section: KerasSection, root: Path) -> None:
        os.environ["KERAS_BACKEND"] = section.backend
        import keras

        if keras.backend.backend() != section.backend:
            raise TaskError(
                f"task.backend is {section.backend!r}, and this process has imported Keras with the backend "
                f"{keras.backend.backend()!r}: start another process"
            )
        ignore_warnings_of_short_input()
        # Dropout draws from torch's generator, or from a variable of the model: then torch is not imported.
        module = "torch_tasks" if section.backend == "torch" else "tasks"
        home = import_module(f"cerebro_elastic.extending.{module}")
        self._generators = home.rng if section.backend == "torch" else home.generators
        self._section = section
        self._root = root
        self._make = import_object(section.model_fn, root)
        self._takers = {"model_fn": (self._make, _BUDGET)}
        self._models: OrderedDict[Any, Any] = OrderedDict()

    @property
    def evaluates(self) -> bool:
        return True

    @property
    def splits(self) -> bool:
        return True

    def check(self, hparams: HParams) -> None:
        from cerebro_keras.callbacks import make_callbacks

        job_batches.check_batch_size(hparams)
        check_taken(self._takers, self._section.args, hparams, _BUDGET)
        make_callbacks(self._section.callbacks, self._root)

    def takes(self, name: str) -> bool:
        """Whether ``model_fn`` takes a hyper-parameter of this name."""
        known = known_names(self._takers.values())
        return known is None or name in known

    def set_threads(self, threads: int) -> None:
        """The backend's, before it computes."""
        if self._section.backend == "torch":
            import torch

            torch.set_num_threads(threads)
        elif threads == 1:
            flags = os.environ.get("XLA_FLAGS", "")
            os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()

    def train(self, job: UnitJob) -> UnitResult:
        with self._generators.borrowed():
            return self._trained(job)

    def _trained(self, job: UnitJob) -> UnitResult:
        from cerebro_keras.callbacks import UnitCallbacks, make_callbacks

        trained = self._model(job)
        state = job.state or {"step": 0, "done": 0}
        begins = not job.visited and not job.skip
        before = 0 if begins else state["done"]
        batches = _Batches(job)

        def begin() -> None:
            trained.load(job.state and job.state["variables"], keep_rate=job.inherits is not None)
            if job.state is not None:
                callbacks.load(job.state["callbacks"])
                self._generators.restore(job.state["generators"])

        callbacks = UnitCallbacks(
            make_callbacks(self._section.callbacks, self._root),
            job,
            before,
            begin=begin,
            continue_epoch=lambda: trained.load_metrics(state["metrics"]),
            continue_draws=lambda: self._generators.restore(state["generators"]),
            whole=lambda: batches.whole,
        )
        epoch = job.unit.epoch
        trained.model.fit(
            batches.training(),
            initial_epoch=epoch,
            epochs=epoch + 1,
            verbose=0,
            shuffle=False,
            callbacks=[callbacks],
            validation_data=_validation(job) if job.validates else None,
            validation_freq=batches.validated_epochs,
        )
        whole, count = batches.whole, batches.done - job.skip
        variables, logs = trained.values(), callbacks.logs
        step = state["step"] + count
        return UnitResult(
            state={
                "variables": variables,
                "metrics": trained.metrics(),
                "callbacks": callbacks.state(),
                "generators": self._generators.capture(),
                "done": before + count,
                "step": step,
            },
            samples=job_batches.rows_until(job, batches.done),
            batches=count,
            metrics=logs,
            log=[{"step": step, "epoch": epoch, **logs}] if whole else [],
            done=whole and job.last and bool(trained.model.stop_training),
            whole=whole,
            not_finite=not_finite_arrays(logs, variables["model"].items()) if whole else None,
        )

    def evaluate(self, job: UnitJob) -> UnitResult:
        if job.state is None:
            raise TaskError(f"{job.unit}: an evaluation needs a trained state")
        from cerebro_keras.callbacks import LoadsAtTest

        state = job.state
        with self._generators.borrowed():
            trained = self._model(job)
            loading = LoadsAtTest(lambda: trained.load(state["variables"]))
            logs = trained.model.evaluate(
                _natural(job, [job.partition]), verbose=0, return_dict=True, callbacks=[loading]
            )
        metrics = {f"val_{name}": float(value) for name, value in logs.items()}
        return UnitResult(job.state, job.partition.rows, job_batches.unit_batches(job), metrics)

    def export(self, hparams: HParams, state: TaskState, seed: int, epochs: int, batches: int) -> Exported:
        """The model's variables, in the order in which the model has them."""
        del seed
        budget = {"epochs": epochs, "steps": epochs * batches}
        values = select_arguments(self._make, {**self._section.args, **hparams, **budget})
        module, _, name = self._section.model_fn.partition(":")
        load = _LOAD.format(backend=self._section.backend, module=module, name=name, values=values)
        weights = {f"{at:05d}": array for at, array in enumerate(state["variables"]["model"].values())}
        return Exported(weights, load, not_carried=["the optimizer's state", "the state of callbacks"])

    def _model(self, job: UnitJob) -> Any:
        """The model of the job's config, which may have other values now."""
        import keras

        from cerebro_keras.model import TrainedModel, check_model

        budget = {"epochs": job.epochs, "steps": job.epochs * job_batches.epoch_batches(job)}
        values = select_arguments(self._make, {**self._section.args, **job.hparams, **budget})
        key = (job.seed, repr(sorted(values.items())))
        if key not in self._models:
            keras.utils.clear_session(free_memory=False)  # names count from 1 again
            keras.utils.set_random_seed(job.seed)
            model = check_model(self._make(**values), self._section.model_fn)
            self._models[key] = TrainedModel(model, self._generators)
        self._models.move_to_end(key)
        while len(self._models) > _KEPT:
            self._models.popitem(last=False)
        return self._models[key]


class _Batches:
    """The unit's batches, and how many of its partition are trained."""

    def __init__(self, job: UnitJob) -> None:
        self._job = job
        self.done = job.skip
        self.validated_epochs = [job.unit.epoch + 1]
        """The epochs that Keras validates, counted from 1: none if the unit is stopped before its end."""

    @property
    def whole(self) -> bool:
        """Whether all are."""
        return self.done == job_batches.unit_batches(self._job)

    def training(self) -> Iterator[Any]:
        """Keras trains each that is taken."""
        try:
            for batch in job_batches.training_batches(self._job):
                self.done += 1
                yield batch
        except Stopped:
            self.validated_epochs.clear()


def _validation(job: UnitJob) -> Iterator[Any]:
    return _natural(job, job.validation)


def _natural(job: UnitJob, partitions: Any) -> Iterator[Any]:
    yield from job_batches.natural_batches(job, partitions)


_LOAD = """\
import os

os.environ["KERAS_BACKEND"] = "{backend}"
from safetensors.numpy import load_file
from {module} import {name}

model = {name}(**{values})
arrays = load_file("MODEL")
# A model without an input shape has variables once it was called with a batch: model(batch).
for variable, name in zip(model.variables, sorted(arrays), strict=True):
    variable.assign(arrays[name])
"""
