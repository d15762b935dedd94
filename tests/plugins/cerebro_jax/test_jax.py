"""Plain functions and Flax NNX keep the contract of tasks, and are compiled once."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.tasks import TaskState
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.testing.task_contract import Epoch, TaskContract
from cerebro_jax.section import JaxSection
from cerebro_jax.task import JaxTask
from support.same import assert_same

HERE = Path(__file__).parent
TRACES = logging.getLogger("traces")
"""Gets the shapes for which a step was traced."""


def init(key: Any, lr: float, width: int) -> Any:
    first, second = jax.random.split(key)
    params = {
        "hidden": jax.random.normal(first, (4, width), jnp.bfloat16),
        "out": jax.random.normal(second, (width, 3)),
    }
    return params, optax.adam(lr).init(params)


def loss_of(params: Any, x: Any, y: Any, key: Any = None) -> Any:
    hidden = jax.nn.relu(x @ params["hidden"].astype(jnp.float32))
    if key is not None:
        hidden = hidden * jax.random.bernoulli(key, 0.8, hidden.shape) / 0.8
    return optax.softmax_cross_entropy_with_integer_labels(hidden @ params["out"], y).mean()


def step(state: Any, batch: Any, key: Any, lr: float) -> Any:
    (params, moments), (x, y) = state, batch
    TRACES.warning("%s", x.shape)
    loss, gradients = jax.value_and_grad(loss_of)(params, x, y, key)
    updates, moments = optax.adam(lr).update(gradients, moments, params)
    return (optax.apply_updates(params, updates), moments), {"loss": loss}


def evaluate(state: Any, batch: Any) -> dict[str, Any]:
    return {"loss": loss_of(state[0], *batch)}


class TestFunctions(TaskContract):
    arrays = "numpy"
    hparams = {"lr": 0.1, "width": 6}  # noqa: RUF012

    def make(self) -> JaxTask:
        named = {"init_fn": "init", "step_fn": "step", "eval_fn": "evaluate"}
        return JaxTask(JaxSection(**{key: f"{__name__}:{name}" for key, name in named.items()}), HERE)

    def trained(self, state: TaskState) -> Mapping[str, Any]:
        return dict(state["arrays"])

    def sequential(self, epochs: Sequence[Epoch]) -> Mapping[str, Any]:
        state, compiled = init(jax.random.key(self.seed), 0.1, 6), jax.jit(step)
        key = jax.random.fold_in(jax.random.key(self.seed), 1)
        batches = [batch for epoch in epochs for batch in epoch.batches]
        for number, batch in enumerate(batches):
            state, _ = compiled(state, batch, jax.random.fold_in(key, number), 0.1)
        paths = jax.tree_util.tree_flatten_with_path(state)[0]
        return {jax.tree_util.keystr(p, simple=True, separator="."): np.asarray(leaf) for p, leaf in paths}


class Net(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first, self.last = nnx.Linear(4, 6, rngs=rngs), nnx.Linear(6, 3, rngs=rngs)
        self.norm, self.dropout = nnx.BatchNorm(6, rngs=rngs), nnx.Dropout(0.2, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.last(self.dropout(jax.nn.relu(self.norm(self.first(x)))))


def nnx_init(key: Any, lr: float) -> Any:
    model = Net(nnx.Rngs(key))
    return model, nnx.Optimizer(model, optax.adam(lr), wrt=nnx.Param)


def nnx_step(model: Any, optimizer: Any, batch: Any) -> dict[str, Any]:
    def loss_of(model: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(model(batch[0]), batch[1]).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return {"loss": loss}


class Flax(TestFunctions):
    hparams = {"lr": 0.1}  # noqa: RUF012

    def make(self) -> JaxTask:
        section = JaxSection(init_fn=f"{__name__}:nnx_init", step_fn=f"{__name__}:nnx_step")
        return JaxTask(section, HERE)

    def sequential(self, epochs: Sequence[Epoch]) -> Mapping[str, Any]:
        model, optimizer = nnx_init(jax.random.key(self.seed), 0.1)
        compiled = nnx.jit(nnx_step)
        for batch in (batch for epoch in epochs for batch in epoch.batches):
            compiled(model, optimizer, batch)
        leaves = jax.tree_util.tree_flatten_with_path(nnx.state((model, optimizer)))[0]
        named = {jax.tree_util.keystr(p, simple=True, separator="."): leaf for p, leaf in leaves}
        keys = {name for name, leaf in named.items() if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)}
        return {n: np.asarray(jax.random.key_data(v) if n in keys else v) for n, v in named.items()}


def test_objects_of_flax_keep_the_contract_where_they_differ() -> None:
    contract = Flax()
    contract.test_units_equal_sequential_training()
    contract.test_a_unit_in_parts_equals_one_in_one_go(2)


def test_a_step_is_compiled_once_for_a_shape_and_not_for_a_unit_or_a_learning_rate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    contract = TestFunctions()
    task, state = contract.make(), None
    caplog.clear()
    for number in range(2):
        state = task.train(contract.job(number, state)).state
    task.train(contract.job(0, None, hparams={"lr": 0.2, "width": 6}))
    assert sorted(caplog.messages) == ["(2, 4)", "(3, 4)"]
    task.train(contract.job(0, None, hparams={"lr": 0.2, "width": 7}, stop=lambda _done: True))
    assert len(caplog.messages) == 3, "a width is a shape"


def doubles_init(key: Any, lr: float, width: int) -> Any:
    jax.config.update("jax_enable_x64", width == 7)
    return init(key, lr, width)


def test_a_configs_settings_of_jax_are_refused_and_reach_no_other() -> None:
    contract = TestFunctions()
    section = JaxSection(init_fn=f"{__name__}:doubles_init", step_fn=f"{__name__}:step")
    task = JaxTask(section, HERE)
    plain = task.train(contract.job(0, None)).state
    with pytest.raises(TaskError, match=r"jax\.config\.jax_enable_x64 changed from False to True"):
        task.train(contract.job(0, None, hparams={"lr": 0.1, "width": 7}))
    assert not jax.config.jax_enable_x64
    assert_same(dict(task.train(contract.job(0, None)).state), dict(plain))


def wrong(state: Any, batch: Any) -> Any:
    return state, batch


def test_a_step_that_returns_something_else_is_an_error_that_says_what_to_return() -> None:
    section = JaxSection(init_fn=f"{__name__}:init", step_fn=f"{__name__}:wrong")
    contract = TestFunctions()
    with pytest.raises(TaskError, match="expected \\(state, metrics by name\\)"):
        JaxTask(section, HERE).train(contract.job(0, None))


def test_arrays_of_jax_are_stored_as_numpys(tmp_path: Path) -> None:
    arrays = {"f": jnp.arange(3.0), "b": jnp.ones((2, 2), jnp.bfloat16), "scalar": jnp.int32(3)}
    loaded = checkpoint.load(checkpoint.save(arrays, str(tmp_path / "a")))
    for name, array in arrays.items():
        assert type(loaded[name]) is np.ndarray
        assert loaded[name].dtype == array.dtype
        np.testing.assert_array_equal(loaded[name], np.asarray(array))
    ref = checkpoint.save(arrays, str(tmp_path / "b"))
    assert ref.digest == checkpoint.save(loaded, str(tmp_path / "c")).digest, "the digest knows no framework"


def frozen_init(key: Any) -> Any:
    return {"base": jax.random.normal(key, (600, 600)), "head": jnp.zeros((4, 3))}


def frozen_step(state: Any, batch: Any) -> Any:
    """Nothing says that the base is not trained."""
    x, y = batch
    loss, gradient = jax.value_and_grad(lambda head: loss_of({"hidden": jnp.eye(4), "out": head}, x, y))(
        state["head"]
    )
    return {"base": state["base"], "head": state["head"] - 0.1 * gradient}, {"loss": loss}


class Frozen(TestFunctions):
    hparams = {}  # noqa: RUF012

    def make(self) -> JaxTask:
        section = JaxSection(init_fn=f"{__name__}:frozen_init", step_fn=f"{__name__}:frozen_step")
        return JaxTask(section, HERE)


def test_arrays_that_training_leaves_as_they_are_do_not_hop(tmp_path: Path) -> None:
    contract, state = Frozen(), None
    for number in range(3):
        stays = checkpoint.stays_in(state)
        result = contract.make().train(contract.job(number, state))
        url, before = f"{tmp_path}/checkpoints/c0/{number}", {**result.before, **stays}
        ref = checkpoint.stage(result.state).save(url, before=before)
        assert ref.digest == checkpoint.save(result.state, f"{tmp_path}/whole/{number}").digest
        assert ref.base_bytes == 4 * 600 * 600
        state = checkpoint.load(ref)
