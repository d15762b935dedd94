"""The folder of a run: ``<home>/<run id>/``, everything that the run leaves on this machine."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cerebro_elastic.errors import RunError, did_you_mean


def default_home() -> Path:
    """Where runs lie: ``$CEREBRO_HOME``, else ``./runs``."""
    return Path(os.environ.get("CEREBRO_HOME", "runs"))


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Names in a run's folder."""

    path: Path

    @property
    def run(self) -> str:
        return self.path.name

    @property
    def etcd(self) -> Path:
        return self.path / "etcd"

    @property
    def endpoint(self) -> Path:
        """The endpoint of the run's store while it is live."""
        return self.path / "endpoint"

    @property
    def spec(self) -> Path:
        """A copy of the run's spec, for whoever reads the folder when the store is gone."""
        return self.path / "spec.json"

    @property
    def history(self) -> Path:
        return self.path / "history.jsonl"

    @property
    def curves(self) -> Path:
        """Metrics per config and epoch, as CSV."""
        return self.path / "metrics.csv"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def cache(self) -> Path:
        return self.path / "cache"

    @property
    def data(self) -> Path:
        """The dataset, if the run prepared it itself."""
        return self.path / "data"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """For one ``cerebro run`` at a time. The lock ends with its process."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise RunError(
                    f"run {self.run!r} is being run by another process: watch it with "
                    f"`cerebro status {self.run}`, or choose another id with --run-id"
                ) from exc
            yield


def find_run(run: str | Path, home: Path | None = None) -> RunFolder:
    """The folder of a run by id or path; ``RunError`` lists the runs that there are."""
    home = home or default_home()
    for path in (Path(run), home / str(run)):
        if (path / "spec.json").is_file():
            return RunFolder(path.resolve())
    known = [path.parent.name for path in home.glob("*/spec.json")]
    raise RunError(f"there is no run {str(run)!r} in {home.resolve()}; {did_you_mean(str(run), known)}")
