"""The task adapter for transformers (entry point ``transformers`` of ``cerebro.tasks``).

The task is that of plain PyTorch with the functions of this plugin: they make the model of a base and its
adapter, batches of texts, loss and metrics. So all that holds for the task ``torch`` holds here.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.recipes import TorchSection
from cerebro_elastic.extending.state import FunctionTask, not_carried
from cerebro_elastic.extending.tasks import Exported, HParams, TaskState, select_arguments
from cerebro_transformers import functions
from cerebro_transformers.base import base_of
from cerebro_transformers.section import LoraSection, TransformersSection


class TransformersTask(FunctionTask):
    """Trains the model that ``section`` names."""

    def __init__(self, section: TransformersSection, root: Path) -> None:
        self._given = {**section.given, "root": str(root.absolute())}
        name = functions.__name__
        torch_section = TorchSection(
            model_fn=f"{name}:make",
            input_fn=f"{name}:batch",
            loss=f"{name}:loss",
            metrics={"accuracy": f"{name}:accuracy"},
            args=self._given,
            clip=section.clip,
            step_scheduler="step",
        )
        super().__init__(torch_section, root)

    def check(self, hparams: HParams) -> None:
        if twice := sorted(self._given.keys() & hparams.keys()):
            raise TaskError(f"{', '.join(twice)}: both in the task and searched; remove it from one of them")
        given = {**self._given, **hparams}
        for name in ("model", "lr"):
            if given.get(name) is None:
                raise TaskError(f"the task needs {name}: give it in the task, or search over it")
        super().check(hparams)
        _check_values(hparams)
        functions.check(**select_arguments(functions.check, given))

    def files(self, hparams: HParams) -> Sequence[Path]:
        return base_of(**self._arguments(base_of, hparams)).files

    def export(self, hparams: HParams, state: TaskState, seed: int, epochs: int, batches: int) -> Exported:
        del seed
        model, *_ = functions.make(**self._arguments(functions.make, {**hparams, "steps": epochs * batches}))
        model.load_state_dict(state["model"])
        base = base_of(**self._arguments(base_of, hparams))
        return functions.exported(model.inner, base, list(not_carried(state)))

    def _arguments(self, function: Any, values: HParams) -> dict[str, Any]:
        return select_arguments(function, {**self._given, **values})


def _check_values(hparams: HParams) -> None:
    """Raise ``TaskError`` for a value that the recipe's section would not take."""
    of_lora = {name: value for name, value in hparams.items() if name in LoraSection.model_fields}
    own = {name: value for name, value in hparams.items() if name in TransformersSection.model_fields}
    try:
        TransformersSection.model_validate({**own, "lora": of_lora})
    except ValidationError as exc:
        wrong = exc.errors()[0]
        name = next(name for name in reversed(wrong["loc"]) if name in hparams)
        rule = wrong["msg"].replace("Input should", "it should")
        raise TaskError(f"{name} is {hparams[str(name)]!r}: {rule}") from exc
    signatures = (inspect.signature(each).parameters for each in (functions.batch, functions.make))
    parameters = {name: parameter for each in signatures for name, parameter in each.items()}
    for name, value in hparams.items():
        if value is None and name in parameters and parameters[name].default is not None:
            raise TaskError(f"{name} is null: leave it out, or give a value")
