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
from cerebro_elastic.runs.results.result import RunResult, open_run


class _FromTheBeginning:
    """The position of a tracker that gets all."""

    def ours(self) -> bool:
        return True

    def read(self) -> Mapping[str, int]:
        return {}

    def write(self, _name: str, _number: int) -> None:
        """Nobody asks later."""


def track(
    run: str | Path,
    *,
    home: str | Path | None = None,
    to: str | None = None,
    models: Sequence[str | Path] = (),
    say: Callable[[str], None] = print,
) -> list[str]:
    """Send the record of a run to trackers: what they lack, or all of a run that named none.

    Args:
        run: The run's id, or its folder.
        home: The folder of runs, by default ``$CEREBRO_HOME``, else ``./runs``.
        to: ``mlflow`` or ``wandb``; by default those that the run's recipe names.
        models: Folders that ``export`` has written. MLflow stores them with their configs.
        say: Gets a sentence about rows that cannot be read.

    Returns:
        The trackers.

    Raises:
        RunError: There is no such run here, it goes on, or it names no tracker.
        MissingExtra: The tracker's package is not installed.
        TrackerAway: The tracker cannot be reached, or refuses.
    """
    result = open_run(run, home=home)
    if result.folder.is_locked():
        raise RunError(f"run {result.run!r} goes on: its leader sends what it logs; track it after its end")
    named = tracker_arguments(result.recipe.loggers)
    names = [to] if to is not None else list(named)
    if not names:
        raise RunError(
            f"the recipe of run {result.run!r} names no tracker: give --to {' or '.join(TRACKERS)}"
        )
    by_config = _models(result, models)
    for name in names:
        if name not in TRACKERS:
            raise RunError(f"there is no tracker {name!r}; {did_you_mean(name, TRACKERS)}")
        if by_config and name != "mlflow":
            raise RunError(f"{name} takes no models: give --to mlflow")
        if remedy := missing("cerebro.loggers", name):
            raise MissingExtra(f"{name} is not installed: {remedy}")
        tracker = make_tracker(name, named.get(name, {}), result.spec, result.folder)
        with closing(tracker):
            position = _FromTheBeginning()
            forwarder(result.folder, name, tracker, position, say, by_config).send(finish=True)
    return names


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
