"""The task adapter for LightGBM and XGBoost (entry point ``boosting`` of ``cerebro.tasks``).

A unit continues the booster by ``rounds`` rounds of trees, which are fitted to the residuals on its
partition's rows alone. That is continued training, as both libraries call it. It is not sequential SGD: the
rows of each tree depend on the order of partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.extending.errors import MissingExtra, TaskError, did_you_mean, install_extra
from cerebro_elastic.extending.tasks import (
    ArrayTask,
    Exported,
    HParams,
    Learner,
    TaskState,
    UnitBatches,
    UnitJob,
    job_batches,
)
from cerebro_sklearn.section import BoostingSection

_OURS = frozenset({"batch_size", "rounds"})
_EARLY_STOPPING = frozenset(
    {"early_stopping", "early_stopping_round", "early_stopping_rounds", "n_iter_no_change"}
)
_BOOSTING = frozenset({"boosting", "boosting_type", "boost"})
"""LightGBM's names of its boosting methods."""
_SHOWN = 5
"""How many of a library's hundreds of parameters an error names."""
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


class BoostingTask(ArrayTask):
    """Continues a booster with each unit, whose rows are fitted all at once."""

    def __init__(self, section: BoostingSection, root: Path) -> None:
        del root
        super().__init__({}, {})
        self._section = section
        self._threads = 1
        try:
            self._library = library(section.library)
        except ImportError as exc:
            raise MissingExtra(f"{section.library} is not installed: {install_extra('boosting')}") from exc

    @property
    def splits(self) -> bool:
        return False

    def set_threads(self, threads: int) -> None:
        self._threads = threads

    def check(self, hparams: HParams) -> None:
        job_batches.check_batch_size(hparams)
        given = {**self._section.params, **hparams}
        if "objective" not in given:
            raise TaskError("boosting needs an objective: give task.params.objective, such as multiclass")
        if stopping := sorted(given.keys() & _EARLY_STOPPING):
            raise TaskError(
                f"{stopping[0]}: a unit adds all of its rounds; to stop configs early choose a search that "
                "does, such as `search: {method: asha}`"
            )
        for name in sorted(given.keys() & _BOOSTING):
            if given[name] in ("rf", "random_forest"):
                raise TaskError(
                    f"{name}: {given[name]}: LightGBM does not continue the training of a random forest, and "
                    "each unit continues that before it: choose gbdt or dart"
                )
        for name, value in given.items():
            if isinstance(value, str) and value.startswith("name:"):
                raise TaskError(
                    f"{name} is {value!r}: {self._section.library} gets a matrix, whose columns have no "
                    "names: give their numbers from 0 in the order of the data's columns, such as '0,2'"
                )
        known = self._library.known() | _OURS
        for name in given.keys() - known:
            near = did_you_mean(name, get_close_matches(name, known, _SHOWN, 0.0))
            raise TaskError(f"{self._section.library} has no parameter {name!r}; {near}")

    def takes(self, name: str) -> bool:
        return name in self._library.known() | _OURS

    def learner(self, job: UnitJob) -> BoosterLearner:
        given = {**self._section.params, **job.hparams}
        params = {name: value for name, value in given.items() if name not in _OURS}
        params |= {"seed": job.seed % 2**31, "num_threads": self._threads}
        rounds = int(given.get("rounds", self._section.rounds))
        booster = job.state["booster"] if job.state is not None else None
        return BoosterLearner(self._library, params, rounds, booster)

    def export(self, hparams: HParams, state: TaskState, seed: int, epochs: int, batches: int) -> Exported:
        """The booster in its library's own format, as bytes."""
        del hparams, seed, epochs, batches
        return Exported({"booster": state["booster"]}, self._library.load)


class BoosterLearner(Learner):
    """A booster as the bytes of its library's format."""

    def __init__(self, library: Library, params: dict[str, Any], rounds: int, booster: Any) -> None:
        self._library = library
        self._params = params
        self._rounds = rounds
        self._booster = booster

    def learn(self, batches: UnitBatches) -> Mapping[str, float]:
        x, y = _rows(list(batches))
        self._booster = self._library.train(self._params, x, y, self._rounds, self._booster)
        return {}

    def measure(self, batches: Iterator[Any]) -> Mapping[str, float]:
        x, y = _rows(list(batches))
        return self._library.losses(self._params, self._booster, x, y)

    def state(self) -> Mapping[str, Any]:
        return {"booster": self._booster}

    def arrays(self) -> Mapping[str, Any]:
        return self.state()


def _rows(batches: list[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    x = np.concatenate([np.asarray(x).reshape(len(x), -1) for x, *_ in batches])
    return x, np.concatenate([np.asarray(y) for _, y, *_ in batches])


class Library(Protocol):
    """The interface of both libraries. Each is imported on use, since the other may not be installed."""

    load: str
    """Python code that loads an exported booster."""

    def known(self) -> frozenset[str]:
        """The library's parameters."""

    def train(self, params: dict[str, Any], x: Any, y: Any, rounds: int, before: Any) -> NDArray[np.uint8]:
        """Continue the booster ``before`` by ``rounds`` rounds. Boosters are bytes."""

    def losses(self, params: dict[str, Any], booster: Any, x: Any, y: Any) -> dict[str, float]:
        """The library's own metrics over rows, by name."""


class _LightGbm:
    load = """\
import lightgbm
from safetensors.numpy import load_file

booster = lightgbm.Booster(model_str=load_file("MODEL")["booster"].tobytes().decode())
"""

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
    load = """\
import xgboost
from safetensors.numpy import load_file

booster = xgboost.Booster(model_file=bytearray(load_file("MODEL")["booster"].tobytes()))
"""

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
