"""On how many nodes configs are trained, by forecast."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerebro_elastic.core.decisions.next_steps import GangSeconds, gang_sizes

CPU, GPU = ("cpu", 1), ("A100", 1)


def sizes(*lengths: float, nodes: int = 8, power: float = 1.0, most: int = 2) -> list[int]:
    """The gang sizes of configs that take ``lengths`` seconds on a node, if ``n`` nodes are ``n ** power``
    times as fast."""
    jobs = {
        f"c{i}": {CPU: {n: length / n**power for n in (1, 2, 4) if n <= most}}
        for i, length in enumerate(lengths)
    }
    return [chosen[CPU] for chosen in gang_sizes(jobs, {CPU: nodes}).values()]


@pytest.mark.parametrize("configs", [8, 9, 16, 64])
def test_if_configs_fill_the_nodes_no_gang_is_formed(configs: int) -> None:
    assert sizes(*[10.0] * configs, most=4) == [1] * configs


def test_in_between_it_depends_on_the_speed_up() -> None:
    """Six pairs on eight nodes are 6 / 4 of a pair's time: worth it if that is well below one node's."""
    assert sizes(*[10.0] * 6, power=1.0) == [2] * 6
    assert sizes(*[10.0] * 6, power=0.7) == [1] * 6, "0.92 of the time: nodes would wait for one another"
    assert sizes(*[10.0] * 7, power=0.9) == [1] * 7


def test_of_two_kinds_of_nodes_those_give_more_that_have_time() -> None:
    """There are two GPUs for each config, and fewer CPUs than configs."""
    job: GangSeconds = {GPU: {1: 9.0, 2: 5.0}, CPU: {1: 3.0, 2: 2.9}}
    found = gang_sizes({"c0": job, "c1": job, "c2": job}, {GPU: 6, CPU: 2})
    assert all(chosen == {GPU: 2, CPU: 1} for chosen in found.values())


@given(
    lengths=st.lists(st.floats(1.0, 100.0), min_size=1, max_size=12),
    nodes=st.integers(2, 8),
    power=st.floats(0.1, 1.0),
)
def test_gangs_never_make_the_forecast_worse(lengths: list[float], nodes: int, power: float) -> None:
    found = sizes(*lengths, nodes=nodes, power=power)
    each = [length / n**power for length, n in zip(lengths, found, strict=True)]
    with_gangs = max(*each, sum(n * e for n, e in zip(found, each, strict=True)) / nodes)
    assert with_gangs <= max(*lengths, sum(lengths) / nodes) * (1 + 1e-9)
