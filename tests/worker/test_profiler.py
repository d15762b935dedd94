"""Profiles in this process, and their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from scene import Scene

from cerebro_elastic.core.model.attempts import ProfileResult
from cerebro_elastic.core.model.codec import decode
from cerebro_elastic.core.model.units import Phase, Strategy
from cerebro_elastic.errors import RunError
from cerebro_elastic.worker.resources import free_bytes, limit_of

Make = Callable[..., Scene]
CPU = "cpu"


def profile(scene: Scene, **of: Any) -> ProfileResult | None:
    """The profile of the config's next unit; ``None`` if it fails."""
    attempt = scene.assign(phase=Phase.PROFILE, **of)
    scene.attempts.perform(attempt)
    assert scene.ledger.assignment("n") is None
    item = scene.store.get(scene.ledger.keys.profile("c", attempt.token))
    return decode(item.value, ProfileResult) if item else None


def test_a_profile_has_seconds_and_memory_and_changes_nothing(make_scene: Make) -> None:
    scene = make_scene(batch_size=1)
    before = scene.config
    result = profile(scene)
    assert result is not None
    assert result.refusal is None
    assert result.seconds > 0
    assert scene.config == before
    assert not scene.checkpoints.exists()
    scene.perform()
    assert scene.ledger.visits()[0].whole


@pytest.mark.parametrize(
    ("deed", "strategy", "story"),
    [
        ("memory", Strategy(), "out of memory"),
        ("train", Strategy("deepspeed", options={"stage": 1}), "a train_fn does its own steps"),
        ("train", Strategy("ddp"), "ddp takes two ranks or more, not 1"),
        ("train", Strategy("fsdp", options={"wrap": ["Nothing"]}), "has no module of class 'Nothing'"),
    ],
)
def test_an_infeasible_strategy_is_reported(
    make_scene: Make, deed: str, strategy: Strategy, story: str
) -> None:
    scene = make_scene(deed=deed)
    result = profile(scene, strategy=strategy)
    assert result is not None
    assert result.refusal is not None
    assert story in result.refusal
    assert scene.config.failures == ()


def test_a_model_that_cannot_fit_is_refused_before_it_is_trained(make_scene: Make) -> None:
    """Six parameters of four bytes, and as many gradients."""
    result = profile(make_scene(deed="raise", memory=47))
    assert result is not None
    assert "a rank holds at least" in (result.refusal or "")


@pytest.mark.parametrize(("deed", "batch_size"), [("hoard", 4), ("hoard at last", 4), ("hoard at last", 1)])
def test_a_unit_that_takes_too_much_is_refused(make_scene: Make, deed: str, batch_size: int) -> None:
    """Also if only after its last batch, as when its state is brought together."""
    result = profile(make_scene(deed=deed, batch_size=batch_size, memory=50_000_000))
    assert result is not None
    assert "MB on a rank, whose limit is 50 MB (CEREBRO_MEMORY)" in (result.refusal or "")


def test_the_memory_limit_in_the_forms_that_people_write() -> None:
    assert [limit_of({"CEREBRO_MEMORY": text}) for text in ("", "5", "1.5K", "2M", "3GB")] == [
        *(None, 5, 1500, 2_000_000, 3_000_000_000)
    ]
    with pytest.raises(RunError, match="CEREBRO_MEMORY is 'much': give a number of bytes"):
        limit_of({"CEREBRO_MEMORY": "much"})
    assert free_bytes(CPU, 5) == 5
    assert free_bytes(CPU, None) > 0
