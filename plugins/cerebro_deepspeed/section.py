"""A recipe's settings for ``use: deepspeed``; imports neither DeepSpeed nor torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from cerebro_elastic.extending.errors import RecipeError, did_you_mean
from cerebro_elastic.extending.recipes import ParallelismSection


class DeepSpeedSection(ParallelismSection):
    """Options are ``stage`` and ``config``, DeepSpeed's JSON or the path of its file from the recipe's folder
    on."""

    NEEDS: ClassVar[tuple[str, ...]] = ("deepspeed",)
    # fsdp saves as much memory as ZeRO's stage 3.
    AUTO_OPTIONS: ClassVar[Mapping[str, Any]] = {"stage": 2}

    def options_in(self, root: Path) -> dict[str, Any]:
        options = self.options
        if isinstance(file := options.get("config"), str):
            options["config"] = str(root / Path(file).expanduser())
        return options


_OURS = {
    "train_batch_size": "the recipe's batch_size is the global one",
    "train_micro_batch_size_per_gpu": "the recipe's batch_size is divided among the ranks",
    "gradient_accumulation_steps": "each batch is one step of the optimizer",
    "gradient_clipping": "it is the task's `clip`",
    "optimizer": "it is the task's",
    "scheduler": "it is the task's",
    "fp16": "its loss scale would not hop; take torch_autocast, which leaves the parameters in float32",
    "bf16": "it takes the parameters out of float32; take torch_autocast",
    "amp": "it needs apex; take torch_autocast",
}
"""Keys that contradict the recipe or the hop, and why."""

_OBJECTS = (
    "zero_optimization",
    "torch_autocast",
    "activation_checkpointing",
    "flops_profiler",
    "comms_logger",
    "tensorboard",
    "wandb",
    "csv_monitor",
)
_PLAIN = (
    "communication_data_type",
    "prescale_gradients",
    "gradient_predivide_factor",
    "wall_clock_breakdown",
    "memory_breakdown",
    "dump_state",
    "steps_per_print",
)
"""The other keys, which do not change a unit's result: those whose values are objects, and the rest."""


def settings(stage: int | None, config: Mapping[str, Any] | str | None) -> dict[str, Any]:
    """The settings for ``deepspeed.initialize``, less those that depend on the unit.

    ``config`` is the JSON's content or the path of its file. Raises ``RecipeError`` that names the key.
    """
    given = _read(config) if isinstance(config, str) else dict(config or {})
    for key in given:
        if key in _OURS:
            raise RecipeError(f"deepspeed config: {key}: {_OURS[key]}; remove it")
        if key in _OBJECTS:
            _check_object(key, given[key])
        elif key not in _PLAIN:
            near = did_you_mean(key, [*_OBJECTS, *_PLAIN])
            raise RecipeError(f"deepspeed config: {key} is not supported; {near}")
    zero = given.get("zero_optimization", {})
    return {
        **given,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {**zero, "stage": _stage(stage, zero)},
        "train_micro_batch_size_per_gpu": 1,  # DeepSpeed requires one; it does not use it in a step
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 0.0,  # its default is 1.0; a step's own is set at the step
    }


def _stage(stage: int | None, zero: Mapping[str, Any]) -> int:
    named = zero.get("stage")
    if stage is not None and named is not None and stage != named:
        raise RecipeError(
            f"deepspeed config: zero_optimization.stage is {named}, the recipe says stage {stage}: keep one"
        )
    chosen = named if stage is None else stage
    if chosen is None:
        raise RecipeError("deepspeed: no `stage` is given, nor by its `config`; choices: 1, 2, 3")
    if isinstance(chosen, bool) or chosen not in (1, 2, 3):
        raise RecipeError(f"deepspeed: stage is {chosen!r}; choices: 1, 2, 3")
    for part in ("offload_optimizer", "offload_param"):
        _check_object(f"zero_optimization.{part}", zero.get(part, {}))
        if zero.get(part, {}).get("device") == "nvme":
            raise RecipeError(
                f"deepspeed config: zero_optimization.{part}.device is 'nvme', which needs a "
                "native build; choices: cpu, none"
            )
    return int(chosen)


def _check_object(key: str, value: object) -> None:
    if not isinstance(value, Mapping):
        raise RecipeError(f"deepspeed config: {key} is {value!r}, expected an object")


def _read(path: str) -> dict[str, Any]:
    try:
        content = json.loads(Path(path).read_text())
    except OSError as exc:
        raise RecipeError(f"deepspeed config: {path} cannot be read: {exc.strerror}") from exc
    except ValueError as exc:
        raise RecipeError(f"deepspeed config: {path} is not JSON: {exc}") from exc
    if not isinstance(content, dict):
        raise RecipeError(f"deepspeed config: {path} holds a {type(content).__name__}, expected an object")
    return content
