"""The tools for an agent. Each is a model of its arguments, with a method that answers.

Two read, and answer with at most 4,000 tokens. The others change a live run. Each of these needs a reason,
and is the same transaction as a person's command: it is refused if the run has since changed in a way that
forbids it, and the record has the agent's name and the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from cerebro_elastic.extending.errors import RunError, SameConfig, did_you_mean
from cerebro_elastic.extending.running import (
    Allowance,
    ConfigResult,
    ConfigStart,
    Run,
    RunResult,
    brief,
    checked,
    number,
    with_name,
)
from cerebro_mcp.text import hparams, noise, page, row, within

Reason = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=500),
    Field(description="Why, for the record: one sentence."),
]
ConfigId = Annotated[str, Field(max_length=80, description="The config's id, such as c0003.")]
HParams = Annotated[dict[str, Any], Field(description="Hyper-parameters by name.")]

_LONGEST_HPARAMS = 4_000
_TELLING = 2.8
"""The most standard deviations by which two values with the same noise differ, 19 times out of 20."""


@dataclass(frozen=True, slots=True)
class Desk:
    """A run, and an agent's rights on it."""

    run: Run
    allowance: Allowance
    """The configs that it may add: none by default."""
    may_stop: bool = False
    """Whether it may stop configs."""


class _Tool(BaseModel):
    model_config = ConfigDict(extra="forbid")

    reads: ClassVar[bool] = False
    """Whether it changes nothing."""

    def answer(self, desk: Desk) -> str:
        raise NotImplementedError


class About(_Tool):
    """The run, the search's space, the noise of the curves, and what you may still do. At most 4,000 tokens:
    of a large space call it again with the line to start at."""

    reads = True
    start: Annotated[int, Field(ge=1, description="The line to start at.")] = 1

    def answer(self, desk: Desk) -> str:
        return page(_head(desk, desk.run.result), self.start, "call about")


class Leaderboard(_Tool):
    """All configs of the run, the best first: hyper-parameters, best value, curve by epochs, status, and why
    it ended. Above them: the search's space, the noise of the curves, and what you may still do. At most
    4,000 tokens: of a large run call it again with the place to start at."""

    reads = True
    start: Annotated[int, Field(ge=1, description="The place on the leaderboard to start at.")] = 1

    def answer(self, desk: Desk) -> str:
        result = desk.run.result
        rows = result.leaderboard
        metric = result.recipe.objective.metric
        lines = [
            row(place, config, metric, _why(result, config))
            for place, config in enumerate(rows, start=1)
            if place >= self.start
        ]

        def more(shown: int) -> str:
            return f"... {len(lines) - shown} more: call leaderboard with start {self.start + shown}"

        if self.start > max(1, len(rows)):
            return f"this is all: the run has {len(rows)} configs"
        title = f"{len(rows)} configs, by their best value; from place {self.start} on:"
        return within(
            _head(desk, result), [title, *lines], lambda shown: more(max(0, shown - 1)), ": call about"
        )


class Config(_Tool):
    """One config: its hyper-parameters, where it began, its metrics in each epoch, who added it, and why it
    ended. At most 4,000 tokens: of one with much to say call it again with the line to start at."""

    reads = True
    config: ConfigId
    start: Annotated[int, Field(ge=1, description="The line to start at.")] = 1

    def answer(self, desk: Desk) -> str:
        result = desk.run.result
        found = result.config(self.config)
        first = found.members[0] if found.members else found
        config = result.view.state.configs[first.config]
        objective, parent, origin = result.recipe.objective, config.parent, config.origin
        by = origin.get("agent") or (origin.get("by") and "a person") or "the search"
        came_from = f"epoch {parent.epoch} of {parent.config or 'another run'}" if parent else "the beginning"
        lines = [
            f"{found.config} {found.status.value}, added by {by}, begun at {came_from}",
            _best(found, objective.metric),
            *filter(None, [_why(result, found)]),
            f"hyper-parameters: {hparams(found)}",
            "metrics by epoch:",
        ]
        epochs = [
            f"{epoch}: " + ", ".join(f"{name} {number(value)}" for name, value in sorted(metrics.items()))
            for epoch, metrics in enumerate(found.curve, start=found.behind + 1)
        ]
        # The last epochs say most.
        return page([*lines, *epochs[::-1]], self.start, f"call config of {found.config}")


class Add(_Tool):
    """Add a config. With `like`, the hyper-parameters that you leave out are that config's, and `start` says
    with which of its states the new one begins. A config that was tried is refused with its result."""

    hparams: HParams
    reason: Reason
    like: Annotated[ConfigId | None, Field(description="The config that has the others.")] = None
    start: Annotated[
        ConfigStart,
        Field(description="From scratch, with the present state of `like`, or with that of its best epoch."),
    ] = "scratch"

    def answer(self, desk: Desk) -> str:
        _check_hparams(self.hparams)
        agent = desk.allowance
        if not agent.configs:
            raise RunError(
                "the server is read-only, so add is refused; whoever started it can allow it with --configs N"
            )
        try:
            new = desk.run.add(
                self.hparams,
                like=self.like,
                start=self.start,
                reason=self.reason,
                by=agent.agent,
                allowance=agent,
            )
        except SameConfig as error:
            raise RunError(_with_result(desk.run.result, error)) from error
        begins = (
            "from scratch"
            if new.parent is None
            else f"in epoch {new.epoch + 1} with the state of {new.parent.config}"
        )
        return f"{new.seen_as} is added and begins {begins}: {json.dumps(dict(new.hparams))}. {_left(desk)}"


class Stop(_Tool):
    """Stop a live config: it gets no more units, and the unit that it is in does not count."""

    config: ConfigId
    reason: Reason

    def answer(self, desk: Desk) -> str:
        if not desk.may_stop:
            raise RunError("you may not stop configs; whoever started the server can allow it with --stop")
        agent = desk.allowance.agent
        stopped = desk.run.stop(self.config, reason=self.reason, by=agent)
        if stopped.reason != with_name(self.reason, agent):
            raise RunError(f"{self.config} is stopped already: {stopped.reason}")
        return f"{self.config} is stopped in epoch {stopped.epoch + 1}"


TOOLS: Mapping[str, type[_Tool]] = {
    "about": About,
    "leaderboard": Leaderboard,
    "config": Config,
    "add": Add,
    "stop": Stop,
}
"""The tools by name."""


def call(desk: Desk, name: str, arguments: Mapping[str, Any]) -> str:
    """The answer of the tool of this name. Raises ``CerebroError`` if the tool refuses."""
    if name not in TOOLS:
        raise RunError(f"no tool {name[:80]!r} exists; {did_you_mean(name[:80], TOOLS)}")
    return checked(TOOLS[name], arguments).answer(desk)


def _with_result(result: RunResult, error: SameConfig) -> str:
    """Why an already tried config is refused, with its result."""
    same = next((row for row in result.leaderboard if row.config == error.config), None)
    if same is None:
        return str(error)
    text = f"{error}. Its result: {_best(same, result.recipe.objective.metric)}"
    return f"{text}. {why}" if (why := _why(result, same)) else text


def _check_hparams(values: Mapping[str, Any]) -> None:
    """Raise ``RunError`` for values that no record can hold."""
    try:
        size = len(json.dumps(values, ensure_ascii=False).encode())
    except (UnicodeEncodeError, RecursionError) as error:
        raise RunError(
            f"the hyper-parameters are no JSON that can be stored: {type(error).__name__}"
        ) from error
    if size > _LONGEST_HPARAMS:
        raise RunError(f"the hyper-parameters take {size} bytes: at most {_LONGEST_HPARAMS} are taken")


def _head(desk: Desk, result: RunResult) -> list[str]:
    """The facts that an agent needs before it reads the leaderboard."""
    recipe, status = result.recipe, desk.run.status()
    metric = recipe.objective.metric
    objectives = [f"{each.metric} ({each.mode})" for each in recipe.search.objectives or (recipe.objective,)]
    spread = noise([value for _, value in config.values(metric)] for config in result.leaderboard)
    spread_text = (
        "too few epochs to say"
        if spread is None
        else (
            f"standard deviation about {number(spread)} from epoch to epoch, so values that differ by less "
            f"than {number(_TELLING * spread)} may be equal"
        )
    )
    plan = status.state.plan or result.spec.plan
    return [
        f"run {desk.run.id} is {status.phase}; objective {', '.join(objectives)}; "
        f"search {recipe.search.method}",
        f"each config has {plan.epochs} epochs of {plan.trained} units",
        f"noise of {metric}: {spread_text}",
        _left(desk),
        *(f"constraint: {each}" for each in (*recipe.search.constraints, *recipe.objective.constraints)),
        *([f"space: by the function {recipe.search.space_fn}"] if recipe.search.space_fn else []),
        *_space(recipe.search.space),
    ]


def _space(space: Mapping[str, Any], branch: str = "") -> Iterator[str]:
    """A line for each hyper-parameter, those of branches included."""
    for name, domain in space.items():
        yield f"space{branch}: {name} {domain}"
        for value, own in (domain.branches or {}).items():
            yield from _space(own, f"{branch or ' of'} {name}={value}")


def _left(desk: Desk) -> str:
    """The remaining rights of the agent."""
    allowance, state = desk.allowance, desk.run.status().state
    stop = "you may stop configs" if desk.may_stop else "you may not stop configs"
    if not allowance.configs or state.plan is None:
        return f"you may add no configs; {stop}"
    added, units = allowance.used(state.configs.values(), state.plan)
    left = f"you may add {max(0, allowance.configs - added)} more configs"
    if allowance.units is not None:
        left += f" of {max(0, allowance.units - units)} units in all"
    return f"{left}; {stop}"


def _best(result: ConfigResult, metric: str) -> str:
    if result.best is None:
        return f"{result.status.value}, no value of {metric} yet"
    best = f"best {metric} {number(result.best)} in epoch {result.best_epoch} of {result.epochs}"
    return f"{result.status.value}, {best}"


def _why(result: RunResult, config: ConfigResult) -> str:
    """Why the config ended, or continues."""
    why = result.failures.get(config.config) or config.reason
    return f"why: {brief(why)}" if why else ""
