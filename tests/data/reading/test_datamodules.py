"""``prepare_data`` runs once on a host, even if processes fail or die meanwhile."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cerebro_elastic.data.reading import datamodules


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setenv("CEREBRO_CACHE", str(tmp_path))
    yield tmp_path / "prepared"
    for lock in datamodules._prepared.values():
        lock.close()
    datamodules._prepared.clear()


def as_another_process() -> None:
    """Forget in this process what was prepared; the lock stays held."""
    others = dict(datamodules._prepared)
    datamodules._prepared.clear()
    datamodules._prepared.update({f"of another {name}": lock for name, lock in others.items()})


def test_later_processes_do_not_prepare() -> None:
    calls: list[str] = []
    for name in ("first", "second", "third"):
        datamodules._prepare_once("photos", lambda name=name: calls.append(name))  # type: ignore[misc]
        as_another_process()
    assert calls == ["first"]
    datamodules._prepare_once("others", lambda: calls.append("others"))
    assert calls == ["first", "others"]


def test_once_all_have_left_the_data_are_prepared_again() -> None:
    calls: list[int] = []
    for _ in range(2):
        datamodules._prepare_once("photos", lambda: calls.append(1))
        datamodules._prepared.popitem()[1].close()
    assert calls == [1, 1]


def test_a_failure_leaves_it_to_the_next() -> None:
    def fail() -> None:
        raise OSError("no network")

    calls: list[int] = []
    with pytest.raises(OSError, match="no network"):
        datamodules._prepare_once("photos", fail)
    datamodules._prepare_once("photos", lambda: calls.append(1))
    assert calls == [1]


def is_waited_for(file: Path) -> bool:
    """Whether somebody waits for a lock on the file, as the kernel lists it."""
    locks = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and f":{file.stat().st_ino} " in line for line in locks)


def test_a_process_that_waits_for_a_killed_one_prepares_itself(cache: Path) -> None:
    datamodules._prepare_once("photos", lambda: None)
    datamodules._prepared.popitem()[1].close()
    (file,) = cache.iterdir()
    calls: list[int] = []
    with file.open("r+") as killed:  # it has the lock, and has begun
        fcntl.flock(killed, fcntl.LOCK_EX)
        killed.truncate(0)
        waiter = threading.Thread(target=datamodules._prepare_once, args=("photos", lambda: calls.append(1)))
        waiter.start()
        deadline = time.monotonic() + 20
        while not is_waited_for(file):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    waiter.join(20)
    assert calls == [1]
