"""A finished run: its leaderboard, its record, its replay; and records that were tampered with."""

from __future__ import annotations

import builtins
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cerebro_elastic import Run, RunResult
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.results.replay import replay
from cerebro_elastic.runs.results.verify import verify

pytestmark = pytest.mark.cluster


def test_leaderboard_is_sorted_and_complete(finished: RunResult) -> None:
    rows = finished.leaderboard
    assert [row.status for row in rows] == ["finished"] * 4
    values = [row.best for row in rows]
    assert values == sorted(values, reverse=True, key=lambda v: v or 0.0)
    assert all(len(row.curve) == 2 and len(row.visits) == 6 for row in rows)
    assert {(row.hparams["lr"], row.hparams["width"]) for row in rows} == {
        (lr, width) for lr in (0.01, 0.003) for width in (16, 32)
    }
    assert finished.best is rows[0]
    assert {visit.node for row in rows for visit in row.visits} == {"node-0", "node-1"}


class ZMQInteractiveShell:
    """By its name rich knows a notebook."""


def test_a_notebook_shows_the_leaderboard_once(
    finished: RunResult, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    assert "Leaderboard by val_acc" in finished._repr_html_()
    assert capsys.readouterr().out == ""
    assert repr(finished.best).startswith(f"<ConfigResult {finished.best.config} lr=0.0")


def test_opened_again_it_is_the_same(finished: RunResult) -> None:
    again = Run.open("finished", home=finished.folder.path.parent).result
    assert again.leaderboard == finished.leaderboard
    state = again.state(again.best.config)
    assert state is not None


def test_status_after_the_end(finished: RunResult) -> None:
    run = Run(finished.folder)
    now = run.status()
    assert (run.id, now.phase, now.live, now.head) == ("finished", "ended", False, finished.head)


def test_a_run_that_has_ended_is_followed_and_waited_for(finished: RunResult) -> None:
    run = Run(finished.folder)
    assert [len(view.log) for view in run.follow()] == [len(finished.view.log)]
    assert run.wait(0).leaderboard == finished.leaderboard


def test_unknown_names_list_the_known(finished: RunResult) -> None:
    with pytest.raises(RunError, match="finished"):
        Run.open("finishd", home=finished.folder.path.parent)
    with pytest.raises(RunError, match="c0000"):
        finished.config("c00")


def test_the_invariants_hold(finished: RunResult) -> None:
    assert verify(finished) == []


def test_replay_is_bit_identical(finished: RunResult) -> None:
    done = list(replay(finished, "c0003"))
    assert len(done) == 6
    assert all(visit.same for visit in done)


@pytest.fixture
def copy(finished: RunResult, tmp_path: Path) -> Iterator[RunFolder]:
    """The run's folder, to do harm to, which is undone: all names in it are absolute."""
    shutil.copytree(finished.folder.path, tmp_path / "kept")
    yield finished.folder
    shutil.rmtree(finished.folder.path)
    shutil.copytree(tmp_path / "kept", finished.folder.path)


def test_a_line_that_is_no_event_is_named(copy: RunFolder) -> None:
    lines = copy.history.read_text().splitlines()
    copy.history.write_text("\n".join([*lines[:3], "nonsense", *lines[3:]]) + "\n")
    with pytest.raises(RunError, match=r"history\.jsonl:4"):
        RunResult(copy)
