"""Arguments of verbs (``verbs.py``) that others take, too, and how wrong ones are reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from cerebro_elastic.errors import RunError, did_you_mean
from cerebro_elastic.system.words import one_line

_Arguments = TypeVar("_Arguments", bound=BaseModel)

By = Annotated[
    str,
    Field(description="The name of the person who does this, for the record.", max_length=80),
    AfterValidator(lambda name: one_line(name.strip())),
]
Reason = Annotated[str, Field(description="The reason, for the record.", max_length=500)]


class Arguments(BaseModel):
    """The arguments of every verb."""

    model_config = ConfigDict(extra="forbid")

    by: By = ""


class Extend(Arguments):
    """By how much a run is extended."""

    epochs: int | None = Field(None, description="Epochs of each config in all.")
    num: int | None = Field(None, description="Configs that the search may propose in all.")
    budget: dict[str, float | str] = Field(
        {}, description="A later bound of search.budget: units=400, deadline=2026-12-01T08:00."
    )
    configs: list[str] = Field([], description="Only this config gets more epochs; may be given again.")
    top: int | None = Field(None, description="How many of the best configs get more epochs; all by default.")

    @field_validator("budget")
    @classmethod
    def _numbers(cls, budget: Mapping[str, float | str]) -> dict[str, float | str]:
        try:
            return {key: bound if key == "deadline" else float(bound) for key, bound in budget.items()}
        except ValueError as error:
            raise ValueError(f"{error}: give KEY=NUMBER, such as units=400") from None


def checked(kind: type[_Arguments], values: Any) -> _Arguments:
    """The verb, the command or the tool with these arguments. Raises ``RunError`` for wrong ones."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name, where = kind.__name__.lower(), ".".join(map(str, first["loc"]))[:80]
        if first["type"] == "extra_forbidden":
            raise RunError(
                f"{name} has no argument {where!r}; {did_you_mean(where, kind.model_fields)}"
            ) from error
        raise RunError(f"{name}, argument {where}: {first['msg'].removeprefix('Value error, ')}") from error
