"""What a dead rank's dump says, written by Python's own faulthandler in processes that really die."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cerebro_elastic.core.model.attempts import FailureKind
from cerebro_elastic.worker.rendezvous.heartbeats import take_rank_failure
from support.waiting import SOON

DYING = """
import sys, threading, time, ctypes
from pathlib import Path
from cerebro_elastic.system.clock import SystemClock
from cerebro_elastic.worker.watchdog import Watchdog

def busy_elsewhere():
    time.sleep(60)

def die(how):
    if how == "hang":
        busy_waiting()
    elif how == "native":
        ctypes.PyDLL(None).usleep(60_000_000)  # holds the interpreter's lock
    elif how == "not at all":
        for _ in range(30):
            time.sleep(0.1)
            watchdog.beat()
    elif how == "crash":
        ctypes.string_at(0)
    elif how == "hang in a save":
        threading.Thread(target=save, daemon=True).start()
        for _ in range(300):
            time.sleep(0.1)
            watchdog.beat()
    elif how == "crash in a thread":
        thread = threading.Thread(target=crash_there)
        thread.start()
        thread.join()

def save():
    with watchdog.watching(1.0, 7):
        hang_there()

def hang_there():
    time.sleep(60)

def busy_waiting():
    while True:
        pass

def crash_there():
    ctypes.string_at(0)

threading.Thread(target=busy_elsewhere, daemon=True).start()
with open(sys.argv[1], "w") as dump:
    watchdog = Watchdog(dump, SystemClock())
    with watchdog.catching_crashes(), watchdog.watching(60.0 if "crash" in sys.argv[2] else 1.0, 8):
        die(sys.argv[2])
    time.sleep(1.5 if sys.argv[2] == "not at all" else 0)  # nobody watches any more
"""


@pytest.mark.parametrize(
    ("how", "kind", "pattern"),
    [
        ("hang", FailureKind.HANG, r"no progress for 1 s \(at \S+ in busy_waiting <- \S+ in die <- "),
        ("native", FailureKind.HANG, r"no progress for 1 s \(at \S+ in die <- "),
        (
            "hang in a save",
            FailureKind.HANG,
            r"no progress for 1 s \(at \S+ in hang_there <- \S+ in save <- ",
        ),
        ("crash", FailureKind.CRASH, r"the rank crashed: Segmentation fault \(at .* in die <- "),
        ("crash in a thread", FailureKind.CRASH, r"Segmentation fault \(at .* in crash_there <- "),
        ("not at all", FailureKind.CRASH, "killed from outside"),
    ],
)
def test_a_failure_has_its_place(tmp_path: Path, how: str, kind: FailureKind, pattern: str) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", DYING, str(tmp_path / "0"), how],
        timeout=SOON,
        capture_output=True,
        check=False,
    )
    assert (dead.returncode == 0) == (how == "not at all"), dead.stderr
    found, story, attempt = take_rank_failure(tmp_path)
    assert found is kind
    assert attempt == (7 if how == "hang in a save" else 8), "a crash counts against what was begun last"
    assert re.search(pattern, story), story
    assert list(tmp_path.iterdir()) == [], "a failure is read once"
