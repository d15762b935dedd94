"""People's actions on a run from its page: the verbs, and the export of a model.

``python -m cerebro_elastic.front_end.live_page.actions`` is a process that exports a model: it imports torch
and the users' modules; the server does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.runs.arguments import checked
from cerebro_elastic.runs.run import Run
from cerebro_elastic.runs.verbs import VERBS, Done, Verb
from cerebro_elastic.system.subprocess_call import call, serve
from cerebro_elastic.system.words import one_line


class Export(Verb):
    """Export a config's best model to a new folder among the run's. The record does not name it: nothing of
    the run changes."""

    config: str

    def perform(self, run: Run) -> Done:
        etcd = ",".join(run.store.endpoints) if run.store else None
        request = {"run": run.folder.run, "home": str(run.folder.path.parent), "etcd": etcd}
        answer = call(__name__, "the export", {**request, "config": self.config})
        return Done(
            run.id, f"The model of {self.config} behind epoch {answer['epoch']} is in {answer['folder']}."
        )


ACTIONS: Mapping[str, type[Verb]] = {**VERBS, "export": Export}
"""The requests by name."""


def perform(run: Run, action: str, body: Any, person: str | None) -> str:
    """Perform a page's action, and return a sentence about it.

    ``person`` is the name from a reverse proxy; without one the page's own word counts. Raises
    ``CerebroError`` if the action is impossible.
    """
    request = checked(ACTIONS[action], body)
    if person is not None:
        request = request.model_copy(update={"by": one_line(person[:80])})
    return request.perform(run).said


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
