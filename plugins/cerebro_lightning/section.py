"""The recipe's ``task`` section for a LightningModule; imports neither Lightning nor torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, JsonValue, model_validator

from cerebro_elastic.extending.recipes import Arguments, Callback, Reference, TaskSection
from cerebro_lightning.config_values import CLI, completed
from cerebro_lightning.trainer_arguments import checked_trainer_settings


class LightningSection(TaskSection):
    """A ``LightningModule``."""

    NEEDS: ClassVar[tuple[str, ...]] = ("lightning",)
    VALIDATES_IN_FIT: ClassVar[bool] = True

    kind: Literal["lightning"] = "lightning"
    """A `LightningModule`."""
    module: Reference | None = None
    """The class, or a function or class method that makes the module, as `module:name`. It gets the
    hyper-parameters by name."""
    config: Mapping[str, JsonValue] | None = None
    """Instead of `module`: a file of LightningCLI or Hydra, which has the module, its data and the trainer's
    arguments; see [config files](../how-to/models.md#config-files)."""
    overrides: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """With a `config` of Hydra's: overrides, as on its command line."""
    cli: Reference = CLI
    """With `config`: your subclass of `LightningCLI`, or a function that passes its arguments on to one."""
    args: Arguments = Field(default={})
    """Constructor arguments that are not searched."""
    trainer: Annotated[Arguments, AfterValidator(checked_trainer_settings)] = Field(default={})
    """Arguments for `L.Trainer`, such as `gradient_clip_val`.
    [Exactness](../design/exactness.md#what-is-refused) lists the ones that are refused."""
    callbacks: Annotated[tuple[Callback, ...], Field(strict=False)] = ()
    """Lightning's callbacks by name, or yours as `module:name`; with arguments `{class: EarlyStopping,
    args: {monitor: val_loss}}`."""

    @classmethod
    def completed(cls, recipe: Mapping[str, Any], root: Path) -> Mapping[str, Any]:
        return completed(recipe, root)

    @model_validator(mode="after")
    def _module_or_config(self) -> LightningSection:
        if (self.module is None) == (self.config is None):
            raise ValueError(
                "needs `module`, the class of the LightningModule, or `config`, a LightningCLI or Hydra file"
            )
        in_file = {"args", "trainer", "callbacks"} & self.model_fields_set
        if self.config is not None and any(getattr(self, name) for name in in_file):
            raise ValueError(f"{', '.join(sorted(in_file))}: with `config` they belong in that file")
        return self
