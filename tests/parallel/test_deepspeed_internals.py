"""The names private to DeepSpeed that the plugin uses are still there."""

from __future__ import annotations

import inspect

import deepspeed
import pytest
import torch.distributed.distributed_c10d as c10d
from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer

from cerebro_deepspeed._deepspeed_internals import without_a_default_group


@pytest.mark.parametrize("name", ["_hp_optimizer_states_linked", "_lazy_init_hp_params_optimizer_state"])
def test_a_zero_optimizer_has(name: str) -> None:
    source = inspect.getsource(DeepSpeedZeroOptimizer)
    assert name in source, f"DeepSpeed {deepspeed.__version__}: its ZeRO optimizer has no {name} any more"


def test_the_default_group_is_hidden_and_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    default = object()
    monkeypatch.setattr(c10d._world, "default_pg", default)
    with without_a_default_group():
        assert c10d._world.default_pg is None
    assert c10d._world.default_pg is default
