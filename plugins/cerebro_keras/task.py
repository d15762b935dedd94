"""The task adapter for Keras 3 (entry point ``keras`` of ``cerebro.tasks``).

A unit is one call of ``model.fit`` on the unit's batches, with the variables of model, optimizer and metrics
as the unit before has left them; so all units together are one ``fit`` over the same batches, bit for bit on
the same backend. A model is made once per rank for each set of hyper-parameters, and stays compiled.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.recipes import import_object
from cerebro_elastic.extending.tasks import (
    ArrayTask,
    Exported,
    HParams,
    Learner,
    TaskState,
    UnitJob,
    select_arguments,
)
from cerebro_keras.section import KerasSection

if TYPE_CHECKING:
    from cerebro_keras.model import TrainedModel

_KEPT = 8
"""How many models stay in a rank's memory: those of the configs that it has trained last."""


class KerasTask(ArrayTask):
    """Trains the model that ``section`` names. Modules that import Keras are imported after its backend is
    set."""

    def __init__(self, section: KerasSection, root: Path) -> None:
        os.environ["KERAS_BACKEND"] = section.backend
        import keras

        if keras.backend.backend() != section.backend:
            raise TaskError(
                f"task.backend is {section.backend!r}, and this process has imported Keras with the backend "
                f"{keras.backend.backend()!r}: start another process"
            )
        import_module("cerebro_keras._keras_internals").ignore_warnings_of_short_input()
        if section.backend == "torch":  # dropout draws from torch's generator, else from the model's variable
            self.generators = import_module("cerebro_elastic.extending.state").rng
        self.settings = import_module("cerebro_keras.model").SETTINGS
        self._section = section
        self._root = root
        self._make = import_object(section.model_fn, root)
        self._models: OrderedDict[Any, TrainedModel] = OrderedDict()
        super().__init__({"model_fn": (self._make, frozenset())}, section.args)

    def check(self, hparams: HParams) -> None:
        super().check(hparams)
        self._callbacks()

    def set_threads(self, threads: int) -> None:
        """The backend's threads, set before it computes."""
        if self._section.backend == "torch":
            import torch

            torch.set_num_threads(threads)
        elif threads == 1:
            flags = os.environ.get("XLA_FLAGS", "")
            os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()

    def learner(self, job: UnitJob) -> Learner:
        from cerebro_keras.learner import KerasLearner

        return KerasLearner(self._model(job), self._callbacks(), job)

    def export(self, hparams: HParams, state: TaskState, seed: int, epochs: int, batches: int) -> Exported:
        """The model's variables, in the model's order."""
        del seed
        values = select_arguments(self._make, self.values_for(hparams, epochs, batches))
        module, _, name = self._section.model_fn.partition(":")
        load = _LOAD.format(backend=self._section.backend, module=module, name=name, values=values)
        weights = {f"{at:05d}": array for at, array in enumerate(state["variables"]["model"].values())}
        return Exported(weights, load, not_carried=["the optimizer's state", "the state of callbacks"])

    def _callbacks(self) -> Any:
        from cerebro_keras.learner import make_callbacks

        return make_callbacks(self._section.callbacks, self._root)

    def _model(self, job: UnitJob) -> TrainedModel:
        """The model of the job's config; its values may be those of another unit."""
        key = (job.seed, repr(sorted(select_arguments(self._make, self.values(job)).items())))
        if key not in self._models or not self._models[key].reusable:
            self._models[key] = self._make_model(job)
        self._models.move_to_end(key)
        while len(self._models) > _KEPT:
            self._models.popitem(last=False)
        return self._models[key]

    def _make_model(self, job: UnitJob) -> TrainedModel:
        import keras

        from cerebro_keras.model import TrainedModel, check_model

        keras.utils.clear_session(free_memory=False)  # names count from 1 again
        keras.utils.set_random_seed(job.seed)
        values = select_arguments(self._make, self.values(job))
        model = check_model(self._make(**values), self._section.model_fn)
        return TrainedModel(model, self.generators)


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
