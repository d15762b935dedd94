"""Searchers of Ray Tune that a user might write."""

from __future__ import annotations

from typing import Any

from ray.tune.search import Searcher

LOG: list[Any] = []


class Recorder(Searcher):
    """Records what it learns, and proposes a point only if its seed is odd."""

    def __init__(self, points_to_evaluate: Any = None, seed: Any = None):
        super().__init__()
        self.points, self.seed = list(points_to_evaluate or ()), seed
        LOG.clear()

    def set_search_properties(self, metric: Any, mode: Any, config: Any, **_spec: Any) -> bool:
        LOG.append((metric, mode, sorted(config)))
        return True

    def suggest(self, trial_id: str) -> Any:
        del trial_id
        if self.points:
            return self.points.pop(0)
        return {"lr": 0.5, "width": 7.0, "drop": 0.1, "layers": "[8, 8]"} if self.seed % 2 else None

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        LOG.append((trial_id, result and result["loss"], error))


class Forgetful(Recorder):
    """Takes no points that were tried."""

    def __init__(self, seed: Any = None):
        super().__init__(seed=seed)
