"""Parallelisms by name, and errors for wrong names, options, models and DeepSpeed JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cerebro_elastic.errors import CerebroError, MissingExtra, RecipeError
from cerebro_elastic.registry import install_extra
from cerebro_elastic.training.parallel.base import Parallelism, Parts, Sharding, make_parallelism


def parts(*layers: nn.Module) -> Parts:
    model = nn.Sequential(*(layers or (nn.Linear(2, 2), nn.Linear(2, 2))))
    return Parts(model, torch.optim.SGD(model.parameters(), lr=0.1))


def refusal(made: Parallelism, given: Parts, ranks: int = 2) -> str:
    said = made.refusal(given, ranks)
    assert said is not None
    return said


def test_names_and_options() -> None:
    assert make_parallelism("single").refusal(parts(), 1) is None
    assert isinstance(make_parallelism("fsdp", {"wrap": ["Linear"], "precision": "bfloat16"}), Sharding)
    assert not isinstance(make_parallelism("ddp", {"find_unused_parameters": True}), Sharding)
    with pytest.raises(CerebroError, match=r"did you mean 'fsdp'\? choices: ddp, deepspeed, fsdp, .*single"):
        make_parallelism("fsdpp")
    with pytest.raises(RecipeError, match="fsdp has no option 'warp'; did you mean 'wrap'"):
        make_parallelism("fsdp", {"warp": []})
    with pytest.raises(RecipeError, match=r"precision is 'float8'; .*choices: bfloat16, float32"):
        make_parallelism("fsdp", {"precision": "float8"})


@pytest.mark.parametrize(
    ("name", "option", "value", "said"),
    [
        ("fsdp", "wrap", "Linear", "'str' instances are not allowed as a Sequence value"),
        ("ddp", "find_unused_parameters", 1, "it should be a valid boolean"),
        ("pipeline", "microbatches", "4", "it should be a valid integer"),
        ("deepspeed", "config", 3, "it should be a valid dictionary"),
    ],
)
def test_options_of_another_kind(name: str, option: str, value: object, said: str) -> None:
    with pytest.raises(RecipeError) as refused:
        make_parallelism(name, {option: value})
    assert str(refused.value) == f"{name}: {option} is {value!r}: {said}"


def test_ranks_and_models_that_do_not_fit() -> None:
    assert "two ranks or more, not 1" in refusal(make_parallelism("ddp"), parts(), 1)
    frozen = parts(nn.Linear(2, 2).requires_grad_(False))
    assert "nothing is trainable" in refusal(make_parallelism("ddp"), frozen)
    assert "nothing is trainable" in refusal(make_parallelism("fsdp"), frozen)
    assert "wholly frozen" in refusal(make_parallelism("deepspeed", {"stage": 1}), frozen)

    class Scalar(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

    assert "0.scale" in refusal(make_parallelism("fsdp"), parts(Scalar()))
    assert "0.scale" in refusal(make_parallelism("deepspeed", {"stage": 3}), parts(Scalar()))
    assert "in float32" in refusal(
        make_parallelism("deepspeed", {"stage": 3}), parts(nn.Linear(2, 2).double())
    )
    whole = parts()
    shaped = Parts(whole.model, torch.optim.Adafactor(whole.model.parameters()))
    assert "Adafactor does not work on sharded tensors" in refusal(make_parallelism("fsdp"), shaped)


def test_modules_that_cannot_be_wrapped() -> None:
    tied = nn.Linear(2, 2)
    tied.weight = (embedded := nn.Linear(2, 2)).weight
    listed = nn.ModuleList([nn.Linear(2, 2)])
    given = parts(embedded, tied, listed)
    assert "no module of class 'Linea'; did you mean 'Linear'" in refusal(
        make_parallelism("fsdp", {"wrap": ["Linea"]}), given
    )
    assert "0 shares weight with a module outside" in refusal(
        make_parallelism("fsdp", {"wrap": ["Linear"]}), given
    )
    assert "2 is a ModuleList, which is never called" in refusal(
        make_parallelism("fsdp", {"wrap": ["ModuleList"]}), given
    )
    assert make_parallelism("fsdp").refusal(given, 2) is None


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"train_batch_size": 8}, "train_batch_size: the recipe's batch_size is the global one; remove it"),
        ({"gradient_clipping": 1.0}, "gradient_clipping: it is the task's `clip`"),
        ({"fp16": {"enabled": True}}, "fp16: .*torch_autocast"),
        ({"zero_optimisation": {}}, "did you mean 'zero_optimization'"),
        ({"zero_optimization": {"stage": 3}}, "zero_optimization.stage is 3, the recipe says stage 2"),
        ({"zero_optimization": {"offload_param": "cpu"}}, "offload_param is 'cpu', expected an object"),
        ({"zero_optimization": {"offload_param": {"device": "nvme"}}}, "offload_param.device is 'nvme'"),
    ],
)
def test_contradictions_of_deepspeeds_json(config: Mapping[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=said):
        make_parallelism("deepspeed", {"stage": 2, "config": config})
    file = tmp_path / "ds.json"
    file.write_text(json.dumps(config))
    with pytest.raises(RecipeError, match=said):
        make_parallelism("deepspeed", {"stage": 2, "config": str(file)})


def test_settings_that_deepspeed_refuses_are_reported_before_training() -> None:
    one = make_parallelism(
        "deepspeed", {"config": {"zero_optimization": {"stage": 2, "reduce_bucket_sise": 5}}}
    )
    assert refusal(one, parts()) == (
        "deepspeed config: zero_optimization.reduce_bucket_sise is 5: Extra inputs are not permitted"
    )
    other = make_parallelism(
        "deepspeed", {"stage": 1, "config": {"prescale_gradients": {}, "wall_clock_breakdown": True}}
    )
    assert other.refusal(parts(), 2) is None


def test_deepspeed_is_imported_on_use_and_reported_if_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sys

    made = make_parallelism("deepspeed", {"stage": 1})
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    said = refusal(made, parts())
    assert install_extra("deepspeed") in said
    with pytest.raises(MissingExtra, match=re.escape(install_extra("deepspeed"))):
        made.build(parts, torch.device("cpu"))
