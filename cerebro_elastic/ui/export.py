"""Exports a model in a process of its own, which imports torch and the users' modules; the server does not.

``python -m cerebro_elastic.ui.export`` is that process.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.runs.run import Run
from cerebro_elastic.system.subprocess_call import call, serve


def export_model(run: Run, config: str) -> str:
    """Export a config's best model to a new folder among the run's. Returns what was done. Raises
    ``CerebroError`` as ``Run.export`` does."""
    request = {
        "run": run.folder.run,
        "config": config,
        "home": str(run.folder.path.parent),
        "etcd": ",".join(run.store.endpoints) if run.store else None,
    }
    answer = call(__name__, "the export", request)
    return f"The model of {config} behind epoch {answer['epoch']} is in {answer['folder']}."


def _export_here(request: Mapping[str, Any]) -> dict[str, Any]:
    store = StoreSettings.at(request["etcd"]) if request["etcd"] else None
    run = Run.open(request["run"], home=request["home"], store=store)
    name = run.result.config(request["config"]).config
    folder = _free(run.folder.path / "exports" / name)
    exported = run.export(folder, name)
    return {"folder": str(folder), "epoch": exported.at.epoch}


def _free(folder: Path) -> Path:
    """The folder, or one with a number behind its name if it exists."""
    number, free = 1, folder
    while free.exists():
        number += 1
        free = folder.with_name(f"{folder.name}-{number}")
    return free


if __name__ == "__main__":
    serve(_export_here)
