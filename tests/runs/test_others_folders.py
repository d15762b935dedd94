"""Runs that another user has made, or planted: nothing in them is used, and what may be read is read."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cerebro_elastic.core.model.events import RunOpened
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.errors import RunError
from cerebro_elastic.front_end.live_page.access import kept_token
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.results.result import RunResult, check_here
from cerebro_elastic.runs.results.verify import verify
from cerebro_elastic.runs.run import Run
from cerebro_elastic.runs.start.host import host
from cerebro_elastic.runs.start.prepare_run import write_spec
from cerebro_elastic.store.ledger.journal import Journal
from support.owners import ONLY_ROOT, OTHER

RECIPE = {
    "name": "r",
    "seed": 1,
    "epochs": 1,
    "task": {"kind": "torch", "model_fn": "m:model", "optimizer": "SGD", "loss": "cross_entropy"},
    "data": {"url": "/data"},
    "search": {"space": {"lr": [0.1]}},
    "objective": {"metric": "val_loss", "mode": "min"},
    "etcd": "127.0.0.1:1",
}
PLAN = Plan("r", partitions=1, epochs=1)
SPEC = Spec(PLAN, {}, "", "", "", "", {}, "", "")


def lock(folder: RunFolder) -> None:
    with folder.locked():
        pass


USES: dict[str, Callable[[RunFolder], object]] = {
    "run": lock,
    "host": lambda folder: host(RECIPE, home=folder.path.parent),
    "stop, resume, join": lambda folder: Run(folder).live_place(),
    "replay, export": lambda folder: check_here(RunResult(folder), modules="/"),
}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "r")
    with folder.locked():
        write_spec(folder, SPEC)
        Journal(folder.history).append([RunOpened(1, PLAN)])
        folder.endpoint.write_text("127.0.0.1:1")
    return folder


def give_away(path: Path) -> None:
    for each in (path, *path.iterdir()):
        os.chown(each, OTHER, OTHER, follow_symlinks=False)


@pytest.mark.parametrize("use", USES)
def test_a_folder_that_others_can_write_to_is_refused(use: str, folder: RunFolder) -> None:
    folder.path.chmod(0o770)
    with pytest.raises(RunError, match=r"/r can be written by others \(mode 770\).*chmod go-w"):
        USES[use](folder)


@ONLY_ROOT
@pytest.mark.parametrize("use", USES)
def test_a_folder_of_another_user_is_refused(use: str, folder: RunFolder) -> None:
    give_away(folder.path)
    with pytest.raises(RunError, match=r"/r belongs to .*, and this process runs as .*cp -r"):
        USES[use](folder)


@ONLY_ROOT
def test_a_link_of_another_user_is_refused(folder: RunFolder) -> None:
    planted = folder.path.with_name("planted")
    planted.symlink_to(folder.path)
    lock(RunFolder(planted))
    os.chown(planted, OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(RunError, match="/planted is a link that belongs to"):
        lock(RunFolder(planted))


@ONLY_ROOT
def test_the_record_of_another_user_can_be_read_if_it_is_shared(folder: RunFolder) -> None:
    give_away(folder.path)
    run = Run.open("r", home=folder.path.parent)
    now = run.status()
    assert (run.spec, now.state.plan, now.live) == (SPEC, PLAN, False), (
        "its etcd gets no login of this user's"
    )


PLANTED = {**RECIPE, "search": {"space": {"lr": [0.1, 0.2]}, "constraints": ["planted:holds"]}}


@pytest.mark.parametrize("whose", ["theirs", "with their project", "a copy", "own"])
@ONLY_ROOT
@pytest.mark.usefixtures("imports_as_found")
def test_reading_a_run_of_others_calls_no_function_of_theirs(
    whose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, folder, original = tmp_path / "project", RunFolder(tmp_path / "r"), tmp_path / "original"
    project.mkdir()
    original.mkdir()
    (project / "planted.py").write_text("open('called', 'w')\ndef holds(lr): return True\n")
    storage = str(folder.path) if whose != "a copy" else str(original)
    with folder.locked():
        write_spec(folder, replace(SPEC, recipe=PLANTED, root=str(project), storage=storage))
        Journal(folder.history).append([RunOpened(1, PLAN)])
    if whose == "theirs":
        give_away(folder.path)
    if whose == "with their project":
        os.chown(project, OTHER, OTHER)
    monkeypatch.chdir(tmp_path)
    notes: list[str] = []
    verify(RunResult(folder), say=notes.append)
    refused = any("its decisions were not made again: " in note for note in notes)
    assert (refused, (tmp_path / "called").exists()) == (whose != "own", whose == "own")


def test_a_token_that_others_can_have_written_is_not_used(tmp_path: Path) -> None:
    token = kept_token(tmp_path)
    assert kept_token(tmp_path) == token
    (file,) = tmp_path.iterdir()
    file.chmod(0o666)
    assert kept_token(tmp_path) != token
