"""Frozen layers do not hop: with a base and without, every unit ends in the same state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from frozen_net import WIDTH
from frozen_on_ranks import (
    EPOCHS,
    ROWS,
    averaging_task,
    dense_torch_task,
    lightning_task,
    torch_task,
    unfreezing_torch_task,
    units,
)
from lightning.pytorch import callbacks as stock

from cerebro_elastic.core.model.units import CheckpointRef, Strategy
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.training.parallel.rank_pool import Ranks
from cerebro_elastic.training.task import Task

MATRIX = 4 * (WIDTH * WIDTH + WIDTH)
"""The bytes of the second layer."""
FROZEN = 4 * (6 * WIDTH + WIDTH + 2 * WIDTH) + MATRIX
SINGLE, DDP, FSDP = Strategy(), Strategy("ddp", 2), Strategy("fsdp", 2)
ZERO = Strategy("deepspeed", 2, options={"stage": 3})
PIPELINE = Strategy("pipeline", 2, options={"microbatches": 1})
ALL = len(ROWS) * EPOCHS


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path)


def bases(root: str) -> list[str]:
    return [path.name for path in Path(root, "bases").iterdir()]


@pytest.mark.parametrize("task", [torch_task, lightning_task])
def test_a_hop_without_its_base_is_the_hop_of_all(task: Callable[[], Task], root: str) -> None:
    refs, whole = (units(task, root, [SINGLE] * ALL, None, each) for each in (False, True))
    assert [ref.digest for ref in refs] == [ref.digest for ref in whole]
    assert len(bases(root)) == 1
    frozen, unfrozen = refs[0].base_bytes, refs[-1].base_bytes
    assert frozen >= FROZEN
    assert [ref.base_bytes for ref in refs] == [frozen] * 4 + [unfrozen] * 2
    assert unfrozen == frozen - MATRIX


@pytest.mark.skipif(not hasattr(stock, "EMAWeightAveraging"), reason="this Lightning averages no weights")
def test_frozen_layers_beside_an_average_of_the_weights_do_not_hop(root: str) -> None:
    """The average itself does: Lightning computes it with rounding, so that it changes."""
    refs, whole = (units(averaging_task, root, [SINGLE] * 3, None, each) for each in (False, True))
    assert [ref.digest for ref in refs] == [ref.digest for ref in whole]
    assert [ref.base_bytes for ref in refs] == [FROZEN] * 3


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("task", "strategy"),
    [
        (dense_torch_task, FSDP),
        (dense_torch_task, ZERO),
        (dense_torch_task, PIPELINE),
    ],
    ids=["fsdp", "deepspeed", "pipeline"],
)
def test_strategies_share_a_base(
    ranks: Ranks, task: Callable[[], Task], strategy: Strategy, root: str
) -> None:
    """Units on two ranks, on one, and on two again."""

    def chain(*, whole: bool) -> list[CheckpointRef]:
        refs: list[CheckpointRef] = []
        for size, by in ((2, [strategy] * 2), (1, [SINGLE]), (2, [DDP, strategy, strategy])):
            head = refs[-1] if refs else None
            refs += ranks.together(units, task, root, by, head, whole, members=range(size))[0]
        return refs

    refs, whole = chain(whole=False), chain(whole=True)
    assert [ref.digest for ref in refs] == [ref.digest for ref in whole]
    assert {ref.base_bytes for ref in refs} == {refs[0].base_bytes}
    assert refs[0].base_bytes >= FROZEN
    assert len(bases(root)) == 1
    for ref in refs:
        checkpoint.verify(ref)


@pytest.mark.cluster
def test_a_layer_that_is_unfrozen_leaves_the_base_under_fsdp(ranks: Ranks, root: str) -> None:
    refs, whole = (
        ranks.together(units, unfreezing_torch_task, root, [FSDP] * ALL, None, each, members=[0, 1])[0]
        for each in (False, True)
    )
    assert [ref.digest for ref in refs] == [ref.digest for ref in whole]
    assert [ref.base_bytes for ref in refs] == [FROZEN] * 4 + [FROZEN - MATRIX] * 2
    alone = units(unfreezing_torch_task, f"{root}/alone", [SINGLE] * ALL, None, False)
    trained, expected = (checkpoint.load(each[-1])["model"] for each in (refs, alone))
    for name, value in expected.items():
        assert torch.allclose(trained[name], value, rtol=1e-5, atol=1e-6), name
    started = checkpoint.load(refs[0])["model"]
    assert not torch.equal(trained["backbone.2.weight"], started["backbone.2.weight"])
