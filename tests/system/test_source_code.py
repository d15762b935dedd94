"""What users' code reads, beside itself."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from cerebro_elastic.registry import import_object
from cerebro_elastic.runs.start import preflight
from cerebro_elastic.system.source_code import OF_FILE, code_digest, outside, read_by


def test_a_large_file_that_code_names_counts_by_its_size_and_last_change(tmp_path: Path) -> None:
    """It is not read: a byte that leaves both as they were is not seen."""
    code, rows = tmp_path / "my_data.py", tmp_path / "rows.csv"
    code.write_text('rows = open("rows.csv")\n')
    rows.touch()
    os.truncate(rows, 300 << 20)

    def seen() -> dict[str, str]:
        return dict(read_by([code], tmp_path))

    before, changed = seen(), rows.stat().st_mtime_ns
    assert list(before) == [f"{OF_FILE}rows.csv"]
    with rows.open("r+b") as file:
        file.write(b"x")
    assert seen() != before, "it was changed later"
    os.utime(rows, ns=(changed, changed))
    assert seen() == before
    os.truncate(rows, (300 << 20) + 1)
    os.utime(rows, ns=(changed, changed))
    assert seen() != before


def test_a_folder_that_code_names_counts_by_its_files_also_behind_links(tmp_path: Path) -> None:
    code, folder, linked = tmp_path / "my_data.py", tmp_path / "images", tmp_path / "elsewhere"
    code.write_text('open("images")\n')
    for place in (folder / "cat", folder / "dog", linked):
        place.mkdir(parents=True)
    (folder / "cat" / "1.png").touch()
    (folder / "linked").symlink_to(linked)
    (linked / "circle").symlink_to(folder)
    (linked / "nothing").symlink_to(linked / "nothing")
    before = dict(read_by([code], tmp_path))
    (folder / "cat" / "1.png").rename(folder / "dog" / "1.png")
    moved = dict(read_by([code], tmp_path))
    (linked / "2.png").touch()
    assert len({str(seen) for seen in (before, moved, dict(read_by([code], tmp_path)))}) == 3


def test_what_code_names_and_cannot_be_read_stops_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, going = tmp_path / "my_data.py", tmp_path / "going"
    names = {"endless": tmp_path / "endless", "pipe": tmp_path / "pipe"}
    os.symlink(names["endless"], names["endless"])
    os.mkfifo(names["pipe"])
    going.mkdir()
    monkeypatch.setenv("LATIN", os.fsdecode(b"caf\xe9"))
    lines = [f"open({name!r})" for name in (*names, "going", "no/such", "half \ud800", "")]
    code.write_text("\n".join(["import os", "os.environ['LATIN'] + os.getenv('\\ud800')", *lines]))
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: going.rmdir() or scandir(path))  # while it is looked at
    found = dict(read_by([code], tmp_path))
    assert not going.exists()
    assert found.pop("$LATIN")
    assert found == dict.fromkeys((f"{OF_FILE}{name}" for name in (*names, "going", "no/such")), "")
    code.write_text("x = " + "+".join(["1"] * 3_000))
    assert "nested too deeply" in str(outside(code).unknown)
    before = code_digest(code)
    code.write_text("x = " + "+".join(["1"] * 3_001))
    assert code_digest(code) != before


@pytest.mark.parametrize(
    ("code", "names", "unknown"),
    [
        ("open('a.txt')", {"a.txt"}, []),
        ("open('a.txt', 'w')", set(), []),
        ("open(name)", set(), ["open"]),
        ("Path('/proc/meminfo').read_text()", set(), []),
        ("open('/dev/shm/rows.npy')", {"/dev/shm/rows.npy"}, []),
        ("import numpy as xp\nxp.load('a.npy')", {"a.npy"}, []),
        ("from numpy import load as get\nget('a.npy')", {"a.npy"}, []),
        ("import torch.jit as jit\njit.load('a.pt')", {"a.pt"}, []),
        ("import pickle\npickle.load(file)", set(), []),
        ("import subprocess\nsubprocess.run(['git', 'log'])", set(), ["run"]),
        ("trainer.run(3)", set(), []),
        ("Path('a').read_text()", {"a"}, []),
        ("path.read_text()", set(), ["read_text"]),
        ("exec(text)", set(), ["exec"]),
        ("model.eval()", set(), []),
        ("import importlib\nimportlib.import_module(name)", set(), ["import_module"]),
    ],
)
def test_what_code_reads_is_seen_or_said_to_be_unknown(
    code: str, names: set[str], unknown: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "my_code.py"
    file.write_text(code)
    found = outside(file)
    assert found.files == names
    assert [text.rpartition(" ")[2] for text in found.unknown] == unknown


@pytest.mark.usefixtures("imports_as_found")
def test_modules_that_are_imported_later_or_lie_elsewhere_are_code_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, shared = tmp_path / "project", tmp_path / "shared"
    files = {
        root / "a_lazy_net.py": "import a_shared\ndef step():\n    from a_part import a_loss\n",
        root / "a_part" / "__init__.py": "def never():\n    from .................... import a_base\n"
        "    __import__('/tmp/x')\n    open('a\\0b')\n",
        root / "a_part" / "a_loss.py": "from . import a_base\n",
        root / "a_part" / "a_base.py": "import importlib\nimportlib.import_module('a_named')\n",
        root / "a_named.py": "from a_starred import *\n",
        root / "a_starred.py": "",
        root / "another.py": "",
        shared / "a_shared.py": "",
    }
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(shared)
    import_object("a_lazy_net:step", root)
    code = {name for name in preflight.code_of(root) if str(tmp_path) in name or name[0] != "/"}
    own = {"a_lazy_net.py", "a_part/__init__.py", "a_part/a_loss.py", "a_part/a_base.py", "a_named.py"}
    own.add("a_starred.py")
    assert own <= code
    assert str(shared / "a_shared.py") in code
    assert "another.py" not in code


def test_each_file_of_a_large_project_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / f"net_{number}.py" for number in range(300)]
    for number, file in enumerate(files):
        file.write_text(f"WIDTH = {number}\n")
    parsed, parse = [], ast.parse

    def counted(source: bytes, *how: str) -> ast.AST:
        parsed.append(source)
        return parse(source, *how)

    with monkeypatch.context() as patch:
        patch.setattr(ast, "parse", counted)
        for look in (outside, code_digest):
            for file in files:
                look(file)
    assert len(parsed) == len(files)
