"""LightGBM and XGBoost for ``boosting``. Each is imported on use, since the other may not be installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

_LEAST = 1e-15
"""Probabilities are clipped to this value from below, so that the loss stays finite."""
_XGBOOSTS_OWN = frozenset(
    {
        *("alpha", "disable_default_eval_metric", "eta", "feature_selector", "huber_slope", "lambda"),
        *("max_cached_hist_node", "normalize_type", "nthread", "num_class", "one_drop", "quantile_alpha"),
        *("rate_drop", "refresh_leaf", "sample_type", "seed", "seed_per_iteration", "skip_drop", "top_k"),
        *("tweedie_variance_power", "updater"),
    }
)
"""Parameters that XGBoost's estimators lack, or name differently."""


class Library(Protocol):
    """The interface of both libraries."""

    def known(self) -> frozenset[str]:
        """The parameters that the library knows."""

    def train(self, params: dict[str, Any], x: Any, y: Any, rounds: int, before: Any) -> NDArray[np.uint8]:
        """Continue the booster ``before`` by ``rounds`` rounds. Boosters are bytes."""

    def losses(self, params: dict[str, Any], booster: Any, x: Any, y: Any) -> dict[str, float]:
        """The library's own metrics over rows, by name."""


class _LightGbm:
    def __init__(self) -> None:
        self._lightgbm: Any = import_module("lightgbm")

    def known(self) -> frozenset[str]:
        from cerebro_sklearn._lightgbm_internals import known_parameters

        return known_parameters()

    def train(self, params: dict[str, Any], x: Any, y: Any, rounds: int, before: Any) -> NDArray[np.uint8]:
        all_params = {"verbosity": -1, "deterministic": True, "force_row_wise": True, **params}
        data = self._lightgbm.Dataset(x, y, params=all_params)
        model = None if before is None else self._booster(before)
        trained = self._lightgbm.train(all_params, data, rounds, init_model=model)
        return np.frombuffer(trained.model_to_string().encode(), np.uint8)

    def losses(self, params: dict[str, Any], booster: Any, x: Any, y: Any) -> dict[str, float]:
        return _losses(np.asarray(self._booster(booster).predict(x)), y, str(params["objective"]))

    def _booster(self, text: Any) -> Any:
        return self._lightgbm.Booster(model_str=text.tobytes().decode())


class _XgBoost:
    def __init__(self) -> None:
        self._xgboost: Any = import_module("xgboost")

    def known(self) -> frozenset[str]:
        return frozenset(self._xgboost.XGBModel().get_params()) | _XGBOOSTS_OWN

    def train(self, params: dict[str, Any], x: Any, y: Any, rounds: int, before: Any) -> NDArray[np.uint8]:
        data = self._xgboost.DMatrix(x, y, nthread=params["num_threads"])
        model = None if before is None else self._booster(before)
        own = {"nthread" if name == "num_threads" else name: value for name, value in params.items()}
        trained = self._xgboost.train({"verbosity": 0, **own}, data, rounds, xgb_model=model)
        return np.frombuffer(trained.save_raw("ubj"), np.uint8)

    def losses(self, params: dict[str, Any], booster: Any, x: Any, y: Any) -> dict[str, float]:
        data = self._xgboost.DMatrix(x, nthread=params["num_threads"])
        return _losses(np.asarray(self._booster(booster).predict(data)), y, str(params["objective"]))

    def _booster(self, data: Any) -> Any:
        return self._xgboost.Booster(model_file=bytearray(data.tobytes()))


def library(name: str) -> Library:
    """The library of this name. Raises ``ImportError`` if it is not installed."""
    return _LightGbm() if name == "lightgbm" else _XgBoost()


def _losses(predicted: NDArray[Any], y: NDArray[Any], objective: str) -> dict[str, float]:
    """Log loss and accuracy of probabilities, for an objective of classes; else the mean squared error."""
    if predicted.ndim == 2:
        chosen = predicted[np.arange(len(y)), y.astype(np.int64)]
        right = predicted.argmax(1) == y
    elif objective.startswith(("binary", "cross")):
        chosen = np.where(y == 1, predicted, 1 - predicted)
        right = (predicted > 0.5) == y
    else:
        return {"loss": float(((predicted - y) ** 2).mean())}
    loss = float(-np.log(np.clip(chosen, _LEAST, None)).mean())
    return {"loss": loss, "accuracy": float(right.mean())}
