"""LightGBM for ``boosting``."""

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np
from numpy.typing import NDArray

from cerebro_sklearn._lightgbm_internals import known_parameters
from cerebro_sklearn.losses import losses


class _LightGbm:
    def known(self) -> frozenset[str]:
        return known_parameters()

    def train(self, params: dict[str, Any], x: Any, y: Any, rounds: int, before: Any) -> NDArray[np.uint8]:
        fixed = {"verbosity": -1, "deterministic": True, "force_row_wise": True}
        data = lightgbm.Dataset(x, y, params={**fixed, **params})
        model = None if before is None else _booster(before)
        trained = lightgbm.train({**fixed, **params}, data, rounds, init_model=model)
        return np.frombuffer(trained.model_to_string().encode(), np.uint8)

    def losses(self, params: dict[str, Any], booster: Any, x: Any, y: Any) -> dict[str, float]:
        return losses(np.asarray(_booster(booster).predict(x)), y, str(params["objective"]))


def _booster(text: Any) -> lightgbm.Booster:
    return lightgbm.Booster(model_str=text.tobytes().decode())


LIBRARY = _LightGbm()
