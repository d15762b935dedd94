"""Hops between two parallelisms: what arrives is what left, bit for bit, and training goes on as if it
had never stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from cerebro_elastic.hop import checkpoint
from cerebro_elastic.training.parallel.rank_pool import RankFailed, Ranks
from support.hops import shards_go_on, unit, unpacked
from support.same import assert_same

pytestmark = pytest.mark.cluster

KINDS: dict[str, tuple[str, dict[str, Any], int]] = {
    "single": ("single", {}, 1),
    "ddp": ("ddp", {}, 2),
    "fsdp": ("fsdp", {}, 2),
    "zero-1": ("deepspeed", {"stage": 1}, 2),
    "zero-2": ("deepspeed", {"stage": 2}, 2),
    "zero-3": ("deepspeed", {"stage": 3}, 2),
    "pipeline": ("pipeline", {"microbatches": 1}, 2),  # more would count the buffer more often
}
NAMES = list(KINDS)
RING = [(name, NAMES[(number + 1) % len(NAMES)]) for number, name in enumerate(NAMES)]
PAIRS = {
    *((name, name) for name in NAMES),
    *(pair for name in NAMES for pair in ((name, "single"), ("single", name))),
}
HOPS = [*((*pair, "adamw") for pair in sorted(PAIRS)), *((*pair, "sgd") for pair in RING)]
"""A parallelism knows nothing of the one before or after it: so each writes for itself, for one rank and for
one other, and reads from them."""
FIRST, SECOND, WHOLE = range(3), range(3, 6), range(6)
RELATIVE = 1e-6

Run = Callable[..., tuple[bytes, list[float]]]


@pytest.fixture(scope="module")
def run(ranks: Ranks) -> Run:
    """``run(kind, optimizer, state, steps)``: a unit's state, and its losses over global batches."""

    @cache
    def of_kind(
        kind: str, optimizer: str, state: bytes | None, steps: range, everywhere: bool = True
    ) -> tuple[bytes, list[float]]:
        name, options, size = KINDS[kind]
        made = ranks.together(unit, name, options, optimizer, state, steps, everywhere, members=range(size))
        losses = [unpacked(part)["losses"] for part in made]
        return made[0], [sum(addends) for addends in zip(*losses, strict=True)]

    return of_kind


def close(one: Any, other: Any, path: str = "state") -> None:
    """Raise ``AssertionError`` unless all tensors agree within ``RELATIVE`` of their largest element."""
    if isinstance(one, torch.Tensor):
        far = float((one - other).abs().max() / other.abs().max().clamp(min=1e-6))
        assert far <= RELATIVE, f"{path}: {far:.1e}"
    elif isinstance(one, Mapping):
        assert list(one) == list(other), path
        for key in one:
            close(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, list):
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            close(left, right, f"{path}[{number}]")
    else:
        assert one == other, path


def carried(state: bytes) -> dict[str, Any]:
    """What a state has, without what belongs to the unit."""
    whole = unpacked(state)
    return {"model": dict(whole["model"]), "optimizer": whole["optimizer"]}


@pytest.mark.parametrize(("here", "there", "optimizer"), HOPS)
def test_a_hop_between_two_parallelisms_is_exact(run: Run, here: str, there: str, optimizer: str) -> None:
    whole, losses = run("single", optimizer, None, WHOLE)
    left, first = run(here, optimizer, None, FIRST)
    everywhere = NAMES.index(here) % 2 == NAMES.index(there) % 2

    arrived, _ = run(there, optimizer, left, range(0), everywhere)
    assert_same(carried(arrived), carried(left))
    model = unpacked(arrived)["model"]
    assert model["tied.weight"].data_ptr() == model["inward.weight"].data_ptr()
    went_on, second = run(there, optimizer, left, SECOND, everywhere)
    close(carried(went_on), carried(whole))
    assert first + second == pytest.approx(losses, rel=1e-5)
    if here == there:
        assert_same(carried(went_on), carried(run(there, optimizer, None, WHOLE)[0]))


@pytest.mark.parametrize("options", [{}, {"wrap": []}])
def test_shards_that_stay_are_as_if_nothing_had_happened(
    ranks: Ranks, run: Run, options: dict[str, Any], tmp_path: Path
) -> None:
    went_on, ref = ranks.together(shards_go_on, options, "adamw", WHOLE, str(tmp_path / "c"), members=[0, 1])[
        0
    ]
    whole = ranks.together(unit, "fsdp", options, "adamw", None, WHOLE, members=[0, 1])[0]
    assert_same(carried(went_on), carried(whole))
    # A reader that wants all of the state puts it together.
    together = checkpoint.load(ref)
    assert together["model"]["tied.weight"] is together["model"]["inward.weight"]
    assert_same(together, carried(run("fsdp", "adamw", None, FIRST)[0]))


def test_a_module_that_cannot_be_wrapped(ranks: Ranks) -> None:
    with pytest.raises(RankFailed, match="inward shares weight with a module outside of it"):
        ranks.together(unit, "fsdp", {"wrap": ["Linear"]}, "adamw", None, FIRST, members=[0, 1])
