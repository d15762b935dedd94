"""The identity: a step is the plain step, and what is exported can be loaded."""

from __future__ import annotations

import copy

import torch
from torch import nn

from cerebro_elastic.training.parallel.base import Parallelism, Parts
from cerebro_elastic.training.parallel.replicated import Single
from support.same import assert_same


def make() -> Parts:
    model = nn.Linear(3, 1)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=0.1))


def square(output: torch.Tensor, _: None) -> torch.Tensor:
    return output.square().sum()


def train(single: Parallelism, parts: Parts, clip: float | None = None) -> None:
    for seed in range(3):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
        single.step(parts, x, None, square, clip=clip)


def test_it_takes_one_rank() -> None:
    assert Single().refusal(make(), 1) is None
    assert Single().refusal(make(), 2) == "single takes one rank, not 2"


def test_parts_go_on_from_what_was_exported() -> None:
    single, device = Single(), torch.device("cpu")
    whole = single.build(make, device)
    train(single, whole)
    exported = copy.deepcopy(single.export(whole))
    other = single.build(make, device)
    single.load(other, *exported)
    train(single, whole)
    train(single, other)
    assert_same(single.export(other), single.export(whole))
    single.close()


def test_gradients_are_fresh_and_clipped() -> None:
    single, parts = Single(), make()
    train(single, parts, clip=1e-3)
    norm = torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in parts.model.parameters()]))  # type: ignore[union-attr]
    assert float(norm) <= 1e-3 + 1e-9
