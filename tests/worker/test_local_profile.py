"""Trials without a run, in this process and on two ranks."""

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
from cerebro_elastic.parallel.rank_pool import Ranks
from cerebro_elastic.training.measure import Measure
from cerebro_elastic.worker.local_profile import LocalProfile, try_here

Make = Callable[..., Scene]
DDP = Strategy("ddp", 2)


def tried(scene: Scene, folder: Path, strategy: Strategy = Strategy()) -> Measure:
    with LocalProfile(scene.spec, folder / "cache", str(folder / "states")) as alone:
        return alone(scene.config, strategy)


def test_a_trial_tells_what_a_batch_and_a_hop_take(make_scene: Make, tmp_path: Path) -> None:
    told = tried(make_scene(), tmp_path)
    assert (told.config, told.strategy, told.refusal) == ("c", Strategy(), None)
    assert told.batch > 0
    assert told.fixed > 0
    assert told.hop is not None
    assert told.state is not None
    assert told.state > 6 * 4, "a linear layer of six parameters, and more"
    assert list((tmp_path / "states").rglob("*.*")) == [], "what was saved is removed"


def test_trials_side_by_side(make_scene: Make, tmp_path: Path) -> None:
    scene = make_scene()
    with LocalProfile(scene.spec, tmp_path / "cache", str(tmp_path / "states"), beside=2) as alone:
        told = alone.side_by_side(scene.config, Strategy())
        assert alone.side_by_side(scene.config, DDP) is None
    assert told is not None
    assert (told.beside, told.refusal) == (2, None)
    assert min(told.batch, told.fixed, told.hop or 0.0) > 0
    assert list((tmp_path / "states").rglob("*.*")) == [], "what was saved is removed"


def test_trials_side_by_side_that_die_are_none(make_scene: Make, tmp_path: Path) -> None:
    """As where one has memory enough, and two have not."""
    scene = make_scene()
    with LocalProfile(scene.spec, tmp_path / "cache", str(tmp_path / "states"), beside=2) as alone:
        os.kill(alone._ranks().pid(0), signal.SIGKILL)
        assert alone.side_by_side(scene.config, Strategy()) is None
        again = alone.side_by_side(scene.config, Strategy())
    assert again is not None
    assert again.beside == 2


def test_a_task_that_cannot_be_left_in_the_middle_leaves_no_state(make_scene: Make, tmp_path: Path) -> None:
    """A train_fn of the user's, after six batches of eight."""
    told = tried(make_scene(batch_size=1), tmp_path)
    assert (told.hop, told.state, told.refusal) == (None, None, None)
    assert told.batch > 0


def test_short_batches_are_tried_up_to_the_last(make_scene: Make, tmp_path: Path) -> None:
    """Eight of them take no second; one more tells what a unit takes besides."""
    scene = make_scene(deed="count", batch_size=1)
    assert tried(scene, tmp_path).refusal is None
    (seen,) = Path(scene.spec.root).glob("*.seen")
    assert len(seen.read_text().splitlines()) == 7 + 1


@pytest.mark.parametrize(
    ("deed", "story"),
    [
        ("memory", "out of memory: OutOfMemoryError: out of memory"),
        ("raise", "its trial failed: ValueError: not to my liking"),
        ("exit", "its trial failed: SystemExit: 0"),
    ],
)
def test_what_cannot_be_trained_is_refused(make_scene: Make, tmp_path: Path, deed: str, story: str) -> None:
    told = tried(make_scene(deed=deed), tmp_path)
    assert told.refusal is not None
    assert story in told.refusal


def test_what_takes_too_much_memory_is_refused(
    make_scene: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CEREBRO_MEMORY", "50M")
    told = tried(make_scene(deed="hoard"), tmp_path)
    assert "MB on a rank, which may take 50 MB (CEREBRO_MEMORY)" in (told.refusal or "")


def test_more_ranks_than_there_are_are_not_tried(make_scene: Make, tmp_path: Path) -> None:
    told = tried(make_scene(), tmp_path, Strategy("ddp", 10_000))
    assert "was not tried: it takes 10000 ranks, and this machine has" in (told.refusal or "")


def test_on_two_ranks(make_scene: Make, tmp_path: Path, ranks: Ranks) -> None:
    strategies = (DDP, Strategy("fsdp", 2), Strategy("deepspeed", 2, options={"stage": 1}))
    scene = make_scene()
    spec = encode(replace(scene.spec, plan=replace(scene.plan, strategies=strategies)))
    config = encode(Config("c", scene.config.hparams))

    def told(strategy: Strategy) -> Measure:
        words = (spec, str(tmp_path / "cache"), str(tmp_path / "states"), config, encode(strategy))
        return decode(ranks.together(try_here, *words, members=[0, 1])[0], Measure)

    whole, divided, refused = map(told, strategies)
    for one in (whole, divided):
        assert one.refusal is None
        assert one.batch > 0
        assert one.state is not None
    assert "a train_fn does its own steps" in (refused.refusal or "")
