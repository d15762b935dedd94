"""Fault plans are values; they are shrunk to the faults that cause a failure; and a process meets each fault
once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerebro_elastic.errors import TxnUnknown
from support.faults import (
    HOST_KINDS,
    KINDS,
    Fault,
    FaultPlan,
    Kind,
    Point,
    What,
    Whom,
    inject,
    plan_from_json,
    plan_to_json,
    random_plan,
    shrink,
)
from support.faults.inject import FaultFolder, reach


@pytest.mark.parametrize("kinds", [KINDS, HOST_KINDS], ids=["one machine", "hosts"])
def test_a_plan_is_its_seeds(kinds: Mapping[Kind, tuple[float, ...]]) -> None:
    plan = random_plan(7, 60, nodes=3, commits=100, members=3, kinds=kinds)
    assert plan == random_plan(7, 60, nodes=3, commits=100, members=3, kinds=kinds)
    assert plan != random_plan(8, 60, nodes=3, commits=100, members=3, kinds=kinds)
    assert len(plan) == 60
    assert {fault.kind for fault in plan} == set(kinds)
    assert [fault.commit for fault in plan] == sorted(fault.commit for fault in plan)
    for several in {Whom.NODE, Whom.HOST} & {kind.whom for kind in kinds}:
        assert {fault.index for fault in plan if fault.whom is several} == {0, 1, 2}
    assert {fault.index for fault in plan if fault.whom in (Whom.CONTROLLER, Whom.STORAGE)} == {0}
    assert all(fault.seconds in kinds[fault.kind] for fault in plan)
    assert plan_from_json(plan_to_json(plan)) == plan


PLAN = random_plan(7, 24, nodes=3, commits=100)


@given(st.sets(st.sampled_from(range(len(PLAN)))))
def test_shrunk_to_just_what_it_takes(needed: set[int]) -> None:
    """Any faults together may be the cause: those are found, in their order, and no others."""
    cause = [PLAN[i] for i in sorted(needed)]
    asked: list[FaultPlan] = []

    def fails(plan: FaultPlan) -> bool:
        asked.append(plan)
        return all(fault in plan for fault in cause)

    assert shrink(PLAN, fails) == tuple(cause)
    assert len(asked) == len(set(asked))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FaultFolder:
    """The folder for faults of this process, which counts as the rank of node-0."""
    monkeypatch.setenv(inject.FOLDER, str(tmp_path))
    monkeypatch.setenv("CEREBRO_NODE", "node-0")
    made = FaultFolder(tmp_path)
    made.make()
    return made


def test_a_fault_waits_at_its_point_and_strikes_once(folder: FaultFolder) -> None:
    fault = Fault(What.RAISE, Whom.RANK, 1, Point.IN_UNIT)
    folder.arm("node-0", fault)
    reach(Point.BEFORE_SAVE)
    assert folder.struck("node-0", fault) is None
    with inject.entered(17), pytest.raises(RuntimeError, match="injected"):
        reach(Point.IN_UNIT)
    reach(Point.IN_UNIT)
    assert folder.struck("node-0", fault) == 17
    assert not folder.disarm("node-0", fault)


def test_a_fault_is_for_its_process_only(folder: FaultFolder) -> None:
    fault = Fault(What.LOSE, Whom.RANK, 1, Point.ANSWER, index=1)
    folder.arm("node-1", fault)
    reach(Point.ANSWER)
    assert folder.disarm("node-1", fault)


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (Fault(What.LOSE, Whom.RANK, 1, Point.REQUEST), TxnUnknown, "lost"),
        (Fault(What.DISK_FULL, Whom.RANK, 1, Point.MIDDLE_OF_SAVE), OSError, "No space|no space"),
    ],
)
def test_the_effect_of_each_fault(
    folder: FaultFolder, fault: Fault, error: type[Exception], words: str
) -> None:
    assert fault.point is not None
    folder.arm("node-0", fault)
    with pytest.raises(error, match=words):
        reach(fault.point)


def test_a_flip_is_another_one_each_time(
    folder: FaultFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CEREBRO_CACHE", str(tmp_path))
    file = tmp_path / "digest" / "train-00000" / "000.npy"
    file.parent.mkdir(parents=True)
    file.write_bytes(bytes(1000))
    for attempt in (17, 18):
        folder.arm("node-0", Fault(What.FLIP, Whom.RANK, 1, Point.IN_UNIT))
        with inject.entered(attempt):
            reach(Point.IN_UNIT)
    assert [at for at, byte in enumerate(file.read_bytes()) if byte] == [981, 982]
