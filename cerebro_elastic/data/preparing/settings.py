"""The settings of ``prepare`` besides a source: keys in Python, options on a command line."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema, model_validator

from cerebro_elastic.data.preparing.shared_jobs import MachineShare
from cerebro_elastic.errors import DataError
from cerebro_elastic.recipes.data import Preparation
from cerebro_elastic.recipes.fields import PerHost, Seed
from cerebro_elastic.recipes.folds import why_no_folds
from cerebro_elastic.recipes.loading import describe_problem

_OF_COLUMNS = ("columns", "features", "label", "encode", "text", "fill", "sample_weight", "count_classes")
"""Keys that select a source's columns; a function of rows selects them itself."""
_OF_ROWS = ("workers", "share")
"""Keys that are about a function of rows."""


def _machine_share(value: object) -> object:
    """``I/N``; some schedulers give the number in a variable."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"(\d+)/(\d+)", os.path.expandvars(value))
    if match is None or int(match[1]) >= int(match[2]):
        raise ValueError("give I/N, such as 0/4 on the first of 4 machines")
    return MachineShare(int(match[1]), int(match[2]))


class PrepareSettings(Preparation):
    """The settings for making a dataset: its keys in a recipe, and those that only ``prepare`` has."""

    seed: Seed = Field(0, description="Seed of the shuffle.")
    folds: Annotated[int, Field(ge=2)] | None = Field(
        None,
        description="Folds: each gets of each class of `stratify` its share, and whole groups of `split_by`.",
        json_schema_extra={"shown": "any rows"},
    )
    """Only for cross-validation of a prepared dataset: a run that prepares its data itself does this."""
    count_classes: str | None = Field(
        None,
        description="A column of class numbers to count, for `class_weights: balanced` in recipes.",
    )
    rows: str | None = Field(
        None,
        description="module:function, called with (row, split), that returns the columns of a row.",
    )
    workers: PerHost | None = Field(
        None, description="Processes that make the rows.", json_schema_extra={"shown": "one per core"}
    )
    share: Annotated[MachineShare, BeforeValidator(_machine_share), WithJsonSchema({"type": "string"})] = (
        Field(
            MachineShare(),
            description="I/N: this is machine I, from 0, of N machines that share the rows.",
            json_schema_extra={"shown": "0/1"},
        )
    )

    @model_validator(mode="after")
    def _rows_fit(self) -> Self:
        if self.rows is not None and (given := [f"`{key}`" for key in _OF_COLUMNS if getattr(self, key)]):
            raise ValueError(f"`rows` makes the columns: leave {', '.join(given)} out")
        if self.rows is None and (
            needless := [f"`{key}`" for key in _OF_ROWS if key in self.model_fields_set]
        ):
            raise ValueError(
                f"{', '.join(needless)} would do nothing without `rows`: name the function that makes each "
                "row, or leave it out"
            )
        if self.folds is not None:
            if problem := why_no_folds(self.folds, self.partitions):
                raise ValueError(f"{problem}")
            if self.stratify is None and self.split_by is None:
                raise ValueError(
                    "`folds` is for `stratify` or `split_by`: any rows make folds otherwise; remove it"
                )
        return self


def prepare_settings(
    values: Mapping[str, Any], name_of: Callable[[str], str] = "`{}`".format
) -> PrepareSettings:
    """The checked settings. Raises ``DataError``, in which ``name_of`` names each key."""
    try:
        return PrepareSettings(**values)
    except ValidationError as exc:
        problems = (_described(problem, name_of) for problem in exc.errors(include_url=False))
        raise DataError("\n".join(problems)) from exc


def _described(problem: Any, name_of: Callable[[str], str]) -> str:
    if problem["loc"]:
        name = str(problem["loc"][0])
        known = name in PrepareSettings.model_fields
        return describe_problem(problem, name_of(name) if known else name, lambda: PrepareSettings)
    return re.sub(r"`(\w+)`", lambda match: name_of(match[1]), str(problem["ctx"]["error"]))
