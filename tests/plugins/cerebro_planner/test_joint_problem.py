"""Widths and order together: valid, at the bound for linear speed-up, better than either extreme else."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cerebro_elastic.errors import ScheduleError
from cerebro_planner import joint
from support.schedules import judge_joint


@settings(max_examples=30)
@given(st.integers(1, 5), st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(0, 999))
def test_schedules_are_valid(configs: int, devices: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    seconds = rng.uniform(1, 9, (configs, len(devices), 3))
    seconds[rng.random(seconds.shape) < 0.3] = inf
    seconds[:, :, 0] = 9.0
    judge_joint(seconds, devices, joint(seconds, devices, seed, budget=0.01))


SCENARIOS = [(6, [2] * 8), (6, [4, 2, 2]), (10, [4, 2, 2])]
"""The thesis' Figs 4.1 to 4.3."""


def sped_up(configs: int, devices: list[int], exponent: float, seed: int = 1) -> Any:
    work = np.random.default_rng(seed).uniform(200, 4000, configs)
    return work[:, None, None] * np.array(devices)[None, :, None] / np.arange(1, max(devices) + 1) ** exponent


@pytest.mark.parametrize(("configs", "devices"), SCENARIOS)
def test_linear_speed_up_reaches_the_bound(configs: int, devices: list[int]) -> None:
    seconds = sped_up(configs, devices, 1.0)
    found = joint(seconds, devices, budget=0.1)
    assert found.makespan <= found.bound * 1.0001
    judge_joint(seconds, devices, found)


def test_widths_between_the_extremes_beat_both() -> None:
    configs, devices = SCENARIOS[2]
    seconds = sped_up(configs, devices, 0.7)
    found = joint(seconds, devices, budget=0.3)
    widest, narrowest = seconds.copy(), seconds.copy()
    for n, count in enumerate(devices):
        widest[:, n, : count - 1] = inf
        narrowest[:, n, 1:] = inf
    for extreme in (widest, narrowest):
        assert found.makespan < joint(extreme, devices, budget=0.1).makespan
    judge_joint(seconds, devices, found)


@pytest.mark.parametrize(
    ("scenario", "exponent", "seed", "makespan"),
    [(1, 0.9, 1, 14978.5), (2, 0.7, 0, 25852.2)],
)
def test_it_finds_what_a_minute_of_cp_sat_finds(
    scenario: int, exponent: float, seed: int, makespan: float
) -> None:
    configs, devices = SCENARIOS[scenario]
    seconds = sped_up(configs, devices, exponent, seed)
    found = joint(seconds, devices)
    judge_joint(seconds, devices, found)
    assert found.makespan <= 1.03 * makespan


def test_the_same_seed_gives_the_same_schedule() -> None:
    seconds = sped_up(6, [4, 2, 2], 0.7)
    one, other = (joint(seconds, [4, 2, 2], seed=3, budget=0.05) for _ in range(2))
    assert (one.start == other.start).all()


@pytest.mark.parametrize(
    ("seconds", "devices", "said"),
    [
        ([[[inf, 3.0]]], [1], "on no number of devices that node 0 has"),
        ([[[1.0]]], [1, 1], r"seconds has the shape \(1, 1, 1\), devices \(2,\)"),
        ([[[1.0]]], [0], "whole number of at least 1"),
        ([[[-1.0]]], [1], r"seconds\[0, 0, 0\] is -1.0"),
    ],
)
def test_bad_input_is_reported(seconds: Any, devices: Any, said: str) -> None:
    with pytest.raises(ScheduleError, match=said):
        joint(seconds, devices)
