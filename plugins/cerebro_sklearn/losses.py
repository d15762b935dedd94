"""Losses of predictions, alike for both libraries of boosting."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_LEAST = 1e-15
"""Probabilities are clipped to this value from below, so that the loss stays finite."""


def losses(predicted: NDArray[Any], y: NDArray[Any], objective: str) -> dict[str, float]:
    """Log loss and accuracy of probabilities, for an objective of classes; else the mean squared error."""
    if predicted.ndim == 2:
        chosen = predicted[np.arange(len(y)), y.astype(np.int64)]
        return {
            "loss": float(-np.log(np.clip(chosen, _LEAST, None)).mean()),
            "accuracy": float((predicted.argmax(1) == y).mean()),
        }
    if objective.startswith(("binary", "cross")):
        right = np.where(y == 1, predicted, 1 - predicted)
        return {
            "loss": float(-np.log(np.clip(right, _LEAST, None)).mean()),
            "accuracy": float(((predicted > 0.5) == y).mean()),
        }
    return {"loss": float(((predicted - y) ** 2).mean())}
