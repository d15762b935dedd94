"""A record that is written to another etcd has all that outlasts the nodes, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from support.world import RestlessSearch, World


def lasting(state: State) -> State:
    """What of a state does not end with the nodes."""
    configs = {name: replace(config, revision=0) for name, config in state.configs.items()}
    stays = {name: replace(stay, revision=0) for name, stay in state.stays.items()}
    gone = State(configs=configs, stays=stays)
    return replace(
        state,
        configs=gone.configs,
        stays=gone.stays,
        **{
            key: getattr(gone, key)
            for key in ("nodes", "attempts", "saving", "queued", "quarantined", "leader", "asked", "revision")
        },
    )


@pytest.fixture
def world() -> World:
    """A run in the middle, with children of configs, and nodes at work."""
    world = World(Plan("r", 2, 6), 2, LongestRemaining(), search=RestlessSearch)
    world.elect()
    for name in ("a", "b"):
        world.join(name)
    for _ in range(30):
        world.control()
        world.start("a")
        world.commit(0)
    world.stop(0)
    for _ in range(9):
        world.control()
    return world


def test_all_that_outlasts_the_nodes_is_restored(world: World) -> None:
    before, visits = world.ledger.state(), world.ledger.visits()
    parents = [name for name in before.configs if world.ledger.children(name)]
    children = {name: world.ledger.children(name) for name in parents}
    assert before.attempts
    assert parents
    old = world.ledger.revision()
    world.lose_etcd(0)
    after = world.ledger.state()
    assert lasting(after) == lasting(before)
    assert after.asked > 0
    assert (after.nodes, after.attempts, after.leader) == ({}, {}, None)
    assert world.ledger.visits() == visits
    assert {name: world.ledger.children(name) for name in parents} == children
    assert min(config.revision for config in after.configs.values()) > old
