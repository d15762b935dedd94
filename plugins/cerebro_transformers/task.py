"""The task adapter for transformers (entry point ``transformers`` of ``cerebro.tasks``).

The task is that of plain PyTorch with the functions of this plugin: they make the model of a base and its
adapter, batches of texts, loss and metrics. So all that holds for the task ``torch`` holds here.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from peft import PeftModel
from pydantic import ValidationError

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.parallelism import WHOLE
from cerebro_elastic.extending.recipes import TorchSection
from cerebro_elastic.extending.state import FunctionTask, not_carried
from cerebro_elastic.extending.tasks import Exported, HParams, Strategy, TaskState, select_arguments
from cerebro_transformers import functions
from cerebro_transformers.base import base_of
from cerebro_transformers.export import exported
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

    def refusal(self, hparams: HParams, strategy: Strategy) -> str | None:
        bits = {**self._given, **hparams}.get("quantize")
        if bits is not None and strategy.parallelism not in WHOLE:
            return (
                f"{strategy.parallelism} divides a base among ranks, which matrices of {bits} do not allow: "
                f"take {' or '.join(WHOLE)}, or leave quantize out"
            )
        if strategy.parallelism == "pipeline":
            return (
                "pipeline records a model by torch.fx, which cannot record models of transformers: take fsdp "
                "or deepspeed"
            )
        return super().refusal(hparams, strategy)

    def files(self, hparams: HParams) -> Mapping[str, Sequence[str]]:
        return base_of(**self._arguments(base_of, hparams)).files

    def export(self, hparams: HParams, state: TaskState, seed: int, epochs: int, batches: int) -> Exported:
        del seed
        return self._exported(hparams, state, epochs * batches, merged=False)

    def export_merged(
        self, hparams: HParams, state: TaskState, seed: int, epochs: int, batches: int
    ) -> Exported:
        del seed
        return self._exported(hparams, state, epochs * batches, merged=True)

    def _exported(self, hparams: HParams, state: TaskState, steps: int, *, merged: bool) -> Exported:
        values = self._arguments(functions.make, {**hparams, "steps": steps})
        quantized = values.pop("quantize", None) is not None  # the state has no base: the folder's is taken
        model, *_ = functions.make(**values)
        model.load_state_dict(state["model"], strict=not quantized)
        base = base_of(**self._arguments(base_of, hparams))
        inner: Any = model.inner
        if isinstance(inner, PeftModel) and (merged or base.begins_at_random):
            inner = inner.merge_and_unload()
        return exported(inner, base, values.get("objective", "causal-lm"), list(not_carried(state)))

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
