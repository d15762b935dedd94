"""Configs of one rank share compiled functions, and nothing else: each trains as it does alone, and as one
ordinary run of the same functions does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.tasks import job_batches
from cerebro_elastic.testing.task_contract import TaskContract, hop
from cerebro_jax.section import JaxSection
from cerebro_jax.task import JaxTask

HERE = Path(__file__).parent


@pytest.fixture(autouse=True, scope="module")
def compiled_fast() -> Iterator[None]:
    """What a config's program is, not how fast it runs, is tested here."""
    jax.config.update("jax_exec_time_optimization_effort", -1.0)
    yield
    jax.config.update("jax_exec_time_optimization_effort", 0.0)


def init(
    ratio: float = 1.0, width: int = 3, layers: list[int] | None = None, options: dict[str, Any] | None = None
) -> Any:
    options, layers = options or {}, layers or []
    layers.append(round(width * ratio))  # as users do, with the list that they get
    return [np.full((4, sum(layers)), 0.5, options.pop("dtype", "float32"))]


def step(
    state: Any,
    batch: Any,
    lr: float,
    limit: float = 1.0,
    activation: str | None = None,
    scaled: bool = True,
    power: int = 1,
) -> Any:
    x = batch[0] ** power if activation is None else getattr(jnp, activation)(batch[0])
    rate = lr * 0.1 if scaled else lr
    if limit < 0.5:  # Python has to know it
        rate = rate * limit
    gradient = x.T @ (x @ state[0])
    return [(state[0] - rate * gradient).astype(state[0].dtype)], {"norm": jnp.abs(gradient).sum()}


class Configs(TaskContract):
    arrays = "numpy"
    hparams: ClassVar[dict[str, Any]] = {"lr": 0.1}
    variants: ClassVar[dict[str, dict[str, Any]]] = {
        "a float of the optimizer": {"lr": 0.0},
        "a float of the architecture": {"ratio": 2.0},
        "a float that Python compares": {"limit": 0.25},
        "another": {"limit": 0.125},
        "an int": {"power": 2},
        "a text, not null": {"activation": "tanh"},
        "a bool": {"scaled": False},
        "a list": {"layers": [1, 1]},
        "a mapping": {"options": {"dtype": "float16"}},
        "batch_size": {"batch_size": 2},
    }
    functions: ClassVar[tuple[Any, Any]] = (init, step)

    def make(self) -> JaxTask:
        init_fn, step_fn = (f"{__name__}:{function.__name__}" for function in self.functions)
        return JaxTask(JaxSection(init_fn=init_fn, step_fn=step_fn), HERE)


class Net(nnx.Module):
    def __init__(self, scale: float) -> None:
        self.weights, self.scale = nnx.Param(jnp.full((4,), 0.5)), scale

    def __call__(self, x: Any) -> Any:
        return (x @ self.weights) * self.scale


def nnx_init(lr: float, scale: float = 1.0, power: int = 1) -> Any:
    model = Net(scale)
    return model, nnx.Optimizer(model, optax.sgd(lambda count: lr * (count + 1.0) ** power), wrt=nnx.Param)


def nnx_step(model: Any, optimizer: Any, batch: Any, weight: float = 1.0) -> dict[str, Any]:
    loss, gradients = nnx.value_and_grad(lambda model: weight * (model(batch[0]) ** 2).mean())(model)
    optimizer.update(model, gradients)
    return {"loss": loss}


class Objects(Configs):
    variants: ClassVar[dict[str, dict[str, Any]]] = {
        "a float in a closure": {"lr": 0.0},
        "a float in an object": {"scale": 0.5},
        "a float of the step": {"weight": 0.5},
    }
    functions = (nnx_init, nnx_step)


@pytest.mark.parametrize("contract", [Configs, Objects])
def test_two_configs_on_one_rank_equal_each_alone(contract: type[Configs]) -> None:
    contract().test_two_configs_on_one_rank_equal_each_alone()


def trained(contract: Configs, **hparams: Any) -> Mapping[str, Any]:
    """The state after two units in other processes' tasks, each with its way through a checkpoint."""
    state: Any = None
    for number in range(2):
        state = contract.make().train(contract.job(number, state, hparams=hparams)).state
    return hop(state)


def batches(contract: Configs) -> list[Any]:
    jobs = [contract.job(number, None) for number in range(2)]
    return [batch for job in jobs for batch in job_batches.training_batches(job)]


def weak_init() -> Any:
    return {
        "weights": jnp.full((4,), 0.5, jnp.bfloat16),
        "scale": 1.0,
        "of": jnp.full(4, 2.0),
    }


def keys_init() -> Any:
    return {"key": jax.random.key(3, impl="rbg"), "sum": jnp.zeros(())}


def keys_step(state: Any, batch: Any) -> Any:
    return {**state, "sum": state["sum"] + jax.random.uniform(state["key"])}, {"loss": batch[0].sum()}


class Keys(Configs):
    functions = (keys_init, keys_step)


def test_a_key_keeps_its_generator() -> None:
    contract, state, compiled = Keys(), keys_init(), jax.jit(keys_step)
    for batch in batches(contract):
        state, _ = compiled(state, batch)
    after = trained(contract)
    np.testing.assert_array_equal(after["arrays"]["sum"], state["sum"])
    np.testing.assert_array_equal(after["arrays"]["key"], jax.random.key_data(state["key"]))


def layered_init(key: Any) -> Any:
    return [jax.random.normal(key, (4, 3)), jax.nn.relu, jnp.ravel, None]


def layered_step(state: Any, batch: Any) -> Any:
    def loss(weights: Any) -> Any:
        return state[2](state[1](batch[0] @ weights)).mean()

    value, gradient = jax.value_and_grad(loss)(state[0])
    return [state[0] - gradient, *state[1:]], {"loss": value}


def test_functions_among_the_layers_need_not_hop() -> None:
    class Layered(Configs):
        functions = (layered_init, layered_step)

    contract = Layered()
    first = contract.make().train(contract.job(0, None)).state
    assert set(first["arrays"]) == {"0"}
    second = contract.make().train(contract.job(1, first)).state
    assert not np.array_equal(first["arrays"]["0"], second["arrays"]["0"])


def renaming_step(state: Any, batch: Any) -> Any:
    return [state[0], jax.nn.gelu, *state[2:]], {"loss": batch[0].mean()}


def counting_step(model: Any, optimizer: Any, batch: Any) -> dict[str, Any]:
    del optimizer
    model.scale = model.scale + 1
    return {"loss": model(batch[0]).mean()}


def updating_step(model: Any, optimizer: Any, batch: Any) -> Any:
    return optimizer, {"loss": model(batch[0]).mean()}


def naming_init() -> Any:
    return {"weights": jnp.zeros(4), "activation": "relu"}


def growing_step(state: Any, batch: Any) -> Any:
    return {**state, "more": batch[0]}, {"loss": batch[0].mean()}


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ((nnx_init, counting_step), "step_fn changes scale of an object of Flax NNX"),
        ((nnx_init, updating_step), "updating_step returned a tuple: expected metrics by name"),
        ((naming_init, growing_step), "activation of the state is a str, and not an array"),
        ((layered_init, renaming_step), "step_fn changes a function or a number of Python"),
        ((weak_init, growing_step), "of another structure than init_fn \\(more\\): return the structure"),
    ],
)
def test_state_that_cannot_hop_is_refused_by_name(functions: Any, message: str) -> None:
    contract = Configs()
    contract.functions = functions  # type: ignore[misc]
    with pytest.raises(TaskError, match=message):
        contract.make().train(contract.job(0, None, hparams={"lr": 0.1} if functions[0] is nnx_init else {}))


def same(batch: Any) -> Any:
    return batch
