"""The runs of a home as things: their names, states, sizes and ages."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from cerebro_elastic.core.history.members import statuses
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.errors import CerebroError, RunError
from cerebro_elastic.reporting.results import leaderboard
from cerebro_elastic.runs.folder import RunFolder, etcd_folder, home_of
from cerebro_elastic.runs.owner import owns
from cerebro_elastic.system.files import here, locate, write_text
from cerebro_elastic.system.version import __version__

Standing: TypeAlias = Literal["running", "ended", "stopped", "damaged"]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run of a home in one line.

    Example:
        >>> summary = next(summary for summary in Run.all() if summary.run == "sweep")
        >>> summary.state, summary.configs, summary.best_config
        ('ended', {'finished': 2}, 'c0000')
    """

    run: str
    """The run's id; of a node that joined a run here, the name of its folder, ``RUN.NODE``."""
    folder: str
    project: str
    """The folder of its recipe."""
    state: Standing
    """``stopped``: it has not ended, and this machine does not run it; ``damaged``: it cannot be read."""
    configs: Mapping[str, int]
    """The number of configs of each status."""
    metric: str
    """The objective's metric."""
    best: float | None
    """The metric's best value; ``None`` without one."""
    best_config: str | None
    """The config that reached it."""
    bytes: int
    """The size of all its files on this machine."""
    storage: str | None
    """The place of its checkpoints if they are not on this machine. Their size is not in ``bytes``."""
    changed: float
    """When its record last changed: Unix time in seconds."""
    problem: str | None = None
    """Why it is ``damaged``, or which of its files cannot be read."""


def folders(home: str | Path | None = None) -> list[RunFolder]:
    """The folders of all runs in a home, the one whose record changed last first."""
    found = [RunFolder(spec.parent.resolve()) for spec in home_of(home).glob("*/spec.json")]
    return sorted(found, key=lambda folder: (-changed(folder), folder.run))


def last_run(home: str | Path | None = None) -> RunFolder:
    """The run whose record changed last, or the only one. Raises ``RunError`` without one."""
    found = folders(home)
    found = [folder for folder in found if folder.history.exists()] or found
    if not found:
        raise RunError(
            f"there is no run in {home_of(home).resolve()}: name another folder of runs with --home, or "
            "start one: cerebro run RECIPE"
        )
    return found[0]


def changed(folder: RunFolder) -> float:
    """When the run's record last changed, or its spec if it has none yet: Unix time in seconds."""
    for file in (folder.history, folder.spec):
        with suppress(OSError):
            return file.stat().st_mtime
    return 0.0


def summaries(home: str | Path | None = None, named: Sequence[RunFolder] = ()) -> list[RunSummary]:
    """The ``named`` runs, by default all of a home, the one that changed last first."""
    return [summary(folder) for folder in named or folders(home)]


def summary(folder: RunFolder) -> RunSummary:
    """A run's summary. An unreadable run is described by its problem."""
    try:
        running = folder.is_locked()
        spec = folder.read_spec()
        known = _values(folder, spec)
        state: Standing = "running" if running else "ended" if known["ended"] else "stopped"
        local, places, problem = locate(spec.storage).local, [folder.path], None
        try:
            places = places_of(folder, spec)
        except CerebroError as error:
            problem = f"its checkpoints are not counted: {error}"
        return RunSummary(
            run=folder.run,
            folder=str(folder.path),
            project=here(spec.root),
            state=state,
            configs=known["configs"],
            metric=known["metric"],
            best=known["best"],
            best_config=known["best_config"],
            bytes=sum(map(disk_bytes, places)),
            storage=None if local else spec.storage,
            changed=changed(folder),
            problem=problem,
        )
    except (CerebroError, OSError) as error:
        return RunSummary(
            *(folder.run, str(folder.path), "", "damaged", {}, "", None, None),
            bytes=disk_bytes(folder.path),
            storage=None,
            changed=changed(folder),
            problem=str(error),
        )


def places_of(folder: RunFolder, spec: Spec) -> list[Path]:
    """The run's folders and files on this machine: its own folder first, then those of its checkpoints, of
    its etcd, of its project if Ray has copied it, with that one's lock, and of nodes that joined it here. For
    such a node's folder, it is the only one."""
    own, run, storage = folder.path.resolve(), spec.plan.run, locate(spec.storage)
    if own.name != run:
        return [own]
    project, lock = (own.parent / f"{run}.{name}" for name in ("project", "project.lock"))
    others = [
        etcd_folder(run, own.parent),
        *([project, lock] if project == Path(here(spec.root)) else []),
        *([Path(storage.path).resolve()] if storage.local and owns(folder, spec.storage) else []),
    ]
    others += [path.parent.resolve() for path in sorted(own.parent.glob(f"{run}.*/spec.json"))]
    return [own, *(place for place in others if place.exists() and not place.is_relative_to(own))]


def disk_bytes(path: Path) -> int:
    """The bytes of all files in the folder and below. Links are not followed."""
    total = 0
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    total += disk_bytes(Path(entry.path))
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    return total


def mark_of(folder: RunFolder) -> tuple[int, int]:
    """A value that changes with the run's record."""
    stat = folder.history.stat() if folder.history.exists() else None
    return (stat.st_mtime_ns, stat.st_size) if stat is not None else (0, 0)


def _values(folder: RunFolder, spec: Spec) -> dict[str, Any]:
    """The values of the present record. They are kept once nobody runs the run: a long record takes seconds
    to read."""
    mark = [__version__, *mark_of(folder)]  # the code that reads it may change, too
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(folder.summary.read_text())
        if kept["of"] == mark:
            return dict(kept["values"])
    keep = not folder.is_locked()
    view = RunView(folder.events())
    objective = spec.objective
    first = next(iter(leaderboard(view, objective)), None)
    values = {
        "ended": view.state.outcome is not None,
        "configs": dict(statuses(view.state.configs.values())),
        "metric": objective.metric,
        "best": first.best if first is not None else None,
        "best_config": first.config if first is not None and first.best is not None else None,
    }
    if keep:
        with suppress(CerebroError, OSError):  # nothing is kept of another user's run
            write_text(folder.summary, json.dumps({"of": mark, "values": values}))
    return values
