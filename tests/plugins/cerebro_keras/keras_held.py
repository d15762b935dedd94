"""What a model of the user's class holds besides listed variables hops, or is refused by name; run by
``test_keras.py`` in a process for each backend."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
import pytest

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.testing.task_contract import Epoch, TaskContract
from cerebro_keras.section import KerasSection
from cerebro_keras.task import KerasTask

BACKEND: Any = os.environ["KERAS_BACKEND"]


class TwoOptimizers(keras.Model):
    """As a GAN: two optimizers that take turns, a counter, a generator, and a list."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.first, self.second = keras.layers.Dense(5), keras.layers.Dense(3)
        self.other = keras.optimizers.Adam(rate)
        self.calls, self.draws, self.seen = 0, np.random.default_rng(3), []

    def call(self, x: Any) -> Any:
        return self.second(self.first(x))

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        self.calls += 1
        self.seen.append(self.calls * self.draws.random())
        self.zero_grad()
        loss = self.compute_loss(x, y, self(x)) * self.seen[-1]
        loss.backward()
        layer, optimizer = (self.first, self.optimizer) if self.calls % 3 else (self.second, self.other)
        variables = layer.trainable_weights
        optimizer.apply([v.value.grad for v in variables], variables)
        return {"loss": loss.detach()}


def model(lr: float, rate: float = 0.1) -> keras.Model:
    net = TwoOptimizers(rate)
    net.build((None, 4))
    net.compile(keras.optimizers.SGD(lr, momentum=0.9), "mse", run_eagerly=True)
    return net


class Counting(keras.layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def call(self, x: Any) -> Any:
        self.calls += 1
        return x * (1 + self.calls)


def counting(lr: float) -> keras.Model:
    net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), Counting()])
    net.compile(keras.optimizers.SGD(lr), "mse")
    return net


def plain(lr: float) -> keras.Model:
    net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    net.compile(keras.optimizers.SGD(lr), "mse")
    return net


def closed(lr: float) -> keras.Model:
    count = [0]

    def loss(y: Any, p: Any) -> Any:
        count[0] += 1
        return keras.ops.mean((p - y) ** 2) * count[0]

    net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    net.compile(keras.optimizers.SGD(lr), loss)
    return net


class Held(TaskContract):
    arrays = "numpy"
    hparams: ClassVar[dict[str, Any]] = {"lr": 0.1}
    variants: ClassVar[dict[str, dict[str, Any]]] = {"a float in an object": {"rate": 0.3}}
    model_fn: Any = staticmethod(model)

    def make(self) -> KerasTask:
        section = KerasSection(model_fn=f"{__name__}:{self.model_fn.__name__}", backend=BACKEND)
        return KerasTask(section, Path(__file__).parent)

    def partition(self, index: int, rows: int) -> Any:
        whole = super().partition(index, rows)
        whole.columns["y"] = np.eye(3, dtype=np.float32)[whole.columns["y"]]  # type: ignore[index]
        return whole

    def trained(self, state: Any) -> Any:
        others = {name: each["values"] for name, each in state["variables"]["held"]["optimizers"].items()}
        return {
            **state["variables"]["model"],
            **{f"{n}.{i}": v for n, vs in others.items() for i, v in enumerate(vs)},
        }

    def sequential(self, epochs: Sequence[Epoch]) -> Any:
        keras.utils.clear_session(free_memory=False)
        keras.utils.set_random_seed(self.seed)
        net = model(0.1)
        batches = (batch for epoch in epochs for batch in epoch.batches)
        steps = len(epochs[0].batches)
        net.fit(batches, steps_per_epoch=steps, epochs=len(epochs), verbose=0, shuffle=False)
        others = {f"model.other.{i}": v for i, v in enumerate(net.other.variables)}
        variables = {**{v.path: v for v in net.variables}, **others}
        return {name: keras.ops.convert_to_numpy(v) for name, v in variables.items()}


@pytest.mark.skipif(BACKEND == "jax", reason="a train_step of jax has one optimizer")
@pytest.mark.parametrize(
    "test",
    [
        "test_units_equal_sequential_training",
        "test_a_result_depends_on_the_job_alone",
        "test_two_configs_on_one_rank_equal_each_alone",
    ],
)
def test_two_optimizers_a_counter_and_a_generator_hop(test: str) -> None:
    getattr(Held(), test)()


@pytest.mark.parametrize(
    ("model_fn", "name"), [(counting, r"^model._layers.2.calls"), (closed, r"\(closed.<locals>.loss\)")]
)
def test_state_that_cannot_hop_is_refused_by_name(model_fn: Any, name: str) -> None:
    if model_fn is counting and BACKEND == "torch":
        pytest.skip("it hops")
    contract = Held()
    contract.model_fn = model_fn
    with pytest.raises(TaskError, match=f"{name}.*changed in training, which cannot hop"):
        contract.make().train(contract.job(0, None))


class Keeping(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.batches: set[int] = set()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del logs
        self.batches.add(batch)


def test_a_callback_with_state_that_cannot_hop_is_refused_by_name() -> None:
    callbacks = (f"{__name__}:Keeping",)
    section = KerasSection(model_fn=f"{__name__}:plain", backend=BACKEND, callbacks=callbacks)
    task = KerasTask(section, Path(__file__).parent)
    with pytest.raises(TaskError, match=r"Keeping\.batches changed in training, which cannot hop"):
        task.train(Held().job(0, None))
