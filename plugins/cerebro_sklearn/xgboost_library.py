"""XGBoost for ``boosting``."""

from __future__ import annotations

from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray

from cerebro_sklearn.losses import losses

_BOOSTERS_OWN = frozenset(
    {
        *("alpha", "disable_default_eval_metric", "eta", "feature_selector", "huber_slope", "lambda"),
        *("max_cached_hist_node", "normalize_type", "nthread", "num_class", "one_drop", "quantile_alpha"),
        *("rate_drop", "refresh_leaf", "sample_type", "seed", "seed_per_iteration", "skip_drop", "top_k"),
        *("tweedie_variance_power", "updater"),
    }
)
"""Parameters that the library's estimators lack, or name differently."""


class _XgBoost:
    def known(self) -> frozenset[str]:
        return frozenset(xgboost.XGBModel().get_params()) | _BOOSTERS_OWN

    def train(self, params: dict[str, Any], x: Any, y: Any, rounds: int, before: Any) -> NDArray[np.uint8]:
        data = xgboost.DMatrix(x, y, nthread=params["num_threads"])
        model = None if before is None else _booster(before)
        trained = xgboost.train(_own(params), data, rounds, xgb_model=model)
        return np.frombuffer(trained.save_raw("ubj"), np.uint8)

    def losses(self, params: dict[str, Any], booster: Any, x: Any, y: Any) -> dict[str, float]:
        data = xgboost.DMatrix(x, nthread=params["num_threads"])
        return losses(np.asarray(_booster(booster).predict(data)), y, str(params["objective"]))


def _own(params: dict[str, Any]) -> dict[str, Any]:
    own = {"nthread" if name == "num_threads" else name: value for name, value in params.items()}
    return {"verbosity": 0, **own}


def _booster(data: Any) -> xgboost.Booster:
    return xgboost.Booster(model_file=bytearray(data.tobytes()))


LIBRARY = _XgBoost()
