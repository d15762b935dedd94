"""What people ask of a run from its page. Each request calls the function that the command of its name calls.

The history gets the person's name with the reason, as far as it has room: for a stop, a resume and a clone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cerebro_elastic.errors import CerebroError, RunError
from cerebro_elastic.recipes.source import read_yaml
from cerebro_elastic.reporting.tables import hparams_text
from cerebro_elastic.runs.control import configs, drain
from cerebro_elastic.ui.places import RunPlace
from cerebro_elastic.words import one_line

Name = Annotated[str, Field(max_length=80)]
Reason = Annotated[str, Field(max_length=500)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")

    by: Name = ""
    """Who asks."""

    def reason(self, reason: str, default: str) -> str:
        """The reason for the record, with the person's name."""
        text = one_line(reason.strip()) or default
        return f"{text} (by {one_line(self.by)})" if self.by.strip() else text


class Stop(_Request):
    """Stop a config."""

    config: str
    why: Reason = ""

    def perform(self, run: str, where: Mapping[str, Any]) -> str:
        config = configs.stop(
            run, self.config, reason=self.reason(self.why, "stopped on the live page"), **where
        )
        return f"{self.config} is stopped in epoch {config.epoch + 1}."


class Resume(_Request):
    """Let a stopped config go on."""

    config: str
    why: Reason = ""

    def perform(self, run: str, where: Mapping[str, Any]) -> str:
        config = configs.resume(
            run, self.config, reason=self.reason(self.why, "resumed on the live page"), **where
        )
        return f"{self.config} goes on in epoch {config.epoch + 1}."


class Clone(_Request):
    """Add a copy of a config with other hyper-parameters, each written as in a recipe."""

    config: str
    changes: dict[str, str] = Field(default_factory=dict)
    start: Literal["here", "best", "scratch"] = "here"

    def perform(self, run: str, where: Mapping[str, Any]) -> str:
        changes = {name: _value(name, text) for name, text in self.changes.items()}
        reason = self.reason("", f"cloned from {self.config}")
        new = configs.clone(run, self.config, changes, start=self.start, reason=reason, **where)
        begins = "anew" if new.parent is None else f"in epoch {new.epoch + 1} with the state of {self.config}"
        return f"{new.id} begins {begins}: {hparams_text(new.hparams)}"


class Drain(_Request):
    """Ask a node to leave."""

    node: str

    def perform(self, run: str, where: Mapping[str, Any]) -> str:
        drain.drain(run, self.node, **where)
        return f"{self.node} leaves the run when its unit is done."


ACTIONS: Mapping[str, type[Stop | Resume | Clone | Drain]] = {
    "stop": Stop,
    "resume": Resume,
    "clone": Clone,
    "drain": Drain,
}
"""The requests by name."""


def perform(place: RunPlace, action: str, body: Any, person: str | None) -> str:
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
        request = request.model_copy(update={"by": person[:80]})
    where = {"store": place.etcd, "home": place.home}
    ask: Callable[[str, Mapping[str, Any]], str] = request.perform
    return ask(place.run, where)


def _value(name: str, text: str) -> Any:
    """A hyper-parameter's value, written as in a recipe."""
    try:
        return read_yaml(f"value: {text}", name).values.get("value")
    except CerebroError as exc:
        raise RunError(f"{name} is {text!r}, which is no value: write it as in a recipe, e.g. 0.01") from exc
