"""fsdp in bfloat16: dtypes between blocks and the rest of the model, and of its output."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cerebro_elastic.training.parallel import group
from cerebro_elastic.training.parallel.base import Parts, make_parallelism

CPU = torch.device("cpu")


class Blocks(nn.Module):
    """Blocks between modules of the model's own, which meet their output."""

    def __init__(self) -> None:
        super().__init__()
        self.inward = nn.Linear(4, 8)
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.norm = nn.LayerNorm(8)
        self.seen: list[torch.dtype] = []

    def forward(self, x: Tensor) -> Tensor:
        x = self.inward(x)
        for block in self.blocks:
            x = x + block(x)
            self.seen.append(x.dtype)
        normed: Tensor = self.norm(x)
        return normed


def test_blocks_hand_on_what_they_compute_in_and_the_model_returns_float32() -> None:
    model = Blocks()
    fsdp = make_parallelism("fsdp", {"precision": "bfloat16"})
    with group.formed(group.listen("127.0.0.1"), 0, 1, CPU):
        parts = fsdp.build(lambda: Parts(model, torch.optim.AdamW(model.parameters())), CPU)
        outputs: list[Tensor] = []

        def loss_of(output: Tensor, _: None) -> Tensor:
            outputs.append(output)
            return output.square().mean()

        fsdp.step(parts, torch.ones(2, 4), None, loss_of)
        state, _ = fsdp.export(parts)
        fsdp.close()
        del parts
    assert set(model.seen) == {torch.bfloat16}
    assert outputs[0].dtype is torch.float32
    assert {tensor.dtype for tensor in state.values()} == {torch.float32}
