"""MLflow and Weights & Biases as trackers of a run, with a database in a file and in offline mode."""

from __future__ import annotations

import shutil
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import recorded_run
from logged_run import HPARAMS, Election, Record

from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import ConfigCreated, ConfigEnded, ConfigResumed
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.reporting.logged import Logged
from cerebro_elastic.runs.logging.log_forwarder import FileLogPosition, LogForwarder, LogPosition
from cerebro_elastic.runs.logging.loggers import Loggers, SharedLogPosition
from cerebro_elastic.runs.logging.remote_loggers import RemoteTracker
from cerebro_trackers.mlflow_tracker import MlflowTracker
from cerebro_trackers.wandb_tracker import WandbTracker
from support.histories import child
from support.memory_store import MemoryStore
from support.waiting import wait_for

if TYPE_CHECKING:  # they take seconds to import, which is left to the one process that has these tests
    from mlflow import MlflowClient, entities


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database of MLflow's: to make one takes a second."""
    folder = tmp_path_factory.mktemp("empty%20#?")
    rows = [{"step": 0.0, "loss": 1.0}]
    MlflowTracker("r", "none", str(folder)).write(Logged("c0000", HPARAMS, rows, 1000.0, 1001.0))
    return folder / "mlflow.db"


@pytest.fixture
def mlflow(empty: Path, tmp_path: Path) -> MlflowClient:
    from mlflow import MlflowClient

    uri = f"sqlite:///{shutil.copy(empty, tmp_path / 'mlflow.db')}"
    client = MlflowClient(uri)
    client.create_experiment("mine", str(tmp_path / "artifacts"))
    return client


@pytest.fixture
def record(tmp_path: Path) -> Record:
    record = Record(tmp_path)
    record.create("c0000", "c0001")
    return record


def tracker(folder: Path) -> MlflowTracker:
    return MlflowTracker("r", "one", str(folder), experiment="mine")


def send(record: Record, to: MlflowTracker, position: LogPosition) -> None:
    with LogForwarder(record.history, "mlflow", to, position, record.said.append):
        pass


def runs(client: MlflowClient) -> dict[str, entities.Run]:
    """The runs in MLflow by name, each of which is there once."""
    found = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert len({run.info.run_name for run in found}) == len(found)
    return {run.info.run_name: run for run in found}


def curve(client: MlflowClient, run: entities.Run, metric: str) -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, metric)]


def test_the_next_leader_goes_on_with_the_same_runs(
    record: Record, mlflow: MlflowClient, tmp_path: Path
) -> None:
    election = Election(tmp_path, MemoryStore())
    a, b = (SharedLogPosition(election.ledger, election.candidate(name), "mlflow/") for name in "ab")
    election.elect("a")
    record.commit("c0000", 0)
    record.commit("c0000", 1)
    send(record, tracker(tmp_path), a)
    # It was killed behind the rows of the last visit, and when it had made the next config's run.
    a.write("c0000", 1)
    dying, bad = tracker(tmp_path), [{"step": 0.0, "loss": "bad"}]
    with pytest.raises(Exception, match="bad"):
        dying.write(Logged("c0001", HPARAMS, bad, 1000.0, 1001.0))  # type: ignore[list-item]
    record.commit("c0000", 2)
    for place in range(8):
        record.commit("c0001", place)
    election.elect("b")
    send(record, tracker(tmp_path), b)
    record.commit("c0000", 3)
    send(record, tracker(tmp_path), a)  # it was only suspended, and does not know yet
    assert record.said == []
    found = runs(mlflow)
    assert set(found) == {"r", "c0000", "c0001"}
    for name, steps in (("c0000", 6), ("c0001", 16)):
        run = found[name]
        assert run.data.tags["mlflow.parentRunId"] == found["r"].info.run_id
        assert curve(mlflow, run, "loss") == [(s, pytest.approx(1 / (1 + s))) for s in range(steps)]
        assert run.data.params == {"lr": "0.1", "act": "relu", "layers": "[8, 8]"}
    assert [found[name].info.status for name in found if name != "r"].count("RUNNING") == 1
    assert (found["c0001"].info.status, found["c0001"].info.end_time) == ("FINISHED", 1_008_000)


def test_ends_a_clone_and_a_config_that_goes_on(record: Record, mlflow: MlflowClient, tmp_path: Path) -> None:
    record.commit("c0000", 0)
    record.tell(ConfigCreated(record.next(), child(record.state.configs["c0000"], "c0002", HPARAMS, {})))
    record.tell(ConfigEnded(record.next(), "c0000", Status.STOPPED, "hopeless"))
    record.tell(ConfigEnded(record.next(), "c0001", Status.FAILED, "out of memory"))
    record.tell(ConfigEnded(record.next(), "c0002", Status.STOPPED, "enough", by_hand=True))
    position = FileLogPosition(tmp_path / "logged.json")
    send(record, tracker(tmp_path), position)
    found = runs(mlflow)
    assert {name: run.info.status for name, run in found.items()} == {
        "r": "FINISHED",
        "c0000": "KILLED",
        "c0001": "FAILED",
        "c0002": "KILLED",
    }
    tags = {name: run.data.tags for name, run in found.items()}
    assert [tags[name]["cerebro.status"] for name in ("c0000", "c0001", "c0002")] == [
        "pruned",
        "failed",
        "stopped",
    ]
    assert (tags["c0001"]["cerebro.reason"], tags["c0002"]["cerebro.parent"]) == ("out of memory", "c0000")
    # The run is extended: the same runs go on.
    record.tell(ConfigResumed(record.next(), "c0000", "extended"))
    record.commit("c0000", 1)
    send(record, tracker(tmp_path), position)
    found = runs(mlflow)
    assert (found["r"].info.status, found["c0000"].info.status) == ("RUNNING", "RUNNING")
    assert [step for step, _ in curve(mlflow, found["c0000"], "loss")] == [0, 1, 2, 3]


def test_a_tracker_that_is_away_gets_all_later_and_nobody_sees_its_password(
    record: Record, tmp_path: Path
) -> None:
    """It works in a process of its own."""
    from mlflow import MlflowClient

    log, settings = tmp_path / "log", {"run": "r", "identity": "one", "folder": str(tmp_path)}

    def send_to(server: str) -> None:
        env = {"MLFLOW_TRACKING_URI": server, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
        remote = RemoteTracker("mlflow", settings, log, env)
        position = FileLogPosition(tmp_path / "logged.json")
        with LogForwarder(record.history, "mlflow", remote, position, record.said.append):
            pass

    record.commit("c0000", 0)
    send_to("http://me:s3cret@127.0.0.1:9")
    first, second = record.said
    assert first.startswith("mlflow gets nothing for now: ")
    assert "127.0.0.1" in first
    assert second == "mlflow lacks what came since then; the run's own report has it"
    assert "s3cret" not in f"{first} {log.read_text()}"
    record.commit("c0000", 1)
    send_to("")
    assert record.said == [first, second]
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.get_experiment_by_name("cerebro-elastic").experiment_id
    (run,) = client.search_runs([experiment], "tags.`cerebro.config` = 'c0000'")
    assert [step for step, _ in curve(client, run, "loss")] == [0, 1, 2, 3]
    assert (tmp_path / "mlflow.db").stat().st_mode & 0o077 == log.stat().st_mode & 0o077


@pytest.fixture
def nothing_of_wandb_is_left() -> Iterator[None]:
    import wandb

    yield
    wandb.teardown()


def wandb_records(folder: Path) -> Iterator[tuple[str, list[Any]]]:
    """The files that W&B's offline mode has written, by name, with their records."""
    from wandb.proto import wandb_internal_pb2

    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        data, at, message, found = file.read_bytes(), 7, b"", []
        while at + 7 <= len(data):
            if 32768 - at % 32768 < 7:  # the rest of a block
                at += 32768 - at % 32768
                continue
            _, size, kind = struct.unpack("<IHB", data[at : at + 7])
            message += data[at + 7 : at + 7 + size]
            at += 7 + size
            if kind in (1, 4):  # a whole record, or the last part of one
                found.append(wandb_internal_pb2.Record.FromString(message))
                message = b""
        yield file.name, found


def records_of_ended_runs(folder: Path, count: int) -> list[tuple[str, list[Any]]]:
    """The files of this many runs with their records. W&B's own process writes them; it may be behind."""
    deadline = time.monotonic() + 60
    while True:
        files = list(wandb_records(folder))
        ended = [any(r.WhichOneof("record_type") == "exit" for r in records) for _, records in files]
        if ended == [True] * count:
            return files
        assert time.monotonic() < deadline, f"waited 60 s for the end of W&B's files in {folder}"
        time.sleep(0.05)


@pytest.mark.usefixtures("nothing_of_wandb_is_left")
def test_wandb_has_a_group_with_a_run_for_each_config(record: Record, tmp_path: Path) -> None:
    election = Election(tmp_path, MemoryStore())

    def lead(name: str) -> LogForwarder:
        election.elect(name)
        to = WandbTracker("r", "one", str(tmp_path), "mine", mode="offline")
        position = SharedLogPosition(election.ledger, election.candidate(name), "wandb/")
        return LogForwarder(record.history, "wandb", to, position, record.said.append, buffers=True)

    record.commit("c0000", 0)
    with lead("a"):
        pass
    noted = election.ledger.logged()
    for place in range(1, 8):
        record.commit("c0000", place)
    with lead("b"):
        pass
    assert record.said == []
    assert noted == {"wandb/c0000": 1}
    assert set(election.ledger.logged()) == {"wandb/c0000", "wandb/c0000/end"}
    (first, before), (second, after) = records_of_ended_runs(tmp_path, 2)
    assert first == second == "run-one-c0000.wandb"
    begun = next(record.run for record in before if record.WhichOneof("record_type") == "run")
    assert (begun.run_group, begun.display_name, begun.project) == ("r", "r-c0000", "mine")
    assert {item.key: item.value_json for item in begun.config.update}["lr"] == "0.1"
    rows = [record.history for record in [*before, *after] if record.WhichOneof("record_type") == "history"]
    assert [row.step.num for row in rows] == list(range(16)), "none is missing, none is there twice"
    (end,) = [record.exit for record in after if record.WhichOneof("record_type") == "exit"]
    assert end.exit_code == 0


def test_the_machine_that_leads_makes_the_tracker_that_the_recipe_names(empty: Path, tmp_path: Path) -> None:
    """Its database is beside the folders of all runs."""
    from mlflow import MlflowClient

    result = recorded_run.record(tmp_path, loggers=["mlflow"])
    home = result.folder.path.parent
    shutil.copy(empty, home / "mlflow.db")
    election, said = Election(tmp_path, MemoryStore()), list[str]()
    election.elect("a")
    loggers = Loggers(result.recipe, result.spec, result.folder)
    ends = {"mlflow/c0000/end", "mlflow/c0001/end"}
    with loggers.written(election.ledger, election.candidate("a"), said.append):
        wait_for(lambda: ends <= election.ledger.logged().keys(), "the ends of both configs")
    assert said == []
    client = MlflowClient(f"sqlite:///{home}/mlflow.db")
    experiment = client.get_experiment_by_name("cerebro-elastic").experiment_id
    query = "tags.`cerebro.run` = 'recorded'"
    found = {run.info.run_name: run for run in client.search_runs([experiment], query)}
    assert {name: run.info.status for name, run in found.items()} == dict.fromkeys(
        ["recorded", "c0000", "c0001"], "FINISHED"
    )
    best = found[result.best.config].data.metrics
    assert best["val_loss"] == result.best.curve[-1]["val_loss"]


@pytest.mark.parametrize(
    ("loggers", "message"),
    [
        ([{"class": "mlflow", "args": {"tracking_uri": "http://me:pw@host"}}], "may hold no login"),
        ([{"class": "mlflow", "args": {"experimnt": "x"}}], "no argument 'experimnt'; did you mean 'exper"),
        ([{"class": "mlflow", "args": {"experiment": 5}}], "mlflow: experiment: input should be a valid str"),
        ([{"class": "wandb", "args": {"mode": "of"}}], "wandb: mode: input should be 'online' or 'offline'"),
        ([{"class": "wandb", "args": {"project": "a/b"}}], "wandb: project: "),
        (["wandb", "mlflow", "wandb"], "wandb appears twice"),
    ],
)
def test_errors_in_a_recipe_are_reported_before_the_run(loggers: Any, message: str) -> None:
    recipe = {
        "name": "r",
        "task": {"kind": "torch", "model": "m:f", "loss": "m:l"},
        "data": {"url": "d"},
        "search": {"space": {"lr": [0.1]}},
        "loggers": loggers,
    }
    with pytest.raises(RecipeError) as error:
        load_recipe(recipe)
    assert message.lower() in str(error.value).lower()
    assert "pw@" not in str(error.value)
