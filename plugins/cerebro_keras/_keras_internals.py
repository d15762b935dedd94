"""Private names of Keras. Tried with Keras 3.15; the contract's tests guard them."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any


def has_chosen_order(callback: Any) -> bool:
    """Whether a callback that monitors a metric has found out whether less or more of it is better: at the
    end of its first epoch, when all metrics are built."""
    return getattr(callback, "monitor_op", None) is not None


def choose_order(callback: Any) -> None:
    """Have the callback find that out now. It forgets its best value for that."""
    callback._set_monitor_op()


def ignore_warnings_of_short_input() -> None:
    """A unit's batches end without notice, which is no mistake here."""
    warnings.filterwarnings("ignore", message="Your input ran out of data")


def dtype_policy() -> Any:
    """The policy of dtypes that was set; ``None`` if it follows ``floatx``. ``keras.config.dtype_policy()``
    would set it."""
    return import_module("keras.src.backend.common.global_state").get_global_attribute("dtype_policy")


def put_dtype_policy(policy: Any) -> None:
    """Set what ``dtype_policy`` has returned."""
    import_module("keras.src.backend.common.global_state").set_global_attribute("dtype_policy", policy)
