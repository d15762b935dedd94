"""The recipe's ``task`` section for a LightningModule; imports neither Lightning nor torch."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from cerebro_elastic.extending.recipes import Arguments, Callback, Reference, TaskSection
from cerebro_lightning.trainer_arguments import checked_trainer_settings


class LightningSection(TaskSection):
    """A ``LightningModule``."""

    NEEDS: ClassVar[tuple[str, ...]] = ("lightning",)
    VALIDATES_IN_FIT: ClassVar[bool] = True

    kind: Literal["lightning"] = "lightning"
    """A `LightningModule`."""
    module: Reference
    """The class, or a function or class method that makes the module, as `module:name`. It gets the
    hyper-parameters by name."""
    args: Arguments = Field(default={})
    """Constructor arguments that are not searched."""
    trainer: Annotated[Arguments, AfterValidator(checked_trainer_settings)] = Field(default={})
    """Arguments for `L.Trainer`, such as `gradient_clip_val`.
    [Exactness](../design/exactness.md#what-is-refused) lists the ones that are refused."""
    callbacks: Annotated[tuple[Callback, ...], Field(strict=False)] = ()
    """Lightning's callbacks by name, or yours as `module:name`; with arguments `{class: EarlyStopping,
    args: {monitor: val_loss}}`."""
    frozen_prefix: str | None = None
    """The submodule, such as `encoder`, that is not trained and gets the rows first: what it makes of a row
    is computed once. See [frozen prefix](../how-to/models.md#a-frozen-prefix)."""
