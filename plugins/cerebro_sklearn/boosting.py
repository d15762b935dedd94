"""The task adapter for LightGBM and XGBoost (entry point ``boosting`` of ``cerebro.tasks``).

A unit continues the booster by ``rounds`` rounds of trees, which are fitted to the residuals on its
partition's rows alone. That is continued training, as both libraries call it. It is not sequential SGD: the
order of partitions decides which rows each tree has seen.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.extending.errors import MissingExtra, TaskError, did_you_mean
from cerebro_elastic.extending.tasks import (
    Exported,
    HParams,
    TaskState,
    UnitJob,
    UnitResult,
    job_batches,
)
from cerebro_sklearn.section import BoostingSection

_SHOWN = 5
"""So many of a library's hundreds of parameters are named."""


class Library(Protocol):
    """What both libraries do."""

    def known(self) -> frozenset[str] | None:
        """The parameters that the library knows; ``None`` if it does not list them."""

    def train(self, params: dict[str, Any], x: Any, y: Any, rounds: int, before: Any) -> NDArray[np.uint8]:
        """The bytes of a booster that has ``rounds`` trees more than the one of the bytes ``before``."""

    def losses(self, params: dict[str, Any], booster: Any, x: Any, y: Any) -> dict[str, float]:
        """The library's own metrics over rows, by name."""


class BoostingTask:
    """Continues a booster with each unit."""

    def __init__(self, section: BoostingSection, root: Path) -> None:
        del root
        self._section = section
        self._threads = 1
        try:
            self._library: Library = import_module(f"cerebro_sklearn.{section.library}_library").LIBRARY
        except ImportError as exc:
            raise MissingExtra(
                f"{section.library} is not installed: pip install 'cerebro-elastic[boosting]'"
            ) from exc

    @property
    def evaluates(self) -> bool:
        return True

    @property
    def splits(self) -> bool:
        """A unit's rows are fitted all at once."""
        return False

    def set_threads(self, threads: int) -> None:
        self._threads = threads

    def check(self, hparams: HParams) -> None:
        job_batches.check_batch_size(hparams)
        given = {**self._section.params, **hparams}
        if "objective" not in given:
            raise TaskError("boosting needs an objective: give task.params.objective, such as multiclass")
        known = self._library.known()
        for name in given:
            if known is not None and name not in known | {"batch_size", "rounds"}:
                near = did_you_mean(name, get_close_matches(name, known, _SHOWN, 0.0))
                raise TaskError(f"{self._section.library} has no parameter {name!r}; {near}")

    def train(self, job: UnitJob) -> UnitResult:
        before = job.state["booster"] if job.state is not None else None
        step = (job.state["step"] if job.state is not None else 0) + job_batches.unit_batches(job)
        x, y = _rows(list(job_batches.training_batches(job)))
        rounds = int(job.hparams.get("rounds", self._section.rounds))
        booster = self._library.train(self._params(job), x, y, rounds, before)
        metrics = self._measured(job, booster, job.validation) if job.validates else {}
        return UnitResult(
            state={"booster": booster, "step": step},
            samples=job.partition.rows,
            batches=job_batches.unit_batches(job),
            metrics=metrics,
            log=[{"step": step, "epoch": job.unit.epoch, **metrics}],
        )

    def evaluate(self, job: UnitJob) -> UnitResult:
        if job.state is None:
            raise TaskError(f"{job.unit}: an evaluation needs a trained state")
        metrics = self._measured(job, job.state["booster"], [job.partition])
        return UnitResult(job.state, job.partition.rows, job_batches.unit_batches(job), metrics)

    def export(self, hparams: HParams, state: TaskState, seed: int, epochs: int, batches: int) -> Exported:
        """The booster in its library's own format, as bytes."""
        del hparams, seed, epochs, batches
        return Exported({"booster": state["booster"]}, _LOAD[self._section.library])

    def _params(self, job: UnitJob) -> dict[str, Any]:
        values = {**self._section.params, **job.hparams}
        ours = {"seed": job.seed % 2**31, "num_threads": self._threads}
        return {**{k: v for k, v in values.items() if k not in ("batch_size", "rounds")}, **ours}

    def _measured(self, job: UnitJob, booster: Any, partitions: Any) -> dict[str, float]:
        x, y = _rows(list(job_batches.natural_batches(job, partitions)))
        measured = self._library.losses(self._params(job), booster, x, y)
        return {f"val_{name}": value for name, value in measured.items()}


def _rows(batches: list[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    x = np.concatenate([np.asarray(x).reshape(len(x), -1) for x, *_ in batches])
    return x, np.concatenate([np.asarray(y) for _, y, *_ in batches])


_LOAD = {
    "lightgbm": """\
import lightgbm
from safetensors.numpy import load_file

booster = lightgbm.Booster(model_str=load_file("MODEL")["booster"].tobytes().decode())
""",
    "xgboost": """\
import xgboost
from safetensors.numpy import load_file

booster = xgboost.Booster(model_file=bytearray(load_file("MODEL")["booster"].tobytes()))
""",
}
