"""The names private to DeepSpeed that the plugin uses are still there."""

from __future__ import annotations

import importlib
import inspect
import random
from types import ModuleType

import deepspeed
import pytest
import torch
import torch.distributed.distributed_c10d as c10d
from deepspeed.runtime.zero import partition_parameters, stage3, stage_1_and_2
from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer

from cerebro_deepspeed import library
from cerebro_deepspeed._deepspeed_internals import without_a_default_group


@pytest.mark.parametrize("name", ["_hp_optimizer_states_linked", "_lazy_init_hp_params_optimizer_state"])
def test_a_zero_optimizer_has(name: str) -> None:
    source = inspect.getsource(DeepSpeedZeroOptimizer)
    assert name in source, f"DeepSpeed {deepspeed.__version__}: its ZeRO optimizer has no {name} any more"


ELSEWHERE = {
    "__compatible_ops__": deepspeed.ops,
    "set_accelerator": deepspeed.accelerator,
    "cdb": deepspeed.comm.comm,
    "FWD_MODULE_STACK": deepspeed.runtime.zero.parameter_offload,
}
STAGES = {
    "fp32_partitioned_groups_flat": stage3,
    "fp16_groups": stage3,
    "single_partition_of_fp32_groups": stage_1_and_2,
    "bit16_groups": stage_1_and_2,
    "ds_tensor": partition_parameters,
    "ds_shape": partition_parameters,
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_module_has(name: str) -> None:
    owner = ELSEWHERE[name]
    assert hasattr(owner, name), f"DeepSpeed {deepspeed.__version__}: {owner.__name__} has no {name} any more"


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_knows(name: str) -> None:
    owner = STAGES[name]
    assert f".{name}" in inspect.getsource(owner), f"DeepSpeed {deepspeed.__version__}: {owner.__name__}"


def test_the_default_group_is_hidden_and_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    default = object()
    monkeypatch.setattr(c10d._world, "default_pg", default)
    with without_a_default_group():
        assert c10d._world.default_pg is None
    assert c10d._world.default_pg is default


def test_the_import_draws_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may come within a process's first unit, whose result would be another than that of a later one."""
    before, imported = random.getstate(), importlib.import_module

    def drawing(name: str) -> ModuleType:
        if name == "deepspeed":
            random.random()
        return imported(name)

    monkeypatch.setattr(importlib, "import_module", drawing)
    library.deepspeed(torch.device("cpu"))
    assert random.getstate() == before
