"""The recipe's ``task`` sections for scikit-learn and for boosters; imports neither."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from cerebro_elastic.extending.recipes import Arguments, Reference, TaskSection


class SklearnSection(TaskSection):
    """An estimator, or a pipeline, that learns batch by batch."""

    NEEDS: ClassVar[tuple[str, ...]] = ("sklearn", "threadpoolctl")
    ARRAYS: ClassVar[Literal["torch", "numpy"]] = "numpy"

    kind: Literal["sklearn"] = "sklearn"
    """An estimator with `partial_fit`, or a pipeline of such steps; see
    [Other frameworks](../how-to/frameworks.md#scikit-learn)."""
    estimator: Reference
    """A class or function that makes it, such as `sklearn.linear_model:SGDClassifier`. It gets the
    hyper-parameters by name."""
    args: Arguments = Field(default={})
    """Its arguments that are not searched."""
    classes: Annotated[int, Field(ge=2)] | None = None
    """For a classifier: labels are 0 to `classes - 1`."""
    metrics: Mapping[str, Reference] = Field(default={})
    """Name to `module:name`, a function of the true and the predicted values of all validation rows. Reported
    as `val_<name>`, besides `val_loss` and `val_accuracy` or `val_r2`."""


class BoostingSection(TaskSection):
    """A booster that gets more trees with each unit: continued training, not sequential SGD."""

    MAY_USE: ClassVar[tuple[str, ...]] = ("lightgbm", "xgboost", "xgboost-cpu")
    ARRAYS: ClassVar[Literal["torch", "numpy"]] = "numpy"

    kind: Literal["boosting"] = "boosting"
    """LightGBM or XGBoost by continued training; see [Other frameworks](../how-to/frameworks.md#boosting)."""
    library: Literal["lightgbm", "xgboost"]
    """The library."""
    rounds: Annotated[int, Field(ge=1)] = 10
    """How many rounds of boosting a unit adds, on its partition's rows."""
    params: Arguments = Field(default={})
    """The library's parameters that are not searched, `objective` among them."""

    @property
    def modules(self) -> tuple[str, ...]:
        return (self.library,)
