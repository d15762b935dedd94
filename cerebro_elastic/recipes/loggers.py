"""The entries of a recipe's `loggers`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, ValidationError, field_validator

from cerebro_elastic.errors import MissingExtra, did_you_mean
from cerebro_elastic.recipes.fields import Section, callback
from cerebro_elastic.registry import missing

TENSORBOARD = "tensorboard"


class MlflowArguments(Section):
    """The `args` of the logger `mlflow`."""

    tracking_uri: str | None = None
    """The tracking server or database. The default is `MLFLOW_TRACKING_URI`, else `mlflow.db` beside the
    run's folder."""
    experiment: Annotated[str, Field(min_length=1)] | None = None
    """The experiment's name. The default is `MLFLOW_EXPERIMENT_NAME`, else `cerebro-elastic`."""

    @field_validator("tracking_uri")
    @classmethod
    def _no_password(cls, value: str | None) -> str | None:
        if value is not None and re.search(r"://[^/\s]*@", value):
            raise ValueError(
                "a recipe is written down and shown, so it may hold no login: remove `tracking_uri` here and "
                "set MLFLOW_TRACKING_URI in the environment of each machine"
            )
        return value


class WandbArguments(Section):
    """The `args` of the logger `wandb`."""

    project: Annotated[str, Field(pattern=r"^[^/\\#?%:]{1,128}$")] | None = None
    """The project. The default is `WANDB_PROJECT`, else `cerebro-elastic`."""
    entity: Annotated[str, Field(min_length=1)] | None = None
    """The user or team. The default is that of the login."""
    mode: Literal["online", "offline"] | None = None
    """`offline`: into files beside the checkpoints, for `wandb sync`. The default is `WANDB_MODE`, else
    `online`."""


TRACKERS: Mapping[str, type[Section]] = {"mlflow": MlflowArguments, "wandb": WandbArguments}
"""The trackers that know runs and configs, and the schemas of their `args`."""


def logger_name(entry: str | Mapping[str, Any]) -> str:
    """The name or `module:name` of an entry."""
    return entry if isinstance(entry, str) else str(entry["class"])


def check_installed(entries: Sequence[str | Mapping[str, Any]] | None) -> None:
    """Raise ``MissingExtra`` if a logger among the entries is not installed."""
    for name in map(logger_name, entries or ()):
        if name in (TENSORBOARD, *TRACKERS) and (remedy := missing("cerebro.loggers", name)):
            raise MissingExtra(f"the recipe's `loggers` name {name}, which is not installed: {remedy}")


def tracker_arguments(entries: Sequence[str | Mapping[str, Any]] | None) -> dict[str, dict[str, Any]]:
    """By name of the trackers among the entries: their `args`."""
    return {
        name: {} if isinstance(entry, str) else dict(entry.get("args", {}))
        for entry in entries or ()
        if (name := logger_name(entry)) in TRACKERS
    }


def lightning_loggers(entries: Sequence[str | Mapping[str, Any]] | None) -> list[str | Mapping[str, Any]]:
    """The entries that are loggers of Lightning's, or users' own."""
    return [entry for entry in entries or () if logger_name(entry) not in {TENSORBOARD, *TRACKERS}]


def _entry(value: object) -> object:
    """A logger's name, or ``{class: name, args: {...}}``; the ``args`` of trackers are checked."""
    callback(value)
    if isinstance(value, Mapping) and (schema := TRACKERS.get(value["class"])) is not None:
        try:
            schema.model_validate(value.get("args", {}))
        except ValidationError as exc:
            raise ValueError(_first(exc, value["class"], schema)) from None
    return value


def _first(error: ValidationError, name: str, schema: type[Section]) -> str:
    """The first thing that is wrong with the arguments of the tracker ``name``."""
    problem = error.errors()[0]
    key = str(problem["loc"][0])
    if problem["type"] == "extra_forbidden":
        return f"{name} has no argument {key!r}; {did_you_mean(key, schema.model_fields)}"
    return f"{name}: {key}: {problem['msg'].removeprefix('Value error, ')}"


def _once(values: tuple[str | Mapping[str, Any], ...]) -> tuple[str | Mapping[str, Any], ...]:
    """Each of our own loggers at most once: it identifies its runs by the run and the config."""
    names = [name for name in map(logger_name, values) if name in {TENSORBOARD, *TRACKERS}]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{', '.join(twice)} stands there twice: keep one")
    return values


LoggerEntry: TypeAlias = Annotated[str | Mapping[str, JsonValue], BeforeValidator(_entry)]
Loggers: TypeAlias = Annotated[Annotated[tuple[LoggerEntry, ...], Field(strict=False)], AfterValidator(_once)]
