"""The lock of a run's folder: one process each, and who looks takes it from nobody."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.errors import FolderInUse
from cerebro_elastic.runs.folder import run_folder
from cerebro_elastic.runs.start.join import own_folder

SPEC = Spec(Plan("r", 1, 1), {}, "", "", "", "", {}, "", "")


def test_the_second_host_on_a_machine_has_a_folder_beside_the_first_ones(tmp_path: Path) -> None:
    with own_folder(SPEC, "one", tmp_path) as first, own_folder(SPEC, "other", tmp_path) as second:
        assert (first.path.name, second.path.name) == ("r", "r.other")
        with pytest.raises(FolderInUse, match="being run already"), first.locked():
            pass
    with own_folder(SPEC, "third", tmp_path) as third:
        assert third.path.name == "r", "it is free again"


def test_who_looks_whether_a_folder_is_in_use_hinders_nobody(tmp_path: Path) -> None:
    folder, ended = run_folder("r", tmp_path), threading.Event()

    def look() -> None:
        while not ended.is_set():
            folder.is_locked()

    with folder.locked():
        folder.spec.write_text("{}")
    watchers = [threading.Thread(target=look) for _ in range(3)]
    for watcher in watchers:
        watcher.start()
    try:
        for _ in range(300):
            with folder.locked():
                pass
    finally:
        ended.set()
        for watcher in watchers:
            watcher.join()
