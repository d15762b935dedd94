"""Groups form and end in process, and a survivor gets an error when a peer dies."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from cerebro_elastic.errors import GroupBroken
from cerebro_elastic.training.parallel import group
from cerebro_elastic.training.parallel.rank_pool import RankFailed, Ranks
from support.ranks import end_in_a_collective, left_alone, open_resources, see_forever, seen
from support.waiting import wait_for

CPU = torch.device("cpu")


@pytest.mark.cluster
def test_groups_of_any_members_one_after_the_other(ranks: Ranks) -> None:
    for members in ([0, 1], [1, 0], [1], [0]):
        made = ranks.together(seen, members=members)
        assert made == [list(range(len(members)))] * len(members)
        assert not any(ranks.alone(member, dist.is_initialized) for member in members)


def test_a_group_that_was_aborted_ends_and_the_next_forms() -> None:
    """Where a peer has died, the backend of an accelerator waits until another thread does it."""
    with group.formed(group.listen("127.0.0.1"), 0, 1, CPU):
        group.abort(CPU)
    with group.formed(group.listen("127.0.0.1"), 0, 1, CPU):
        assert seen() == [0]


@pytest.mark.cluster
def test_units_leave_no_thread_and_no_socket(ranks: Ranks) -> None:
    ranks.together(seen, members=[0, 1])
    before = ranks.alone(0, open_resources)
    for _ in range(5):
        ranks.together(seen, members=[0, 1])
    assert ranks.alone(0, open_resources) == before


@pytest.mark.cluster
def test_a_group_is_let_go_of_while_its_threads_are_at_work(ranks: Ranks, tmp_path: Path) -> None:
    ranks.together(end_in_a_collective, str(tmp_path / "freeing"), members=[0, 1])


@pytest.mark.cluster
def test_a_process_that_does_not_answer_is_ended() -> None:
    with Ranks(2) as ranks:
        assert ranks.alone(1, open_resources), "it has begun"
        ranks._seconds = 1.0
        with pytest.raises(RankFailed, match=r"process 1: no answer within 1\.0 s"):
            ranks.alone(1, time.sleep, 60.0)
        ranks._seconds = None
        with pytest.raises(RankFailed, match="process 1 died"):
            ranks.alone(1, open_resources)
        assert ranks.alone(0, open_resources)


@pytest.mark.cluster
def test_a_killed_peer_breaks_the_group_and_not_the_survivor(tmp_path: Path) -> None:
    with Ranks(2) as ranks:
        ranks.start(see_forever, str(tmp_path / "begun"), members=[0, 1])
        wait_for((tmp_path / "begun").exists)
        os.kill(ranks.pid(1), signal.SIGKILL)
        with pytest.raises(
            RankFailed, match=r"GroupBroken: rank 0 of 2: a peer is gone: .*can be tried again"
        ):
            ranks.answer(0)
        assert ranks.together(seen, members=[0]) == [[0]]


def test_a_rank_that_does_not_come() -> None:
    store = group.listen("127.0.0.1")
    with (
        pytest.raises(GroupBroken, match=r"rank 0 of 2: rank 1 did not come"),
        group.formed(store, 0, 2, CPU, patience=0.2),
    ):
        pass
    assert not dist.is_initialized()


@pytest.mark.cluster
def test_a_rank_left_alone_while_a_group_is_formed_forms_the_next_one(ranks: Ranks) -> None:
    assert "rank 0 of 2" in ranks.alone(0, left_alone)
    assert ranks.together(seen, members=[0, 1]) == [[0, 1]] * 2
