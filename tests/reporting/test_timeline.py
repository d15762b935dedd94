"""What each node did when, from a history in which much went wrong."""

from __future__ import annotations

from typing import Any

import pytest

from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.attempts import FailureKind
from cerebro_elastic.core.model.events import NodeQuarantined, NodeReleased, UnitTrained
from cerebro_elastic.reporting.timeline import timeline


def test_visits_lie_where_they_were(past: Any) -> None:
    line = timeline(RunView(past.events))
    assert line.seconds == pytest.approx(9.0)
    done = [span for span in line.spans if span.visit is not None]
    assert len(done) == 10
    first = next(span for span in done if span.node == "node-2")
    assert (first.start - line.begin, first.seconds) == (pytest.approx(0.5), pytest.approx(1.0))
    assert first.unit.config == "c0002"


def test_lost_work_lies_between_what_is_known(past: Any) -> None:
    lost = {span.unit.config: span for span in timeline(RunView(past.events)).spans if span.visit is None}
    assert set(lost) == {"c0001", "c0003"}
    begin = timeline(RunView(past.events)).begin
    withdrawn, failed = lost["c0001"], lost["c0003"]
    assert withdrawn.node == "node-1"
    assert 1.0 <= withdrawn.start - begin < withdrawn.end - begin <= 3.0
    assert failed.node == "node-2"
    assert 2.5 <= failed.start - begin < failed.end - begin <= 5.0
    assert "disk-full: no space left" in failed.why


def test_a_nodes_time_adds_up(past: Any) -> None:
    shares = {share.node: share for share in timeline(RunView(past.events)).shares}
    assert {name: share.visits for name, share in shares.items()} == {"node-0": 7, "node-1": 1, "node-2": 2}
    whole = shares["node-0"]
    assert whole.present == pytest.approx(9.0), "it was there before the first unit and to the end"
    assert (whole.training, whole.hopping, whole.lost) == (pytest.approx(5.6), pytest.approx(1.4), 0.0)
    assert whole.idle == pytest.approx(2.0)
    assert shares["node-1"].present < 9.0
    for share in shares.values():
        parts = share.training + share.hopping + share.lost + share.quarantined + share.idle
        assert parts == pytest.approx(share.present)


def test_a_save_behind_the_next_unit_is_no_work_of_its_node(past: Any) -> None:
    run = type(past)({"c0000": {"lr": 0.1}, "c0001": {"lr": 0.2}})
    run.join("node-0")
    run.place()
    first = run.assign("c0000", "node-0")
    run.tell(UnitTrained, node="node-0", token=first.token)
    second = run.assign("c0001", "node-0")
    run.commit(first, 0.0, {}, saving=0.5)
    run.tell(UnitTrained, node="node-0", token=second.token)
    third = run.assign("c0000", "node-0")
    run.commit(third, 3.0, {})
    run.fail(second, FailureKind.DISK_FULL, "no space left")
    run.visit("c0000", "node-0", 7.0)
    line = timeline(RunView(run.events))
    (share,) = line.shares
    assert (share.training, share.hopping, share.visits) == (pytest.approx(2.4), pytest.approx(0.6), 3)
    lost = next(span for span in line.spans if span.lost)
    assert lost.end - line.begin < 3.0, "from when it was trained its node was free"


def quarantined(past: Any, last: str = "node-0") -> Any:
    """A config fails on node-0, which is then in quarantine for 60 of the 65 seconds between two visits, of
    which one is on the node ``last``."""
    run = type(past)({"c0000": {"lr": 0.1}, "c0001": {"lr": 0.2}})
    run.join("node-0", "node-1")
    run.place()
    run.visit("c0000", "node-0", 0.0)
    for _ in range(3):
        broken = run.assign("c0001", "node-0")
        run.fail(broken, FailureKind.EXCEPTION, "RuntimeError: shapes")
    run.tell(NodeQuarantined, node="node-0", why="3 failures", failure=broken.token, seconds=60.0)
    run.tell(NodeReleased, node="node-0")
    run.visit("c0000", last, 66.0)
    return run


def test_a_quarantine_is_neither_lost_nor_idle(past: Any) -> None:
    line = timeline(RunView(quarantined(past).events))
    (quarantine,) = line.quarantines
    assert (quarantine.node, quarantine.why) == ("node-0", "3 failures")
    assert quarantine.seconds == pytest.approx(60.0, abs=1.0)
    share, other = line.shares
    assert share.quarantined == pytest.approx(quarantine.seconds)
    assert share.lost < 5.1, "no more than what is left between the two visits"
    assert share.lost == pytest.approx(sum(span.seconds for span in line.spans if span.lost))
    assert share.idle < 5.1
    assert (other.quarantined, other.idle) == (0, pytest.approx(other.present))
    texts = [mark.text for _, mark in line.marks]
    assert texts[-2:] == ["node-0 gets no units for 60 s: 3 failures", "node-0 gets units again"]


def test_marks_distinguish_faults_from_other_events(past: Any) -> None:
    texts = {mark.text: mark for _, mark in timeline(RunView(past.events)).marks}
    faults = [text for text, mark in texts.items() if mark.fault]
    assert faults == [
        "node-1 was lost",
        "c0003 epoch 1 partition 0 failed on node-2, disk-full: no space left",
        "node-2 gets no units for 60 s: its disk is full",
        "c0003 failed: the loss is NaN",
    ]
    assert [text for text, mark in texts.items() if not mark.fault] == [
        "c0001 epoch 1 partition 0 was withdrawn from node-1",
        "node-1 joined",
        "node-1 is leaving: it has 30 s for its unit",
        "node-1 left",
        "c0002 stopped: enough",
    ]


def test_profiles_of_a_gang_are_no_lost_work(past: Any) -> None:
    tried = type(past)({"c0000": {"lr": 0.1}})
    tried.join("node-0", "node-1")
    tried.place()
    tried.visit("c0000", "node-0", 0.0)
    tried.try_on("c0000", "node-0", "node-1")
    tried.try_on("c0000", "node-1", "node-0", refusal="out of memory")
    tried.visit("c0000", "node-0", 3.0)
    line = timeline(RunView(tried.events))
    profiles = [span for span in line.spans if span.visit is None]
    assert [span.node for span in profiles] == ["node-0", "node-0", "node-1", "node-1"]
    assert {span.why for span in profiles} == {
        "ddp x2 over 2 nodes: a unit takes 0.25 s",
        "ddp x2 over 2 nodes: out of memory",
    }
    assert not any(span.lost for span in line.spans)
    for share in line.shares:
        assert share.lost == 0.0
        assert 0.0 < share.profiling <= share.present
