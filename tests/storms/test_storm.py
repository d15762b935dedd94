"""A short storm over real processes; and the verdict on it has teeth."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from cerebro_elastic.runs.folder import RunFolder
from support.chaos import recipe
from support.cluster import Cluster
from support.faults import KINDS, Fault, Kind, Point, What, Whom, random_plan
from support.faults.inject import FaultFolder
from support.host_cluster import HostCluster
from support.host_storm import HostStorm
from support.lead import record_of
from support.storm import Storm, Strike, call_off
from support.verdict import fate, hits, judge, missed
from support.waiting import SOON

SOME = (
    Kind(What.KILL, Whom.RANK, Point.MIDDLE_OF_SAVE),
    Kind(What.KILL, Whom.RANK, Point.BEFORE_COMMIT),
    Kind(What.KILL, Whom.NODE, Point.ANSWER),
    Kind(What.PAUSE, Whom.RANK),
    Kind(What.DRAIN, Whom.NODE),
    Kind(What.RAISE, Whom.RANK, Point.IN_UNIT),
    Kind(What.FLIP, Whom.RANK, Point.IN_UNIT),
    Kind(What.LOSE, Whom.RANK, Point.REQUEST),
    Kind(What.LOSE, Whom.RANK, Point.ANSWER),
    Kind(What.TERMINATE, Whom.CONTROLLER),
    Kind(What.KILL, Whom.ETCD),
)


@pytest.mark.cluster
@pytest.mark.usefixtures("imports_as_found")
def test_a_run_survives_a_storm(tmp_path: Path) -> None:
    plan = random_plan(5, len(SOME), nodes=3, commits=30, kinds={kind: KINDS[kind] for kind in SOME})
    with Cluster(recipe(4, 2), RunFolder(tmp_path / "storm"), nodes=3, candidates=2) as cluster:
        storm = Storm(cluster, plan)
        assert storm.rage(SOON)
    assert list(judge(cluster, storm.strikes)) == []
    assert len(list(missed(storm.strikes))) <= 2, "a storm that blows"

    # The same storm, had nobody been hit: all that it has cost is then without a cause.
    unharmed = list(judge(cluster, []))
    assert any("was hit 0 times" in problem and "ranks started" in problem for problem in unharmed)
    assert any("was hit 0 times" in problem and "did not commit" in problem for problem in unharmed)

    # The storm reports processes and files that are left behind or changed.
    checkpoints = cluster.folder.path / "checkpoints"
    (checkpoints / "c0000" / "nobodys").mkdir()
    (checkpoints / "half.tmp").touch()
    history = record_of(cluster.folder, "candidate-1").history
    lines = history.read_text().splitlines(keepends=True)
    last_commit = max(place for place, line in enumerate(lines) if '"UnitCommitted"' in line)
    history.write_text("".join(lines[:last_commit]))
    problems = list(judge(cluster, storm.strikes))
    assert any("orphaned checkpoint" in problem for problem in problems)
    assert any("temporary file" in problem for problem in problems)
    assert any("different visits on record" in problem for problem in problems)


SAVE = Fault(What.KILL, Whom.RANK, 1, Point.MIDDLE_OF_SAVE)


@pytest.mark.parametrize("when", ["never", "as it is called off", "twice", "another process"])
def test_a_fault_that_is_called_off(tmp_path: Path, when: str) -> None:
    """Between the last look at it and the run's end it may have struck after all."""
    faults, strike = FaultFolder(tmp_path), Strike(SAVE, target="node-1")
    faults.make()
    faults.arm("node-1", SAVE)
    assert faults.take("node-2", Point.MIDDLE_OF_SAVE, 8) is None, "a fault spares other processes"
    if when in ("as it is called off", "twice"):
        assert faults.take("node-1", Point.MIDDLE_OF_SAVE, 7) == SAVE
    if when == "twice":
        assert faults.take("node-1", Point.MIDDLE_OF_SAVE, 9) is None, "it strikes once"
    struck = when in ("as it is called off", "twice")
    assert call_off(faults, strike, 50) is not struck
    assert (strike.revision, strike.attempt) == ((50, 7) if struck else (0, 0))
    assert list(missed([strike])) == (
        [] if struck else [f"did not strike, as nobody came to its point: {SAVE}"]
    )
    assert fate(strike, []) == ("unit never ended" if struck else "did not strike")


@pytest.mark.parametrize(
    "kind", [Kind(What.PAUSE, Whom.AGENT), Kind(What.FLIP, Whom.RANK, Point.IN_UNIT)], ids=str
)
def test_a_fault_that_was_not_due_is_no_failure_of_the_run(kind: Kind) -> None:
    late = Strike(Fault(kind.what, kind.whom, 10_000, kind.point))
    (message,) = missed([late])
    assert message == f"did not strike, as the run ended before it could: {late.fault}"
    assert not hits([late], ["node-0"]), "it excuses no failure"


def test_a_flipped_bit_hits_all_nodes_that_share_the_cache() -> None:
    flip = Strike(Fault(What.FLIP, Whom.RANK, 3, Point.IN_UNIT), target="node-1")
    assert hits([flip, Strike(SAVE, target="node-1")], {"node-0": 0, "node-1": 0}) == {
        "node-0": 1,
        "node-1": 2,
    }


def test_a_standstill_counts_unless_a_fault_stops_all_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    hosts = {f"host{n}": SimpleNamespace(alive=True) for n in (1, 2)}
    cluster = SimpleNamespace(members=1, processes=hosts, folder=RunFolder(tmp_path))
    storm = HostStorm(cast(HostCluster, cluster), (), print)

    def after(seconds: float, *, commits: int, busy: set[str] | None = None) -> float:
        storm.seen.commits, storm._busy = commits, busy or set()
        clock[0] += seconds
        storm._step()
        return storm.standstill[0]

    assert after(50, commits=0) == 0, "it has not begun"
    after(1, commits=1)
    assert after(7, commits=1, busy={"host1"}) == 7, "the other host could go on"
    for stops_all in ({"storage"}, {"etcd-0"}, {"host1", "host2"}):
        assert after(90, commits=1, busy=stops_all) == 7
    assert after(9, commits=1) == 9, "it counts from the end of what has stopped all"
    assert storm.standstill == (9, 1)
