"""Runs of one id in several homes write to one place for checkpoints, and none takes it from another."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cerebro_elastic.errors import RunError
from cerebro_elastic.runs import owner
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.owner import claim, claimed, owns, refuse_others
from cerebro_elastic.system.files import Place, create, write_text


def test_a_place_is_of_the_folder_that_claimed_it_also_if_that_was_moved(tmp_path: Path) -> None:
    one, other, moved = (RunFolder(tmp_path / home / "job") for home in ("one", "other", "moved"))
    place = str(tmp_path / "kept" / "job")
    for folder in (one, other):
        folder.path.mkdir(parents=True)
    assert owns(one, place), "nobody has claimed it"
    claim(place, one)
    one.spec.touch()  # a run's folder
    refuse_others(place, one)
    with pytest.raises(RunError, match=f"another run of this id, in {one.path}: choose another id"):
        refuse_others(place, other)
    with one.locked(), one.emptied():  # as --fresh does
        assert owns(one, place)
        assert not one.owner.exists()
    shutil.copytree(one.path, moved.path)
    assert not owns(moved, place), "a copy"
    shutil.rmtree(one.path)
    assert owns(moved, place)
    assert not owns(other, place)


def test_of_two_that_begin_at_one_moment_one_has_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (RunFolder(tmp_path / home / "job") for home in ("one", "other"))
    for folder in (one, other):
        folder.path.mkdir(parents=True)
    place = str(tmp_path / "kept" / "job")

    def late(file: Place, data: bytes) -> bool:
        monkeypatch.undo()
        claim(place, one)
        return create(file, data)

    monkeypatch.setattr(owner, "create", late)
    with pytest.raises(RunError, match="another run of this id"):
        claim(place, other)
    assert owns(one, place)
    with pytest.raises(ZeroDivisionError), claimed(place, one):
        raise ZeroDivisionError
    assert owns(one, place), "it was its own before"
    assert not owns(other, place)
    with pytest.raises(ZeroDivisionError), claimed(str(tmp_path / "kept" / "new"), one):
        raise ZeroDivisionError
    assert not (tmp_path / "kept" / "new" / "owner").exists()


def test_a_machine_that_has_joined_a_run_goes_on_with_it_where_the_first_one_is_lost(tmp_path: Path) -> None:
    began, joined = (RunFolder(tmp_path / home / "job") for home in ("began", "joined"))
    place = str(tmp_path / "kept" / "job")
    for folder in (began, joined):
        folder.path.mkdir(parents=True)
    claim(place, began)
    joined.spec.touch()
    with pytest.raises(RunError, match=f"the run in {began.path}, and .* has none of its own: name that run"):
        refuse_others(place, joined)
    shutil.rmtree(began.path)  # or it is on another machine
    refuse_others(place, joined)
    assert not claim(place, joined)
    assert not owns(joined, place), "nobody deletes all of it from there"
    write_text(Path(place, "owner"), f"a-token {joined.path}")  # on the first machine: both have one path
    refuse_others(place, joined)
