"""What people ask of a run from its page. Each request calls the method of ``Run`` with its name.

The history gets the person's name, as far as it has room: not for a node that leaves.

``python -m cerebro_elastic.front_end.live_page.actions`` is a process that exports a model: it imports torch
and the users' modules; the server does not.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.model.configs import ConfigStart
from cerebro_elastic.errors import RunError
from cerebro_elastic.recipes.source import read_value
from cerebro_elastic.reporting.tables import added_text
from cerebro_elastic.runs.extension import Wish, failed_configs
from cerebro_elastic.runs.run import Run
from cerebro_elastic.runs.start.extend_and_retry import Terms, extend, planned, planned_retry, retry
from cerebro_elastic.system.process import PYTHON
from cerebro_elastic.system.subprocess_call import call, serve
from cerebro_elastic.system.words import counted, one_line

Name = Annotated[str, Field(max_length=80), AfterValidator(lambda name: one_line(name.strip()))]
Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")

    by: Name = ""


class Stop(_Request):
    """Stop a config."""

    config: str
    reason: Reason = "stopped on the live page"

    def perform(self, run: Run) -> str:
        config = run.stop(self.config, reason=self.reason, by=self.by)
        return f"{self.config} is stopped in epoch {config.epoch + 1}."


class Resume(_Request):
    """Let a stopped config continue."""

    config: str
    reason: Reason = "resumed on the live page"

    def perform(self, run: Run) -> str:
        config = run.resume(self.config, reason=self.reason, by=self.by)
        return f"{self.config} continues in epoch {config.epoch + 1}."


class Add(_Request):
    """Add a config with the hyper-parameters of ``like``, some of them changed; each is written as in a
    recipe."""

    hparams: dict[str, str] = Field(default_factory=dict)
    like: str
    start: ConfigStart = "scratch"

    def perform(self, run: Run) -> str:
        hparams = {name: read_value(name, text) for name, text in self.hparams.items()}
        new = run.add(hparams, like=self.like, start=self.start, by=self.by)
        return added_text(new, self.like, self.start)


class Drain(_Request):
    """Ask a node to leave."""

    node: str

    def perform(self, run: Run) -> str:
        run.drain(self.node)
        return f"{self.node} leaves the run when its unit is done."


class End(_Request):
    """End the run early."""

    reason: Reason = "the run was ended on the live page"

    def perform(self, run: Run) -> str:
        count = run.end(reason=self.reason, by=self.by)
        return f"The run has ended; {counted(count, 'config')} stopped."


class Extend(_Request):
    """Extend a run that has ended, as ``cerebro extend`` does. All is checked before anything is changed.

    The run of this machine continues in a process of its own, which outlives the server. One of a shared etcd
    waits for its hosts."""

    epochs: int | None = None
    num: int | None = None
    configs: list[str] = Field(default_factory=list)
    top: int | None = None

    def perform(self, run: Run) -> str:
        result = run.result
        wish = Wish(self.epochs, self.num, {}, tuple(self.configs), self.top, self.by)
        if result.shared_store is not None:
            extend(result, wish, Terms())
            return f"{run.id} is extended. It continues once its hosts run their command of before again."
        numbers = {"epochs": self.epochs, "num": self.num, "top": self.top}
        options = [f"--{name}={number}" for name, number in numbers.items() if number is not None]
        options += [f"--by={self.by}", *(f"--config={name}" for name in self.configs)]
        return _started(run, "extend", options, len(planned(result, wish).extensions[-1].configs))


class Retry(_Request):
    """Have failed configs tried again, as ``cerebro retry`` does; all of them if none is named. A live run
    tries them again at once, another one as with ``Extend``."""

    configs: list[str] = Field(default_factory=list)

    def perform(self, run: Run) -> str:
        live, result = run.status().live, run.result
        names = failed_configs(run.id, result.view.state, self.configs)
        if live or result.shared_store is not None:
            retry(run, names, self.by, Terms())
            hosts = "" if live else " The run continues once its hosts run their command of before again."
            return f"{counted(len(names), 'failed config')} will be tried again: {', '.join(names)}.{hosts}"
        if not result.ended:
            raise RunError(
                f"{run.id} was stopped before its end: start it again, and then have them tried again"
            )
        planned_retry(result, names, self.by)
        return _started(run, "retry", [f"--by={self.by}", *names], len(names))


class Export(_Request):
    """Export a config's best model to a new folder among the run's. The record does not name it: nothing of
    the run changes."""

    config: str

    def perform(self, run: Run) -> str:
        etcd = ",".join(run.store.endpoints) if run.store else None
        request = {"run": run.folder.run, "home": str(run.folder.path.parent), "etcd": etcd}
        answer = call(__name__, "the export", {**request, "config": self.config})
        return f"The model of {self.config} behind epoch {answer['epoch']} is in {answer['folder']}."


Request: TypeAlias = Stop | Resume | Add | Drain | End | Extend | Retry | Export

ACTIONS: Mapping[str, type[Request]] = {kind.__name__.lower(): kind for kind in get_args(Request)}
"""The requests by name."""


def perform(run: Run, action: str, body: Any, person: str | None) -> str:
    """Do what a page asks for, and say what was done.

    ``person`` is who asks, as a reverse proxy names them; the page's own word counts without one. Raises
    ``CerebroError`` if it is not possible.
    """
    kind = ACTIONS[action]
    try:
        request = kind.model_validate(body)
    except ValidationError as exc:
        raise RunError(f"the request to {action} is malformed: {exc.errors()[0]['msg']}") from exc
    if person is not None:
        request = request.model_copy(update={"by": one_line(person[:80])})
    return request.perform(run)


def _started(run: Run, command: str, arguments: Sequence[str], going_on: int) -> str:
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
    return (
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
