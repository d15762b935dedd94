"""The recipe's ``task``: the model and its training. Each kind of task brings the schema of its section."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, ValidationInfo, model_validator

from cerebro_elastic import registry
from cerebro_elastic.errors import did_you_mean
from cerebro_elastic.recipes.data import Data
from cerebro_elastic.recipes.fields import Arguments, ClassWeights, Reference, Section

GROUP = "cerebro.tasks"


class TaskSection(Section):
    """The section of any kind of task.

    A plugin derives its own section from this class, and registers it under the task's kind in the
    entry-point group ``cerebro.tasks.sections``.
    """

    NEEDS: ClassVar[tuple[str, ...]] = ()
    """The packages that the task needs, by the names under which they are imported."""
    MAY_USE: ClassVar[tuple[str, ...]] = ()
    """Other installed packages on which a result may depend: a run records their versions."""
    ARRAYS: ClassVar[Literal["torch", "numpy"]] = "torch"
    """The type of the columns of its batches: tensors of torch, or arrays of numpy. With numpy's, its ranks
    do not import torch, and a unit is trained on one rank."""

    VALIDATES_IN_FIT: ClassVar[bool] = False
    """Whether its library validates in the middle of a fit, where schedulers and callbacks may watch it: then
    folds are so by default, too."""

    kind: str
    """The task's name in the entry-point group ``cerebro.tasks``."""

    @classmethod
    def completed(cls, recipe: Mapping[str, Any], root: Path) -> Mapping[str, Any]:
        """The values of a ``recipe`` in the folder ``root``, completed by a file that its task names. A
        complete recipe stays as it is."""
        del root
        return recipe

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that its units need besides that of the kind. All processes of a machine import them
        once."""
        return ()

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables that must be set before the modules of a task of numpy's arrays are
        imported."""
        return {}


class OpenTaskSection(TaskSection):
    """The section of a task without a schema. The task checks the other keys itself."""

    model_config = ConfigDict(extra="allow")


class TorchSection(TaskSection):
    """Plain PyTorch by three functions (paper, section 4.1). ``training/functions.py`` describes their
    arguments and results."""

    kind: Literal["torch"] = "torch"
    """Plain PyTorch functions; see [models](../how-to/models.md#plain-pytorch)."""
    model_fn: Reference
    """Makes the model, `(model, optimizer)`, or `(model, optimizer, scheduler)`."""
    input_fn: Reference | None = None
    """Makes `(x, y)` of a batch."""
    train_fn: Reference | None = None
    """Makes one pass over batches. It replaces the built-in step."""
    eval_fn: Reference | None = None
    """Makes one pass over validation batches."""
    loss: str | None = None
    """For the built-in step: a function of `torch.nn.functional`, or `module:name`."""
    optimizer: str | None = None
    """A class of `torch.optim`, if `model_fn` returns a model alone."""
    metrics: Mapping[str, str] = Field(default={})
    """Name to `accuracy` or `module:name`, a function of `(model(x), y)`. Reported as `val_<name>`."""
    args: Arguments = Field(default={})
    """Arguments of the functions that are not searched."""
    class_weights: ClassWeights | None = None
    """For the built-in step: the weight of a row of each class in the loss. `balanced` (rare classes weigh
    more), or a list. See [weights](../how-to/data.md#class-and-sample-weights)."""
    clip: Annotated[float, Field(gt=0)] | None = None
    """The built-in step clips the norm of the gradients to this value."""
    step_scheduler: Literal["epoch", "step"] = "epoch"
    """The scheduler of `model_fn` steps once an `epoch` or once a `step`."""

    @model_validator(mode="after")
    def _trains_somehow(self) -> TorchSection:
        if self.train_fn is None and self.loss is None:
            raise ValueError("needs `loss` (for the ready-made step) or `train_fn`; e.g. loss: cross_entropy")
        if self.train_fn is not None and self.clip is not None:
            raise ValueError("`clip` belongs to the ready-made step; with a `train_fn`, clip in it")
        if self.train_fn is not None and self.class_weights is not None:
            raise ValueError(
                "`class_weights` belong to the ready-made step; with a `train_fn`, weigh the loss in it"
            )
        return self


def task_type(kind: object) -> type[TaskSection]:
    section: type[TaskSection] = registry.section(GROUP, str(kind)) or OpenTaskSection
    return section


def task_section(value: object, _: object) -> TaskSection:
    """The section of the task's kind. Errors inside it keep their place in the recipe."""
    if isinstance(value, TaskSection):
        return value
    kinds = registry.names(GROUP)
    if not isinstance(value, Mapping) or "kind" not in value:
        raise ValueError(f"task is a mapping with a `kind`; {did_you_mean('', kinds)}")
    if value["kind"] not in kinds:
        raise ValueError(f"unknown kind; {did_you_mean(str(value['kind']), kinds)}")
    return task_type(value["kind"]).model_validate(value)


def check_arrays(value: Data, info: ValidationInfo) -> Data:
    """Check that the task can use the recipe's ``data``."""
    task = info.data.get("task")
    if task is None:  # it is wrong itself
        return value
    if value.datamodule is not None and task.kind == "torch":
        raise ValueError(
            "`datamodule` needs a task of kind lightning: for one of kind torch name its dataset by "
            "`data: {dataset: ...}`"
        )
    if task.ARRAYS == "torch":
        return value
    if (value.dataset or value.datamodule) and not value.materialize:
        raise ValueError(
            f"`dataset` and `datamodule` give rows of torch, and a task of kind {task.kind!r} takes arrays: "
            "set `materialize: true`, or name a `source`"
        )
    if value.pin_memory:
        raise ValueError(f"`pin_memory` is torch's, and a task of kind {task.kind!r} takes arrays: remove it")
    return value
