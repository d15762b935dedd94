"""The contract of the task ``keras``, run by ``test_keras.py`` in a process for each backend."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np

from cerebro_elastic.extending.tasks import TaskState, job_batches
from cerebro_elastic.testing.task_contract import Epoch, TaskContract
from cerebro_keras.section import KerasSection
from cerebro_keras.task import KerasTask

BACKEND: Any = os.environ["KERAS_BACKEND"]
CALLBACKS = {"class": "ReduceLROnPlateau", "args": {"patience": 0, "min_delta": 10.0, "factor": 0.5}}


def model(
    lr: float,
    rate: float = 0.2,
    scale: float = 1.0,
    activation: str | None = "relu",
    bias: bool = True,
    layers: list[int] | None = None,
    options: dict[str, Any] | None = None,
) -> keras.Model:
    layers, options = layers or [], options or {}
    layers.append(6)  # as users do, with the list that they get
    dense = [keras.layers.Dense(width, activation=activation, use_bias=bias) for width in layers]
    parts = [*dense, keras.layers.BatchNormalization(), keras.layers.Dropout(rate), keras.layers.Dense(3)]
    crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def loss(y: Any, p: Any) -> Any:
        return crossentropy(y, p * scale)

    net = keras.Sequential([keras.Input((4,)), *parts])
    decay = options.pop("weight_decay", 0.004)
    net.compile(keras.optimizers.AdamW(lr, weight_decay=decay), loss, metrics=["accuracy"])
    return net


def scheduled(lr: float, steps: int) -> keras.Model:
    net = model(lr)
    schedule = keras.optimizers.schedules.CosineDecay(lr, steps)
    net.compile(keras.optimizers.SGD(schedule, momentum=0.9, use_ema=True), net.loss, metrics=["accuracy"])
    return net


class TestKeras(TaskContract):
    arrays = "numpy"
    hparams = {"lr": 0.1}  # noqa: RUF012
    variants: ClassVar[dict[str, dict[str, Any]]] = {
        "a float of the optimizer": {"lr": 0.0},
        "a float of a layer": {"rate": 0.5},
        "a float in a closure": {"scale": 0.5},
        "null, not a text": {"activation": None},
        "a bool": {"bias": False},
        "a list": {"layers": [3]},
        "a mapping": {"options": {"weight_decay": 0.5}},
        "batch_size": {"batch_size": 2},
    }
    model_fn = staticmethod(model)
    callbacks: tuple[Any, ...] = (CALLBACKS,)
    budget: Mapping[str, int] = {}

    def make(self) -> KerasTask:
        name = f"keras_contract:{self.model_fn.__name__}"
        section = KerasSection(model_fn=name, backend=BACKEND, callbacks=self.callbacks)
        return KerasTask(section, Path(__file__).parent)

    def trained(self, state: TaskState) -> Mapping[str, Any]:
        return {**state["variables"]["model"], **state["variables"]["optimizer"]}

    def sequential(self, epochs: Sequence[Epoch]) -> Mapping[str, Any]:
        keras.utils.clear_session(free_memory=False)
        keras.utils.set_random_seed(self.seed)
        net = self.model_fn(0.1, **self.budget)
        x, y = (np.concatenate(part) for part in zip(*epochs[0].validation, strict=True))
        net.fit(
            (batch for epoch in epochs for batch in epoch.batches),
            steps_per_epoch=len(epochs[0].batches),
            epochs=len(epochs),
            verbose=0,
            shuffle=False,
            validation_data=(x, y),
            validation_batch_size=self.batch_size,
            callbacks=[keras.callbacks.ReduceLROnPlateau(**CALLBACKS["args"])] if self.callbacks else [],
        )
        variables = [*net.variables, *net.optimizer.variables]
        ends = [result.metrics for result in self.trained_units()[2::3]]
        for name, values in net.history.history.items():
            assert [end[name] for end in ends] == values, f"{name} is as one fit reports it"
        return {each.path: keras.ops.convert_to_numpy(each) for each in variables}


def test_a_child_goes_on_with_its_own_learning_rate_and_its_parents_moments() -> None:
    contract = TestKeras()
    (parent,) = contract.trained_units(1)
    job = contract.job(1, parent.state, hparams={"lr": 0.5}, inherits={"lr": 0.1})
    optimizer = contract.task().train(job).state["variables"]["optimizer"]
    assert optimizer["adam_w/learning_rate"] == np.float32(0.5)
    assert optimizer["adam_w/iteration"] == parent.batches + job_batches.unit_batches(job)


class Scheduled(TestKeras):
    model_fn = staticmethod(scheduled)
    callbacks = ()
    budget = {"steps": 18}  # noqa: RUF012


def test_a_schedule_and_averaged_weights_go_on_where_they_were() -> None:
    Scheduled().test_units_equal_sequential_training()
