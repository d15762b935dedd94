"""Models cut into stages: in sequence they compute what the model does; a refusal says why a model cannot be
cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cerebro_elastic.errors import TaskError
from cerebro_pipeline.stages import BATCH, split, takes_batch


class Gpt(nn.Module):
    """What a forward likes to do: sizes of the batch, a skip over all blocks, a mode, a tied head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.position = nn.Parameter(torch.randn(16, 8))
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.head = nn.Linear(8, 10, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor, scale: float = 2.0) -> Tensor:
        rows, length = ids.size(0), ids.shape[1]
        first = hidden = self.embed(ids) + self.position[:length]
        for block in self.blocks:
            hidden = torch.tanh(block(hidden))
        hidden = nn.functional.dropout(hidden + first, training=self.training)
        if self.training:
            hidden = hidden * scale
        out: Tensor = self.head(hidden).view(rows, length, 10)
        return out


IDS = torch.arange(15).reshape(3, 5) % 10


def through(stages: Sequence[nn.Module], batch: Tensor) -> Any:
    values: Any = ()
    for stage in stages:
        values = stage(*values, **({BATCH: batch} if takes_batch(stage) else {}))
    return values


@pytest.mark.parametrize("begin", [None, ["blocks.1", "head"]])
@pytest.mark.parametrize("training", [True, False])
def test_stages_do_what_the_model_does(training: bool, begin: list[str] | None) -> None:
    model = Gpt().train(training)
    stages = split(model, 3, begin, training=training)
    torch.manual_seed(1)
    made = through(stages, IDS)
    torch.manual_seed(1)
    assert torch.equal(made, model(IDS))
    used = [{name for name, _ in stage.named_parameters() if "blocks" in name} for stage in stages]
    assert [len(names) for names in used] == ([4, 2, 2] if begin is None else [2, 6, 0])
    own = {id(parameter) for parameter in model.parameters()}
    assert {id(parameter) for stage in stages for parameter in stage.parameters()} == own


class Branches(Gpt):
    def forward(self, ids: Tensor, scale: float = 2.0) -> Tensor:
        return super().forward(ids) if ids.sum() > 0 else super().forward(ids, scale)


class Counts(Gpt):
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, ids: Tensor, scale: float = 2.0) -> Tensor:
        self.calls += 1
        return super().forward(ids, scale)


@pytest.mark.parametrize(
    ("model", "begin", "said"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU()), None, "has 0 blocks in a row, too few for 2 stages"),
        (Gpt(), ["blocks.9"], r"calls no module 'blocks.9'; did you mean 'blocks.\d'\? choices: .*head"),
        (Gpt(), ["blocks.1", "head"], "begins 2 stages, and with 2 ranks 1 begin after the first"),
        (Gpt(), [], "nothing begins 0 stages"),
        (Branches(), None, r"Branches.forward cannot be recorded .*control flow.*separate module"),
        (Counts(), None, r"forward assigns calls, .*in place \(self.calls.add_\(1\)\)"),
    ],
    ids=["no blocks", "no such module", "too many", "none", "control flow", "assigns"],
)
def test_models_that_cannot_be_cut(model: nn.Module, begin: list[str] | None, said: str) -> None:
    with pytest.raises(TaskError, match=said):
        split(model, 2, begin, training=True)
    if isinstance(model, Counts):
        assert isinstance(model.calls, Tensor), "nothing of the record is left in the model"


def test_only_tensors_travel() -> None:
    class Sizes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.layers[0](x)
            width = hidden.size(1)
            out: Tensor = self.layers[1](hidden) * width
            return out

    with pytest.raises(TaskError, match="a stage has to hand on 2, and only tensors travel"):
        through(split(Sizes(), 2, None, training=True), torch.ones(1, 2))
