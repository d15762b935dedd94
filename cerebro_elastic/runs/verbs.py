"""What people ask of a live run, as one table: each verb's arguments, what it does, and what it answers.

The commands (``cli/control.py``) and the requests of the live page are made from it. Each verb calls the
method of ``Run`` with its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from cerebro_elastic.config import A_DAY
from cerebro_elastic.core.model.configs import ConfigStart
from cerebro_elastic.errors import RunError
from cerebro_elastic.system.words import counted, one_line

if TYPE_CHECKING:
    from cerebro_elastic.core.model.configs import Config
    from cerebro_elastic.runs.run import Run

_Verb = TypeVar("_Verb", bound="Verb")

_CONFIG = "The config, as `cerebro status` names it."
By = Annotated[
    str,
    Field(description="The name of the person who does this, for the record.", max_length=80),
    AfterValidator(lambda name: one_line(name.strip())),
]
Reason = Annotated[str, Field(description="The reason, for the record.", max_length=500)]


@dataclass(frozen=True, slots=True)
class Done:
    """What a verb has done."""

    said: str
    """A sentence for people."""
    config: Config | None = None
    """The config that it was about, as it is now; of several trainings, the first."""


class Verb(BaseModel):
    """The arguments of a verb. Its docstring and the descriptions of its fields are those of the command."""

    model_config = ConfigDict(extra="forbid")

    by: By = ""

    def perform(self, run: Run) -> Done:
        """Do it. Raises ``RunError`` as the method of ``Run`` does."""
        raise NotImplementedError

    def record(self) -> dict[str, Any]:
        """The reason and the person, for the record; without a reason ``Run`` gives one."""
        return {name: text for name, text in self if name in ("by", "reason") and text.strip()}


class Stop(Verb):
    """Stop a config of a live run, or end the run early.

    A config that is stopped gets no more units, and its present unit does not count. With --all the search
    adds no config either, and the run ends. What was committed stays. To pause a run instead, stop the
    command that runs it: the same command continues it.

    Example: cerebro stop digits c0003 --reason "diverges"
    """

    config: str | None = Field(None, description=_CONFIG)
    all: bool = Field(False, description="End the run: stop all its configs.")
    reason: Reason = ""

    def perform(self, run: Run) -> Done:
        if self.all == (self.config is not None):
            raise RunError(f"name a config of run {run.id}, or give --all to end the whole run")
        if self.config is None:
            count = counted(run.end(**self.record()), "config")
            return Done(f"run {run.id} has ended; {count} stopped; `extend` continues it")
        config = run.stop(self.config, **self.record())
        return Done(f"{self.config} is stopped in epoch {config.epoch + 1}; `resume` continues it", config)


class Resume(Verb):
    """Train a stopped config of a live run to its end.

    The config may have been stopped by you or by the search, which does not stop it again.

    Example: cerebro resume digits c0003
    """

    config: str = Field(description=_CONFIG)
    reason: Reason = ""

    def perform(self, run: Run) -> Done:
        config = run.resume(self.config, **self.record())
        return Done(f"{self.config} continues in epoch {config.epoch + 1}", config)


class Add(Verb):
    """Add a config to a live run: your own point, or a changed copy.

    With --like it has the hyper-parameters of another config, except those that you name, and with --from it
    continues from a state of that config.

    Example: cerebro add digits lr=0.003 --like c0003 --from best
    """

    hparams: dict[str, str] = Field({}, description="Its hyper-parameters, e.g. lr=0.01.")
    like: str | None = Field(None, description="The config that has the others; without it, name all.")
    start: ConfigStart = Field(
        "scratch",
        description="Begin from scratch, with the present state of that config (here), or with that of its "
        "best epoch.",
    )
    reason: Reason = ""

    def perform(self, run: Run) -> Done:
        from cerebro_elastic.recipes.source import read_value
        from cerebro_elastic.reporting.tables import added_text

        hparams = {name: read_value(name, text) for name, text in self.hparams.items()}
        new = run.add(hparams, like=self.like, start=self.start, **self.record())
        return Done(added_text(new, self.like, self.start), new)


class Drain(Verb):
    """Ask a node to leave a live run.

    It gets no more units, finishes its present unit, and ends.

    Example: cerebro drain digits node-1 --grace 60
    """

    node: str = Field(description="The node, as `cerebro status` names it.")
    grace: float = Field(
        A_DAY, ge=0, description="Seconds for the present unit; a longer one is handed on part-way."
    )

    def perform(self, run: Run) -> Done:
        run.drain(self.node, grace=self.grace)
        given = "" if self.grace >= A_DAY else f", or part-way through it after {self.grace:g} s"
        return Done(f"{self.node} leaves run {run.id} when its unit is done{given}")


VERBS: Mapping[str, type[Verb]] = {kind.__name__.lower(): kind for kind in (Stop, Resume, Add, Drain)}
"""The verbs by name."""


def checked(kind: type[_Verb], values: Any) -> _Verb:
    """The verb with these arguments. Raises ``RunError`` for wrong ones."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise RunError(f"{kind.__name__.lower()}: {where}: {first['msg']}") from error
