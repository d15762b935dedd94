"""The entries of a recipe's `loggers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, ValidationError

from cerebro_elastic.errors import MissingExtra, did_you_mean
from cerebro_elastic.recipes.fields import Section, callback
from cerebro_elastic.registry import load, missing, names

TENSORBOARD = "tensorboard"


def trackers() -> list[str]:
    """The names of the trackers: loggers with a notion of runs and configs. Their classes declare their
    ``args`` (``Arguments``)."""
    return names("cerebro.trackers")


def logger_name(entry: str | Mapping[str, Any]) -> str:
    """The name or `module:name` of an entry."""
    return entry if isinstance(entry, str) else str(entry["class"])


def check_installed(entries: Sequence[str | Mapping[str, Any]] | None) -> None:
    """Raise ``MissingExtra`` if a logger among the entries is not installed."""
    for name in map(logger_name, entries or ()):
        group = "cerebro.loggers" if name == TENSORBOARD else "cerebro.trackers"
        if remedy := missing(group, name):
            raise MissingExtra(f"the recipe's `loggers` name {name}, which is not installed: {remedy}")


def tracker_arguments(entries: Sequence[str | Mapping[str, Any]] | None) -> dict[str, dict[str, Any]]:
    """By name of the trackers among the entries: their `args`."""
    return {
        name: {} if isinstance(entry, str) else dict(entry.get("args", {}))
        for entry in entries or ()
        if (name := logger_name(entry)) in trackers()
    }


def lightning_loggers(entries: Sequence[str | Mapping[str, Any]] | None) -> list[str | Mapping[str, Any]]:
    """The entries that are loggers of Lightning's, or users' own."""
    return [entry for entry in entries or () if logger_name(entry) not in {TENSORBOARD, *trackers()}]


def _entry(value: object) -> object:
    """A logger's name, or ``{class: name, args: {...}}``; the ``args`` of trackers are checked."""
    callback(value)
    if isinstance(value, Mapping) and value["class"] in trackers():
        schema: type[Section] = load("cerebro.trackers", value["class"]).Arguments
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
    names = [name for name in map(logger_name, values) if name in {TENSORBOARD, *trackers()}]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{', '.join(twice)} appears twice: keep one")
    return values


LoggerEntry: TypeAlias = Annotated[str | Mapping[str, JsonValue], BeforeValidator(_entry)]
Loggers: TypeAlias = Annotated[Annotated[tuple[LoggerEntry, ...], Field(strict=False)], AfterValidator(_once)]
