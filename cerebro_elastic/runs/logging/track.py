"""``cerebro track``: sends a run's record to a tracker after the run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from cerebro_elastic.errors import MissingExtra, RunError, did_you_mean
from cerebro_elastic.recipes.loggers import TRACKERS, tracker_arguments
from cerebro_elastic.registry import missing
from cerebro_elastic.runs.logging.loggers import forwarder, make_tracker
from cerebro_elastic.runs.results.export import RECORD
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.run import Run


class _FromTheBeginning:
    """The position of a tracker that gets all."""

    def ours(self) -> bool:
        return True

    def read(self) -> Mapping[str, int]:
        return {}

    def write(self, _name: str, _number: int) -> None:
        """Does nothing: no later leader reads the position."""


def track(
    run: str | Path,
    to: str,
    *,
    home: str | Path | None = None,
    models: Sequence[str | Path] = (),
    say: Callable[[str], None] = print,
) -> None:
    """Send the record of a run to a tracker: MLflow gets what it lacks, W&B gets all.

    Args:
        run: The run's id, or its folder.
        to: ``mlflow`` or ``wandb``, with the arguments that the run's recipe gives it.
        home: The folder of runs, by default ``$CEREBRO_HOME``, else ``./runs``.
        models: Folders that ``export`` has written. MLflow stores them with their configs.
        say: Gets a sentence about rows that cannot be read.

    Raises:
        RunError: There is no such run here, or it goes on; or there is no such tracker.
        MissingExtra: The tracker's package is not installed.
        TrackerAway: The tracker cannot be reached, or refuses.
    """
    if to not in TRACKERS:
        raise RunError(f"there is no tracker {to!r}; {did_you_mean(to, TRACKERS)}")
    if models and to != "mlflow":
        raise RunError(f"{to} takes no exported models: give them to mlflow")
    if remedy := missing("cerebro.loggers", to):
        raise MissingExtra(f"{to} is not installed: {remedy}")
    result = Run.open(run, home=home).result
    if result.folder.is_locked():
        raise RunError(f"run {result.run!r} goes on: its leader sends what it logs; track it after its end")
    arguments = tracker_arguments(result.recipe.loggers).get(to, {})
    by_config = _models(result, models)
    with closing(make_tracker(to, arguments, result.spec, result.folder)) as tracker:
        forwarder(result.folder, to, tracker, _FromTheBeginning(), say, by_config).send(finish=True)


def _models(result: RunResult, folders: Sequence[str | Path]) -> dict[str, str]:
    """By config: the folder of its exported model."""
    return {_config_of(result, Path(folder)): str(Path(folder).resolve()) for folder in folders}


def _config_of(result: RunResult, folder: Path) -> str:
    try:
        record = json.loads((folder / RECORD).read_text())
        run, config = record["run"], record["config"]
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise RunError(f"{folder} is no exported model: give a folder that `cerebro export` wrote") from exc
    if run != result.run or config not in result.configs:
        raise RunError(f"{folder} has a model of run {run!r}, not of {result.run!r}")
    return str(config)
