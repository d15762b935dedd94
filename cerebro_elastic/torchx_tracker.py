"""``torchx tracker list jobs | metadata | artifacts``: shows runs and their configs, from their records.

A run has its id, a config the run's and its own, ``digits/c0003``. The tracker only reads: a run records
itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn

from torchx.tracker.api import Lineage, TrackerArtifact, TrackerBase, TrackerSource

from cerebro_elastic.errors import RunError
from cerebro_elastic.reporting.results import ConfigResult
from cerebro_elastic.runs.folder import home_of
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.run import Run


def create(config: str | None) -> RunTracker:
    """Make the tracker that torchx registers as ``cerebro``; ``config`` is the folder of runs."""
    return RunTracker(home_of(config))


class RunTracker(TrackerBase):  # type: ignore[misc]  # torchx has no types
    """The runs in the folder ``home``. Raises ``RunError`` for a run or config that is not there."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def run_ids(self, **kwargs: str | None) -> Iterable[str]:
        """All runs; with ``parent_run_id``, the configs of that run."""
        parent = kwargs.get("parent_run_id")
        if parent is None:
            return sorted(path.parent.name for path in self._home.glob("*/history.jsonl"))
        return [f"{parent}/{row.config}" for row in self._run(parent).leaderboard]

    def metadata(self, run_id: str) -> Mapping[str, object]:
        """Of a run: its recipe and its best config. Of a config: its hyper-parameters, status and metrics."""
        run, row = self._find(run_id)
        if row is not None:
            last = dict(row.curve[-1]) if row.curve else {}
            return {**row.hparams, "status": row.status, "reason": row.reason, "best": row.best, **last}
        objective = run.recipe.objective
        best = next((row for row in run.leaderboard if row.best is not None), None)
        return {
            "configs": len(run.leaderboard),
            "epochs": run.recipe.epochs,
            "seed": run.recipe.seed,
            "objective": f"{objective.mode} {objective.metric}",
            "best config": best.config if best else None,
            f"best {objective.metric}": best.best if best else None,
        }

    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        """Of a run: history, curves, and the best config's checkpoint. Of a config: its best checkpoint."""
        run, row = self._find(run_id)
        artifacts = {} if row else {"history": str(run.folder.history), "curves": str(run.folder.curves)}
        row = row or next(iter(run.leaderboard), None)
        if row is not None and row.best_checkpoint is not None:
            artifacts["best checkpoint"] = row.best_checkpoint.url
        return {name: TrackerArtifact(name, path, None) for name, path in artifacts.items()}

    def sources(self, run_id: str, artifact_name: str | None = None) -> Iterable[TrackerSource]:
        """Of a config, its run."""
        run, _, config = run_id.partition("/")
        return [TrackerSource(run, artifact_name)] if config else []

    def lineage(self, run_id: str) -> Lineage:  # noqa: ARG002
        """An empty lineage: torchx's class has no fields yet."""
        return Lineage()

    def add_artifact(self, *_: object, **__: object) -> NoReturn:
        raise RunError(_READ_ONLY)

    def add_metadata(self, *_: object, **__: object) -> NoReturn:
        raise RunError(_READ_ONLY)

    def add_source(self, *_: object, **__: object) -> NoReturn:
        raise RunError(_READ_ONLY)

    def _run(self, run: str) -> RunResult:
        return Run.open(run, home=self._home).result

    def _find(self, run_id: str) -> tuple[RunResult, ConfigResult | None]:
        name, _, config = run_id.partition("/")
        run = self._run(name)
        return run, run.config(config) if config else None


_READ_ONLY = "the tracker `cerebro` only reads: a run records its metrics and checkpoints itself"
