"""The task adapter for transformers (entry point ``transformers`` of ``cerebro.tasks``).

The task is that of plain PyTorch with the functions of this plugin: they make the model of a base and its adapter,
batches of texts, loss and metrics. So all that holds for the task ``torch`` holds here.
"""

from __future__ import annotations

from pathlib import Path

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.recipes import TorchSection
from cerebro_elastic.extending.state import FunctionTask, not_carried
from cerebro_elastic.extending.tasks import Exported, HParams, TaskState, select_arguments
from cerebro_transformers import functions
from cerebro_transformers.section import TransformersSection


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
            if name not in given:
                raise TaskError(f"the task needs {name}: give it in the task, or search over it")
        super().check(hparams)
        functions.check(**select_arguments(functions.check, given))

    def export(self, hparams: HParams, state: TaskState, seed: int, epochs: int, batches: int) -> Exported:
        del seed
        values = {**self._given, **hparams, "steps": epochs * batches}
        model, *_ = functions.make(**select_arguments(functions.make, values))
        model.load_state_dict(state["model"])
        base = functions.base_of(values["model"], values["root"], values.get("download", False))
        return functions.exported(model.inner, base, list(not_carried(state)))
