"""Rows that configs logged on many nodes, on their way to loggers."""

from __future__ import annotations

import csv
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from logged_run import Election, Record
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import ConfigEnded, ConfigResumed
from cerebro_elastic.errors import StoreUnavailable
from cerebro_elastic.reporting.logged import ConfigEnd, Logged
from cerebro_elastic.reporting.tensorboard import TensorBoard
from cerebro_elastic.runs.logging import log_forwarder
from cerebro_elastic.runs.logging.log_forwarder import FileLogPosition
from cerebro_elastic.runs.logging.loggers import SharedLogPosition
from cerebro_elastic.runs.logging.remote_loggers import RemoteLogger
from cerebro_elastic.store.client.base import KeyValue
from support.memory_store import MemoryStore
from support.waiting import wait_for


class Kept:
    """A logger as a list."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.steps: list[tuple[str, float]] = []
        self.ends: list[tuple[str, str]] = []
        self.closed = False
        self._fails_at = fails_at

    def write(self, logged: Logged) -> None:
        for row in logged.rows:
            if row["step"] == self._fails_at:
                raise ConnectionError("no route to host")
            self.steps.append((logged.config, row["step"]))

    def end(self, end: ConfigEnd) -> None:
        self.ends.append((end.config, end.status))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def record(tmp_path: Path) -> Record:
    record = Record(tmp_path)
    record.create("c0000", "c0001")
    return record


def steps(config: str, places: Sequence[int]) -> list[tuple[str, float]]:
    return [(config, step) for place in places for step in (2 * place, 2 * place + 1)]


def test_a_position_is_read_back_as_it_was_noted_last(tmp_path: Path) -> None:
    """Also from a file of an earlier release, which is one object, and behind a line that a kill has torn."""
    path = tmp_path / "logged.json"
    path.write_text('{"c0000": 1, "c0001": 1}')
    FileLogPosition(path).write("c0000", 2)
    with path.open("a") as file:
        file.write('\n{"c0001": 1')
    FileLogPosition(path).write("c0000/end", 30)
    assert FileLogPosition(path).read() == {"c0000": 2, "c0001": 1, "c0000/end": 30}


def test_earlier_and_later_rows_are_written_once(record: Record) -> None:
    record.commit("c0000", 0)
    kept = Kept()
    with record.scribe(kept):
        record.commit("c0001", 0)
        record.commit("c0000", 1)
    assert kept.steps == [*steps("c0000", [0]), *steps("c0001", [0]), *steps("c0000", [1])]
    assert kept.closed
    record.commit("c0000", 2)
    again = Kept()
    with record.scribe(again):
        pass
    assert again.steps == steps("c0000", [2]), "a run that is started again logs on"


def test_a_logger_that_fails_stops_nobody(record: Record) -> None:
    broken, mended = Kept(fails_at=3), Kept()
    for place in range(3):
        record.commit("c0000", place)
    with record.scribe(broken):
        pass
    assert broken.steps == [("c0000", 0), ("c0000", 1), ("c0000", 2)]
    assert broken.closed
    (said,) = record.said
    assert said == "the logger kept fails, and gets no more rows: ConnectionError: no route to host"
    with record.scribe(mended):
        pass
    assert mended.steps == steps("c0000", [1, 2]), "what it had not taken it gets from the next start"


def test_the_next_leader_continues_where_the_last_one_stopped(record: Record, tmp_path: Path) -> None:
    election = Election(tmp_path, MemoryStore())
    a, b = (SharedLogPosition(election.ledger, election.candidate(name)) for name in "ab")
    by_a, by_b, late = Kept(), Kept(), Kept()
    record.commit("c0000", 0)
    election.elect("a")
    with record.scribe(by_b, b):
        with record.scribe(by_a, a):
            record.commit("c0001", 0)
        record.commit("c0000", 1)  # "a" was killed before it wrote this
        election.elect("b")
    with record.scribe(late, a):  # "a" was only paused: it does not know yet
        pass
    assert (by_a.steps, by_b.steps) == ([*steps("c0000", [0]), *steps("c0001", [0])], steps("c0000", [1]))
    assert late.steps == []
    assert election.ledger.logged() == {"c0000": 2, "c0001": 1}


def test_how_configs_end_is_written_once_and_behind_their_rows(record: Record) -> None:
    record.create("c0002", "c0003")
    for place in range(8):
        record.commit("c0000", place)
    record.tell(ConfigEnded(record.next(), "c0001", Status.STOPPED, "hopeless"))
    record.tell(ConfigEnded(record.next(), "c0002", Status.STOPPED, "enough", by_hand=True))
    record.tell(ConfigEnded(record.next(), "c0003", Status.FAILED, "out of memory"))
    first, again = Kept(), Kept()
    with record.scribe(first):
        pass
    ended = {"c0000": "finished", "c0001": "pruned", "c0002": "stopped", "c0003": "failed"}
    assert dict(first.ends) == ended
    record.tell(ConfigResumed(record.next(), "c0002", "once more", by_hand=True))
    record.commit("c0002", 0)
    with record.scribe(again):
        pass
    assert (again.steps, again.ends) == (steps("c0002", [0]), [])
    record.tell(ConfigEnded(record.next(), "c0002", Status.FAILED, "in vain"))
    with record.scribe(again):
        pass
    assert again.ends == [("c0002", "failed")]


class SometimesAway(MemoryStore):
    """A store whose every third read gets no answer."""

    reads = 0

    def get(self, key: str) -> KeyValue | None:
        self.reads += 1
        if self.reads % 3 == 0:
            raise StoreUnavailable("nobody answers")
        return super().get(key)


def test_a_store_that_is_away_costs_no_rows(record: Record, tmp_path: Path) -> None:
    election = Election(tmp_path, SometimesAway())
    note = SharedLogPosition(election.ledger, election.candidate("a"))
    for place in range(3):
        record.commit("c0000", place)
    kept = Kept()
    with record.scribe(kept, note):
        wait_for(lambda: len(kept.steps) >= 6, "all rows")
    assert kept.steps == steps("c0000", [0, 1, 2])


def test_tensorboard_has_one_curve_for_each_config(record: Record, tmp_path: Path) -> None:
    for place in (0, 1):
        record.commit("c0000", place)
        record.commit("c0001", place)
    with record.scribe(TensorBoard(tmp_path / "tb")):
        pass
    # Files are read in the order of their names: the second, the process, and a count without leading zeros.
    # To start a run again takes longer than this.
    begun = int(time.time())
    while int(time.time()) == begun:
        time.sleep(0.01)
    record.commit("c0001", 2)
    with record.scribe(TensorBoard(tmp_path / "tb")):
        pass
    curves = {}
    for config in ("c0000", "c0001"):
        events = EventAccumulator(str(tmp_path / "tb" / config))
        events.Reload()
        assert set(events.Tags()["scalars"]) == {"loss", "epoch"}
        assert "_hparams_/session_start_info" in events.summary_metadata
        curves[config] = [(e.wall_time, e.step, e.value) for e in events.Scalars("loss")]
    assert [step for _, step, _ in curves["c0000"]] == [0, 1, 2, 3]
    assert [step for _, step, _ in curves["c0001"]] == [0, 1, 2, 3, 4, 5]
    times = [at for at, _, _ in curves["c0001"]]
    assert times == pytest.approx([1000.5, 1001.0, 1001.5, 1002.0, 1002.5, 1003.0])
    assert [value for _, _, value in curves["c0001"]] == pytest.approx([1 / (1 + s) for s in range(6)])


def hparams_of(folder: Path) -> dict[str, HParamsPluginData]:
    """What TensorBoard's HParams tab reads of a config."""
    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        tag.rpartition("/")[2]: HParamsPluginData.FromString(metadata.plugin_data.content)
        for tag, metadata in events.summary_metadata.items()
        if metadata.plugin_data.plugin_name == "hparams"
    }


def test_the_hparams_tab_has_the_hyper_parameters_and_the_end_of_each_config(
    record: Record, tmp_path: Path
) -> None:
    folder = tmp_path / "tb"
    (folder / "c0000").mkdir(parents=True)  # a kill before the first write has left it
    (folder / "c0000" / "events.out.tfevents.1.host.1.0").touch()
    for place in range(8):
        record.commit("c0000", place)
    record.tell(ConfigEnded(record.next(), "c0001", Status.FAILED, "before its first visit"))
    with record.scribe(TensorBoard(folder)):
        pass
    ended = {name: hparams_of(folder / name) for name in ("c0000", "c0001")}
    for parts in ended.values():
        assert parts["session_start_info"].session_start_info.hparams["lr"].number_value == 0.1
    ends = {name: parts["session_end_info"].session_end_info for name, parts in ended.items()}
    assert ends["c0000"].status == api_pb2.STATUS_SUCCESS
    assert ends["c0000"].end_time_secs == 1008.0
    assert ends["c0001"].status == api_pb2.STATUS_FAILURE


OWN = """
from lightning.pytorch.loggers import CSVLogger

def own(root, label):
    print("a third party's tip")
    return CSVLogger(root, name="own", version=label)
"""


def test_lightnings_loggers_work_in_a_process_of_their_own(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_forwarder, "_END_SECONDS", 600.0)  # the process has the lowest priority
    (tmp_path / "users_logger.py").write_text(OWN)
    own = {"class": "users_logger:own", "args": {"root": str(tmp_path), "label": "{run}-{config}"}}
    for place in (0, 1):
        record.commit("c0000", place)
    settings = {"specs": ["CSVLogger", own], "run": "a-run", "root": str(tmp_path)}
    settings["folder"] = str(tmp_path / "loggers")
    loggers = RemoteLogger("lightning", settings, tmp_path / "log")
    with record.scribe(loggers):
        pass
    record.commit("c0000", 2)
    with record.scribe(loggers):  # as when a run is started again
        pass
    assert record.said == []
    assert "a third party's tip" in (tmp_path / "log").read_text(), "and not in the terminal"
    for file in (tmp_path / "loggers/a-run/c0000", tmp_path / "own/a-run-c0000"):
        with (file / "metrics.csv").open() as opened:
            rows = list(csv.DictReader(opened))
        assert [int(row["step"]) for row in rows] == [0, 1, 2, 3, 4, 5]
        assert float(rows[3]["loss"]) == pytest.approx(0.25)
        assert "lr: 0.1" in (file / "hparams.yaml").read_text()
