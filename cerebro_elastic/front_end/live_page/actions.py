"""What people ask of a run from its page: the verbs of a live run, and what goes beyond one.

``python -m cerebro_elastic.front_end.live_page.actions`` is a process that exports a model: it imports torch
and the users' modules; the server does not.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.extension import Wish, failed_configs
from cerebro_elastic.runs.run import Run
from cerebro_elastic.runs.start.extend_and_retry import Terms, extend, planned, planned_retry, retry
from cerebro_elastic.runs.verbs import VERBS, Done, Verb, checked
from cerebro_elastic.system.process import PYTHON
from cerebro_elastic.system.subprocess_call import call, serve
from cerebro_elastic.system.words import counted, one_line


class Extend(Verb):
    """Extend a run that has ended, as ``cerebro extend`` does. All is checked before anything is changed.

    The run of this machine continues in a process of its own, which outlives the server. One of a shared etcd
    waits for its hosts."""

    epochs: int | None = None
    num: int | None = None
    configs: list[str] = Field(default_factory=list)
    top: int | None = None

    def perform(self, run: Run) -> Done:
        result = run.result
        wish = Wish(self.epochs, self.num, {}, tuple(self.configs), self.top, self.by)
        if result.shared_store is not None:
            extend(result, wish, Terms())
            return Done(f"{run.id} is extended. It continues once its hosts run their former command again.")
        numbers = {"epochs": self.epochs, "num": self.num, "top": self.top}
        options = [f"--{name}={number}" for name, number in numbers.items() if number is not None]
        options += [f"--by={self.by}", *(f"--config={name}" for name in self.configs)]
        return _started(run, "extend", options, len(planned(result, wish).extensions[-1].configs))


class Retry(Verb):
    """Have failed configs tried again, as ``cerebro retry`` does; all of them if none is named. A live run
    tries them again at once, another one as with ``Extend``."""

    configs: list[str] = Field(default_factory=list)

    def perform(self, run: Run) -> Done:
        live, result = run.status().live, run.result
        names = failed_configs(run.id, result.view.state, self.configs)
        if live or result.shared_store is not None:
            retry(run, names, self.by, Terms())
            hosts = "" if live else " The run continues once its hosts run their former command again."
            tried = f"{counted(len(names), 'failed config')} will be tried again: {', '.join(names)}."
            return Done(tried + hosts)
        if not result.ended:
            raise RunError(
                f"{run.id} was stopped before its end: start it again, and then have them tried again"
            )
        planned_retry(result, names, self.by)
        return _started(run, "retry", [f"--by={self.by}", *names], len(names))


class Export(Verb):
    """Export a config's best model to a new folder among the run's. The record does not name it: nothing of
    the run changes."""

    config: str

    def perform(self, run: Run) -> Done:
        etcd = ",".join(run.store.endpoints) if run.store else None
        request = {"run": run.folder.run, "home": str(run.folder.path.parent), "etcd": etcd}
        answer = call(__name__, "the export", {**request, "config": self.config})
        return Done(f"The model of {self.config} behind epoch {answer['epoch']} is in {answer['folder']}.")


ACTIONS: Mapping[str, type[Verb]] = {**VERBS, "extend": Extend, "retry": Retry, "export": Export}
"""The requests by name."""


def perform(run: Run, action: str, body: Any, person: str | None) -> str:
    """Do what a page asks for, and say what was done.

    ``person`` is who asks, as a reverse proxy names them; the page's own word counts without one. Raises
    ``CerebroError`` if it is not possible.
    """
    request = checked(ACTIONS[action], body)
    if person is not None:
        request = request.model_copy(update={"by": one_line(person[:80])})
    return request.perform(run).said


def _started(run: Run, command: str, arguments: Sequence[str], going_on: int) -> Done:
    """Start the command of this name, by which the run continues. Returns what was done."""
    log = run.folder.logs / f"{command}.log"
    log.parent.mkdir(exist_ok=True)
    home = f"--home={run.folder.path.parent.resolve()}"
    with log.open("ab") as output:
        driver = subprocess.Popen(
            [*PYTHON, "-m", "cerebro_elastic.cli", command, run.folder.run, home, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C ends the page, not the run
        )
    return Done(
        f"{run.id} continues with {counted(going_on, 'config')} in process {driver.pid} of this machine; "
        f"{log} has what it says."
    )


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
