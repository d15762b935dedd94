"""The folder of a run, and its lock: one process holds it, and a check takes it from nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.errors import CerebroError, DiskFull, FolderInUse
from cerebro_elastic.runs.folder import etcd_folder, find_run, home_of, run_folder
from cerebro_elastic.runs.start.join import own_folder
from cerebro_elastic.runs.start.prepare_run import write_spec

SPEC = Spec(Plan("r", 1, 1), {}, "", "", "", "", {}, "", "")


def test_the_second_host_on_a_machine_has_a_folder_beside_the_first_ones(tmp_path: Path) -> None:
    with own_folder(SPEC, "one", tmp_path) as first, own_folder(SPEC, "other", tmp_path) as second:
        assert (first.path.name, second.path.name) == ("r", "r.other")
        with pytest.raises(FolderInUse, match="being run already"), first.locked():
            pass
    with own_folder(SPEC, "third", tmp_path) as third:
        assert third.path.name == "r", "it is free again"


def test_a_full_disk_is_a_sentence_wherever_it_is_found(tmp_path: Path) -> None:
    """Any file may find it: a node's log, the endpoint, a logger's."""
    folder = run_folder("r", tmp_path)

    def begin() -> None:
        with folder.locked():
            write_spec(folder, SPEC)
            with open("/dev/full", "w") as file:
                file.write("a line\n")

    with pytest.raises(DiskFull, match=r"/r: the storage has no space left \(No space.*free some"):
        begin()
    assert folder.read_spec() == SPEC, "the same command continues the run"


def test_a_run_is_deleted_only_when_another_has_begun_in_its_place(tmp_path: Path) -> None:
    folder = run_folder("r", tmp_path)

    def begin(*, fails: bool) -> None:
        with folder.locked(), folder.emptied() as delete_former:
            assert not folder.spec.exists()
            folder.etcd.mkdir()
            if fails:
                raise KeyboardInterrupt
            folder.spec.write_text("the new run's")
            delete_former()

    with folder.locked():
        folder.logs.mkdir()
        folder.spec.write_text("the former run's")
    with pytest.raises(KeyboardInterrupt):
        begin(fails=True)
    assert folder.spec.read_text() == "the former run's"
    assert (folder.logs.is_dir(), folder.etcd.exists()) == (True, False)
    for aside in (".former", ".former-moving"):  # a process that is killed puts nothing back
        killed = tmp_path / "r" / aside
        killed.mkdir()
        moved = (folder.logs, folder.spec) if aside == ".former" else (folder.spec,)
        for path in moved:
            path.rename(killed / path.name)
        with folder.locked():
            assert folder.spec.read_text() == "the former run's"
            assert folder.logs.is_dir()
    begin(fails=False)
    assert folder.spec.read_text() == "the new run's"
    assert sorted(path.name for path in folder.path.iterdir()) == ["etcd", "lock", "spec.json"]


def test_the_folder_of_runs_is_found_alike_wherever_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CEREBRO_HOME", "~/usual")
    assert home_of() == tmp_path / "usual"
    assert home_of("~/given") == home_of(Path("~/given")) == tmp_path / "given"
    for url in ("s3://bucket/runs", Path("s3://bucket/runs")):
        with pytest.raises(CerebroError, match="s3://bucket/runs"):
            home_of(url)
    assert etcd_folder("r", "~/given") == tmp_path / "given" / "r.etcd"
    with own_folder(SPEC, "one", "~/given") as folder:
        write_spec(folder, SPEC)
    assert find_run("r", "~/given").path == folder.path == tmp_path / "given" / "r"
