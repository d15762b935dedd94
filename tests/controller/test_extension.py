"""Leaders and followers of a run that is extended."""

from __future__ import annotations

from pathlib import Path

import pytest

from cerebro_elastic.controller import candidate as candidates
from cerebro_elastic.controller.candidate import Candidate, Host
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import RunError
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from cerebro_elastic.store.ledger.journal import Journal
from support.memory_store import MemoryStore
from support.world import World


def test_a_process_that_did_not_see_the_end_does_not_go_on_by_its_old_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "_STEP", 0.01)
    world = World(Plan("r", 2, 1), 1, LongestRemaining())
    world.elect()
    seen: list[State] = []

    def pause(state: State) -> None:
        seen.append(state)
        if len(seen) == 1:  # all of it while this process is suspended
            assert world.finish(["a"], 60)
            world.extend(1, 0)
            store = world.store
            assert isinstance(store, MemoryStore)
            store.compact(store.range("/").revision)

    candidate = Candidate(
        world.ledger, world.policy, world.search, Journal(tmp_path / "history.jsonl"), Host(pause=pause)
    )
    with pytest.raises(RunError, match="Start it again with the same command"):
        candidate.run()
    assert not candidate.leads
