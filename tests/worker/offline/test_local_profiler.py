"""Profiles without a run, in this process and on two ranks."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from scene import Scene

from cerebro_elastic.core.model.codec import decode, encode
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.training.parallel.rank_pool import Ranks
from cerebro_elastic.training.unit_runner import StrategyCost
from cerebro_elastic.worker.offline.local_profiler import LocalProfiler, profile_on_rank

Make = Callable[..., Scene]
DDP = Strategy("ddp", 2)


def profiled(scene: Scene, folder: Path, strategy: Strategy = Strategy()) -> StrategyCost:
    with LocalProfiler(scene.spec, folder / "cache", str(folder / "states")) as profiler:
        return profiler(scene.config, strategy)


@pytest.mark.parametrize("deed", ["train", "freeze"])
def test_a_profile_has_what_a_batch_and_a_hop_take(make_scene: Make, tmp_path: Path, deed: str) -> None:
    cost = profiled(make_scene(deed=deed), tmp_path)
    assert (cost.config, cost.strategy, cost.refusal) == ("c", Strategy(), None)
    assert cost.batch_seconds > 0
    assert cost.fixed_seconds >= 0
    assert cost.hop_seconds is not None
    assert cost.state_bytes is not None
    assert 6 * 4 < cost.state_bytes < 100_000, "a linear layer of six parameters, and more; nothing frozen"
    assert list((tmp_path / "states").rglob("*.*")) == [], "what was saved is removed"


def test_profiles_side_by_side(make_scene: Make, tmp_path: Path) -> None:
    scene = make_scene()
    with LocalProfiler(
        scene.spec, tmp_path / "cache", str(tmp_path / "states"), concurrent_units=2
    ) as profiler:
        cost = profiler.side_by_side(scene.config, Strategy())
        assert profiler.side_by_side(scene.config, DDP) is None
    assert cost is not None
    assert (cost.concurrent_units, cost.refusal) == (2, None)
    assert min(cost.batch_seconds, cost.hop_seconds or 0.0) > 0
    assert list((tmp_path / "states").rglob("*.*")) == [], "what was saved is removed"


def test_profiles_side_by_side_that_die_are_none(make_scene: Make, tmp_path: Path) -> None:
    """As where one has memory enough, and two have not."""
    scene = make_scene()
    with LocalProfiler(
        scene.spec, tmp_path / "cache", str(tmp_path / "states"), concurrent_units=2
    ) as profiler:
        os.kill(profiler._ranks().pid(0), signal.SIGKILL)
        assert profiler.side_by_side(scene.config, Strategy()) is None
        second = profiler.side_by_side(scene.config, Strategy())
    assert second is not None
    assert second.concurrent_units == 2


def test_a_task_that_cannot_be_left_in_the_middle_leaves_no_state(make_scene: Make, tmp_path: Path) -> None:
    """A train_fn of the user's, after six batches of eight."""
    cost = profiled(make_scene(batch_size=1), tmp_path)
    assert (cost.hop_seconds, cost.state_bytes, cost.refusal) == (None, None, None)
    assert cost.batch_seconds > 0


@pytest.mark.parametrize(
    ("deed", "story"),
    [
        ("memory", "out of memory: OutOfMemoryError: out of memory"),
        ("raise", "its profile failed: ValueError: not to my liking"),
        ("exit", "its profile failed: SystemExit: 0"),
    ],
)
def test_an_untrainable_config_is_refused(make_scene: Make, tmp_path: Path, deed: str, story: str) -> None:
    cost = profiled(make_scene(deed=deed), tmp_path)
    assert cost.refusal is not None
    assert story in cost.refusal


def test_a_strategy_with_more_ranks_than_the_machine_has_is_not_profiled(
    make_scene: Make, tmp_path: Path
) -> None:
    cost = profiled(make_scene(), tmp_path, Strategy("ddp", 10_000))
    assert "was not tried: it takes 10000 ranks, and this machine has" in (cost.refusal or "")


def test_on_two_ranks(make_scene: Make, tmp_path: Path, ranks: Ranks) -> None:
    strategies = (DDP, Strategy("fsdp", 2), Strategy("deepspeed", 2, options={"stage": 1}))
    scene = make_scene(deed="freeze")
    spec = encode(replace(scene.spec, plan=replace(scene.plan, strategies=strategies)))
    config = encode(Config("c", scene.config.hparams))

    def cost(strategy: Strategy) -> StrategyCost:
        words = (spec, str(tmp_path / "cache"), str(tmp_path / "states"), "cpu", config, encode(strategy))
        return decode(ranks.together(profile_on_rank, *words, members=[0, 1])[0], StrategyCost)

    whole, divided, refused = map(cost, strategies)
    for each in (whole, divided):
        assert each.refusal is None
        assert each.batch_seconds > 0
        assert each.state_bytes is not None
        assert each.state_bytes < 100_000, "what is frozen does not hop"
    assert "a train_fn does its own steps" in (refused.refusal or "")
