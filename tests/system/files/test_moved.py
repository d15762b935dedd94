"""Where the files are that a record names, in a home that was moved since."""

from __future__ import annotations

from pathlib import Path

import pytest

from cerebro_elastic.system.files import here, moved, note_place


def test_a_project_is_found_that_a_container_has_nearer_to_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a file has one name, whichever run was opened first."""
    monkeypatch.setenv(moved.VARIABLE, "[]")
    outside = Path(f"/no-such-home{tmp_path}")
    (tmp_path / "runs").mkdir()
    note_place(outside / "runs" / "first", tmp_path / "runs" / "first")
    assert here(f"{outside}/data/rows") == f"{tmp_path}/data/rows"
    moved.note_folder(outside, tmp_path)
    assert here(f"{outside}/runs/first") == f"{tmp_path}/runs/first"
