"""The machine of a run's etcd is lost, with its disk. The same command on another begins with the copy of the
record on storage, and the host that has waited goes on. The verdict is the replay. A leader of the first
etcd, if that was not lost, ends."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

import cerebro_elastic
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.record_copy import RecordCopy, fetch_record
from cerebro_elastic.runs.results.replay import replay
from cerebro_elastic.runs.results.verify import verify
from cerebro_elastic.system.run_key import RunKey
from support.etcd_cluster import free_ports
from support.processes_of_users import MODEL, RECIPE, cerebro
from support.waiting import SOON, wait_for

RUN = "lost"


@pytest.mark.cluster
def test_an_etcd_that_is_lost_with_its_disk_is_restored(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "a_slow_model.py").write_text(MODEL)
    (project / "lost.yaml").write_text(f"{RECIPE.replace('12', '6')}checkpoints: {tmp_path / 'storage'}\n")
    (project / "slowly").touch()
    (port,), storage = free_ports(1), tmp_path / "storage" / RUN
    first, home = str(tmp_path / "first"), str(tmp_path / "home")
    serve, at_storage = ["etcd", RUN, "--port", str(port), "--home"], ["--storage", str(storage)]
    take_part = [
        "host",
        str(project / "lost.yaml"),
        "--run-id",
        RUN,
        "--home",
        home,
        "--etcd",
        f"127.0.0.1:{port}",
    ]
    with cerebro(tmp_path / "first.log", *serve, first, *at_storage) as etcd:
        wait_for(lambda: "serves on" in (tmp_path / "first.log").read_text(), "the etcd")
        with cerebro(tmp_path / "host.log", *take_part) as host:
            wait_for(lambda: len([*storage.glob("record/*/*.jsonl")]) > 1, "two parts of the record's copy")
            os.killpg(etcd.pid, signal.SIGKILL)
            etcd.wait()
            shutil.rmtree(first)
            old = RunFolder(tmp_path / "old" / RUN)
            shutil.copytree(Path(home) / RUN, old.path, ignore=shutil.ignore_patterns("checkpoints"))
            with cerebro(tmp_path / "second.log", *serve, home, *at_storage) as restored:
                (project / "slowly").unlink()
                assert host.wait(SOON) == 0, (tmp_path / "host.log").read_text()
                assert restored.wait(SOON) == 0, (tmp_path / "second.log").read_text()
    result = cerebro_elastic.Run.open(RUN, home=home).result
    assert [row.status for row in result.leaderboard] == ["finished"] * 2
    assert verify(result) == []
    assert all(visit.same for visit in replay(result, result.best.config))

    # The run has ended, and so has its etcd: it goes on when both are started again.
    cerebro_elastic.Run.open(RUN, home=home).extend(epochs=7)
    with (
        cerebro(tmp_path / "again.log", *serve, home) as etcd,
        cerebro(tmp_path / "host.log", *take_part) as host,
    ):
        assert host.wait(SOON) == 0, (tmp_path / "host.log").read_text()
        assert etcd.wait(SOON) == 0, (tmp_path / "again.log").read_text()
    result = cerebro_elastic.Run.open(RUN, home=home).result
    assert [len(row.curve) for row in result.leaderboard] == [7, 7]
    assert verify(result) == []

    key = RunKey.from_env(os.environ)
    assert key is not None
    monkeypatch.setattr("cerebro_elastic.runs.record_copy.SECONDS", 0.05)
    with RecordCopy(old, str(storage), key, "of-the-old-etcd", lambda: True, pytest.fail) as copy:
        wait_for(lambda: _ended_elsewhere(copy), "the old etcd's leader ends")
    assert not (storage / "record" / "of-the-old-etcd").exists()

    with pytest.raises(RunError, match="is not signed with this key for run 'lost'"):
        fetch_record(RUN, str(storage), RunKey(b"0" * 32))
    assert fetch_record(RUN, str(storage), key).events == result.folder.events()
    first_piece = next(iter(sorted(storage.glob("record/*/*.jsonl"))))
    first_piece.unlink()
    with pytest.raises(RunError, match="has no record of run 'lost' yet"):
        fetch_record(RUN, str(storage), key)


def _ended_elsewhere(copy: RecordCopy) -> bool:
    try:
        copy.check(lambda: 1)
    except RunError as error:
        copy.check(lambda: 10**9)  # an etcd that is as far has another leader only
        return "continues in another etcd" in str(error)
    return False
