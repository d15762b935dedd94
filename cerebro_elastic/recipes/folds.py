"""A recipe's folds, and its repeats over seeds: with them a config is trained several times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from cerebro_elastic.recipes.data import Data
from cerebro_elastic.recipes.fields import Positive, Section
from cerebro_elastic.recipes.search import SearchSection
from cerebro_elastic.system.words import counted

MOST_TRAININGS = 60
"""The most trainings of a config. One transaction begins them all, and etcd takes 128 operations in one by
default: a clone's training writes two keys."""


class Folds(Section):
    """Cross-validation: each config is trained once for each fold, without the fold's partitions, and
    validated on them."""

    folds: Annotated[int, Field(ge=2, le=MOST_TRAININGS)]
    """The number of folds; it divides the number of partitions."""
    when: Literal["epoch", "evaluate"] | None = None
    """As `validation` without folds. `evaluate`: a fold is validated where its partitions lie. Default:
    `evaluate`, but `epoch` for `lightning`, where schedulers and callbacks may watch validation."""
    early_stop: bool = True
    """Whether a config's other folds are left untrained once its mean is worse than the worst fold of the
    best config."""


class Repeats(Section):
    """Several seeds for each config: `min` at first, and up to `max` for the best ones."""

    min: Positive = 1
    """The number of seeds of each config."""
    max: Positive
    """The number of seeds of the best configs. Of the configs that are trained with as many seeds as any, the
    better half gets one more, and at least two do."""

    @model_validator(mode="before")
    @classmethod
    def _number(cls, value: object) -> object:
        """A number is both bounds."""
        return value if isinstance(value, Mapping | Repeats) else {"min": value, "max": value}

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min is {self.min} and max {self.max}: min comes first, and is at most max")
        return self


def validation_section(value: object, _: object) -> object:
    """``epoch``, ``evaluate`` or ``Folds``. Errors inside these keep their place in the recipe."""
    if isinstance(value, Mapping):
        return Folds.model_validate(value)
    if isinstance(value, Folds) or value in ("epoch", "evaluate"):
        return value
    raise ValueError("give `epoch`, `evaluate`, or a mapping with a number of folds: `{folds: 5}`")


def deals(data: Mapping[str, Any]) -> bool:
    """Whether a run with this section ``data`` chooses the validation rows."""
    return not data.get("url") and not data.get("datamodule")


def check_valid(folds: int, data: Data | None) -> None:
    """Raise ``ValueError`` if the dataset that ``data`` describes cannot have this number of folds."""
    if data is None or data.url is not None:
        return
    if data.datamodule is not None:
        raise ValueError(
            "data.datamodule is validated by its own val_dataloader, on the same rows in each fold: name its "
            "training data by `data: {dataset: ...}`, or leave the folds out"
        )
    given = "partitions" in data.model_fields_set  # else a number is chosen for the folds
    if given and (problem := why_no_folds(folds, data.partitions)):
        raise ValueError(f"{problem} (data.partitions)")
    if data.valid:
        raise ValueError(
            f"data.valid is {data.valid}, but the folds are the validation data: remove data.valid, or "
            "the folds"
        )


def why_no_folds(folds: int, partitions: int) -> str | None:
    """Why the partitions cannot be divided into this number of folds; ``None`` if they can."""
    if partitions % folds == 0:
        return None
    divisors = [number for number in range(2, partitions + 1) if partitions % number == 0]
    fitting = f"{', '.join(map(str, divisors))} folds, or " if divisors else ""
    more = folds * max(1, -(-partitions // folds))
    return (
        f"{counted(partitions, 'partition')} cannot be divided into {folds} folds: a fold leaves out whole "
        f"partitions, and each as many; take {fitting}{more} partitions"
    )


def check_trainings(repeats: Repeats, folds: int) -> None:
    """Raise ``ValueError`` if a config would have too many trainings."""
    if repeats.max * max(1, folds) > MOST_TRAININGS:
        each = f"{counted(repeats.max, 'seed')}{f' and {folds} folds' if folds else ''}"
        raise ValueError(
            f"with {each} a config has {repeats.max * max(1, folds)} trainings, and the most is "
            f"{MOST_TRAININGS}: take fewer of one of them"
        )


def check_members(key: str, search: SearchSection | None) -> None:
    """Raise ``ValueError`` if a search cannot take a config's trainings together, as ``key`` needs it to."""
    if search is None:
        return
    if search.method == "pbt":
        raise ValueError(
            f"method {search.method} continues a config from the state of another one, and with {key} a "
            f"config has several states: use asha or hyperband, or leave {key} out"
        )
    if getattr(search, "resource", "epochs") == "units":
        raise ValueError(
            f"search.resource is units, and with {key} configs are compared at the ends of epochs, when all "
            "of their trainings are there: use resource: epochs"
        )
