"""People's actions on a run, as one table: each verb's arguments, its effect, and its answer.

The commands (``cli/control.py``, ``cli/start.py``) and the requests of the live page are made from it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field

from cerebro_elastic.config import A_DAY
from cerebro_elastic.core.model.configs import Config, ConfigStart, HParams
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs import arguments
from cerebro_elastic.runs.arguments import Arguments, Reason
from cerebro_elastic.system.words import counted

if TYPE_CHECKING:
    from cerebro_elastic.runs.run import Run

_CONFIG = "The config, as `cerebro status` names it."


@dataclass(frozen=True, slots=True)
class Done:
    """A change of a run."""

    run: str
    said: str
    """What was done, as a sentence."""
    config: str | None = None
    """The config that was stopped, resumed or added; `null` if it was the run or a node."""
    hparams: HParams | None = None
    epoch: int | None = None
    """How many full epochs are behind its state."""

    @classmethod
    def to(cls, config: Config, run: Run, said: str) -> Self:
        """A change of a config; of several trainings, the first."""
        return cls(run.id, said, config.seen_as, config.hparams, config.epoch)


class Verb(Arguments):
    """The arguments of a verb. Its docstring and the descriptions of its fields are those of the command."""

    words: ClassVar[tuple[str, ...]] = ()
    """The fields that a command takes without the name of an option."""

    def perform(self, run: Run) -> Done:
        """Perform the verb. Raises ``RunError`` like the method of ``Run``."""
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

    words = ("config",)
    config: str | None = Field(None, description=_CONFIG)
    all: bool = Field(False, description="End the run: stop all its configs.")
    reason: Reason = ""

    def perform(self, run: Run) -> Done:
        if self.all == (self.config is not None):
            raise RunError(f"name a config of run {run.id}, or give --all to end the whole run")
        if self.config is None:
            count = counted(run.end(**self.record()), "config")
            return Done(run.id, f"run {run.id} has ended; {count} stopped; `extend` continues it")
        config = run.stop(self.config, **self.record())
        return Done.to(
            config, run, f"{self.config} is stopped in epoch {config.epoch + 1}; `resume` continues it"
        )


class Resume(Verb):
    """Train a stopped config of a live run to its end.

    The config may have been stopped by you or by the search, which does not stop it again.

    Example: cerebro resume digits c0003
    """

    words = ("config",)
    config: str = Field(description=_CONFIG)
    reason: Reason = ""

    def perform(self, run: Run) -> Done:
        config = run.resume(self.config, **self.record())
        return Done.to(config, run, f"{self.config} continues in epoch {config.epoch + 1}")


class Add(Verb):
    """Add a config to a live run: your own point, or a changed copy.

    With --like it has the hyper-parameters of another config, except those that you name, and with --from it
    continues from a state of that config.

    Example: cerebro add digits lr=0.003 --like c0003 --from best
    """

    words = ("hparams",)
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
        return Done.to(new, run, added_text(new, self.like, self.start))


class Drain(Verb):
    """Ask a node to leave a live run.

    It gets no more units, finishes its present unit, and ends.

    Example: cerebro drain digits node-1 --grace 60
    """

    words = ("node",)
    node: str = Field(description="The node, as `cerebro status` names it.")
    grace: float = Field(
        A_DAY, ge=0, description="Seconds for the present unit; a longer one is handed on part-way."
    )

    def perform(self, run: Run) -> Done:
        run.drain(self.node, grace=self.grace)
        given = "" if self.grace >= A_DAY else f", or part-way through it after {self.grace:g} s"
        return Done(run.id, f"{self.node} leaves run {run.id} when its unit is done{given}")


class Extend(arguments.Extend, Verb):
    """Continue an ended run, for more epochs, configs or budget.

    Each config continues from its last checkpoint, as a resumed fit does: a schedule that was made for the
    former number of epochs stays as it was. Ctrl-C stops the run cleanly; `cerebro run` with its recipe
    continues it.

    Example: cerebro extend digits --epochs 20 --top 3
    """

    def perform(self, run: Run) -> Done:
        """Extend it without waiting: the run continues in its own process, or waits for its hosts. Everything
        is checked before the first change."""
        from cerebro_elastic.runs.start.extend_and_retry import Terms, extend, planned

        result = run.result
        if result.shared_store is not None:
            extend(result, self, Terms())
            return Done(
                run.id, f"{run.id} is extended. It continues once its hosts run their former command again."
            )
        return _started(run, self, len(planned(result, self).extensions[-1].configs))


class Retry(Verb):
    """Train failed configs again, with the code as it is now.

    They continue from their last checkpoints, or from the start if they have none; all others stay as they
    are. An ended run continues in this command, and the record says which were tried again. In a live run
    they continue at once, with the code that the run has imported.

    Example: cerebro retry digits
    """

    words = ("configs",)
    configs: list[str] = Field([], description="Failed configs; by default all.")

    def perform(self, run: Run) -> Done:
        """Have them tried again without waiting: a live run does so at once, another one as ``Extend``."""
        from cerebro_elastic.runs.extension import failed_configs
        from cerebro_elastic.runs.start.extend_and_retry import Terms, planned_retry, retry

        live, result = run.status().live, run.result
        names = failed_configs(run.id, result.view.state, self.configs)
        if live or result.shared_store is not None:
            retry(run, names, self.by, Terms())
            hosts = "" if live else " The run continues once its hosts run their former command again."
            tried = f"{counted(len(names), 'failed config')} will be tried again: {', '.join(names)}."
            return Done(run.id, tried + hosts)
        if not result.ended:
            raise RunError(
                f"{run.id} was stopped before its end: start it again, and then have them tried again"
            )
        planned_retry(result, names, self.by)
        return _started(run, Retry(configs=names, by=self.by), len(names))


VERBS: Mapping[str, type[Verb]] = {
    kind.__name__.lower(): kind for kind in (Stop, Resume, Add, Drain, Extend, Retry)
}
"""The verbs by name."""


def _started(run: Run, verb: Verb, going_on: int) -> Done:
    """Start the command of the verb, which continues the run."""
    from cerebro_elastic.system.process import PYTHON

    command = type(verb).__name__.lower()
    log = run.folder.logs / f"{command}.log"
    log.parent.mkdir(exist_ok=True)
    words = [run.folder.run, f"--home={run.folder.path.parent.resolve()}", *as_words(verb)]
    with log.open("ab") as output:
        driver = subprocess.Popen(
            [*PYTHON, "-m", "cerebro_elastic.cli", command, *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C ends the page, not the run
        )
    return Done(
        run.id,
        f"{run.id} continues with {counted(going_on, 'config')} in process {driver.pid} of this machine; "
        f"{log} has what it says.",
    )


def option_of(field: str) -> str:
    """The option of a verb's field in a command."""
    return {"start": "--from", "configs": "--config"}.get(field, f"--{field}")


def as_words(verb: Verb) -> Iterator[str]:
    """The arguments in a command's form."""
    for name, value in verb.model_dump(exclude_defaults=True).items():
        pairs = [f"{key}={each}" for key, each in value.items()] if isinstance(value, dict) else value
        for word in pairs if isinstance(pairs, list) else [pairs]:
            yield word if name in verb.words else f"{option_of(name)}={word}"
