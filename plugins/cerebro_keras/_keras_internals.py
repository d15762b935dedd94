"""Private names of Keras. Tried with Keras 3.15; the contract's tests guard them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import keras

_CHANGING = {
    "_compile_loss", "_compile_metrics", "_compiled_trainable_state", "_eval_epoch_iterator", "_functional",
    "_jax_state", "_jax_state_synced", "_model", "_monitor_op", "_trainable_variables_indices", "history",
    "model", "optimizer", "params", "predict_function", "stop_evaluating", "stop_predicting", "stop_training",
    "test_function", "train_function", "training", "validation_data",
}  # fmt: skip
"""Attributes that Keras sets on models, layers and callbacks while it trains them."""

GRAPH = {
    "_functional", "_inbound_nodes", "_inputs", "_inputs_struct", "_nodes", "_nodes_by_depth", "_operations",
    "_operations_by_depth", "_outbound_nodes", "_outputs", "_outputs_struct", "_tracker",
}  # fmt: skip
"""Attributes that lead from a layer to others, which are among the layers of their model anyway."""


@functools.cache
def own_names() -> frozenset[str]:
    """The attributes of models and layers that are Keras', and not the user's."""
    return frozenset({*_CHANGING, *vars(keras.Model()), *vars(keras.layers.Layer())})


def trained_by(optimizer: Any) -> Sequence[Any]:
    """The variables that an optimizer has been built for."""
    return list(getattr(optimizer, "_trainable_variables", ()))


def build_for(optimizer: Any, variables: Sequence[Any]) -> None:
    """Build the optimizer for these variables, unless it is built."""
    if variables and not optimizer.built:
        optimizer.build(variables)


def has_chosen_order(callback: Any) -> bool:
    """Whether a callback that monitors a metric has found out whether less or more of it is better: at the
    end of its first epoch, when all metrics are built."""
    return getattr(callback, "monitor_op", None) is not None


def choose_order(callback: Any) -> None:
    """Have the callback choose its mode now. It forgets its best value for that."""
    callback._set_monitor_op()


def ignore_warnings_of_short_input() -> None:
    """A unit's batches end without notice; that is no mistake here."""
    warnings.filterwarnings("ignore", message="Your input ran out of data")


def dtype_policy() -> Any:
    """The policy of dtypes that was set; ``None`` if it follows ``floatx``. ``keras.config.dtype_policy()``
    would set it."""
    return import_module("keras.src.backend.common.global_state").get_global_attribute("dtype_policy")


def put_dtype_policy(policy: Any) -> None:
    """Set the policy that ``dtype_policy`` has returned."""
    import_module("keras.src.backend.common.global_state").set_global_attribute("dtype_policy", policy)
