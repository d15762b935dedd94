"""What of a project counts for `--reuse`: all that code may read there, and nothing that runs and tools
write."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.start import project
from cerebro_elastic.runs.start.project import Project, keep_project, look

RECIPE = """
task: {kind: torch, model_fn: "net:model", optimizer: SGD, loss: mse_loss}
data: {source: data/*.csv, valid: held.csv}
search: {space: {lr: [0.1]}}
objective: {metric: val_loss, mode: min}
"""
FILES = {
    "net.py": "import os\nSIZE = os.environ['SIZE']\n",
    "sweep.yaml": RECIPE,
    "conf/base.yaml": "width: ${oc.env:WIDTH}\ntask: no recipe\n",
    ".env": "DEPTH=3\n",
    ".gitignore": ".env\nweights/\n",
    "weights/base.pt": "weights",
    "net.ini": "[net]\nhidden = 8\n",
    "labels.txt": "a\nb\n",
    "data/rows.csv": "x,y\n",
    "held.csv": "x,y\n",
    "settings.py": "class Settings(BaseSettings):\n    rate: float\n    env_prefix = 'my_'\n",
    "plugin/.git": "gitdir: ../.git/modules/plugin\n",
    "plugin/table.json": "{}",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / "project" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "project"


def recipe_in(root: Path) -> Recipe:
    return load_recipe(root / "sweep.yaml")


def seen(root: Path, environ: Mapping[str, str] | None = None) -> Project:
    return look(recipe_in(root), RunFolder(root / "runs" / "new"), {"net.py"}, environ or {})


def _write(name: str, text: str = "new") -> Callable[[Path], object]:
    def change(root: Path) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_write("conf/base.yaml"), "conf/base.yaml has changed"),
        (_write(".env"), ".env has changed"),
        (_write("weights/base.pt"), "weights/base.pt has changed"),
        (_write("net.ini"), "net.ini has changed"),
        (_write("plugin/table.json"), "plugin/table.json has changed"),
        (lambda root: (root / "labels.txt").unlink(), "labels.txt is gone"),
        (_write("override.toml"), "override.toml is new"),
        (_write("pictures/cat/1.png"), "pictures/cat/1.png is new"),
        (lambda root: (root / "linked").symlink_to(root / "labels.txt"), "linked is new"),
        (_write("sweep.yaml", RECIPE.replace("0.1", "0.1, 0.2")), ""),
        (_write("another.yaml", RECIPE), ""),
        (_write("net.py", "# the run has its digest"), ""),
        (_write("data/rows.csv", "other data have another digest"), ""),
        (_write("held.csv"), ""),
        (_write("runs/first/spec.json"), ""),
        (_write("elsewhere/first/spec.json"), "elsewhere/first/spec.json is new"),
        (lambda root: [_write(f"elsewhere/first/{n}")(root) for n in ("spec.json", "history.jsonl")], ""),
        (_write(".git/index"), ""),
        (_write("venv/pyvenv.cfg"), ""),
        (_write(".mypy_cache/CACHEDIR.TAG"), ""),
        (_write("__pycache__/net.pyc"), ""),
        (_write("explore.ipynb"), ""),
        (lambda root: (root / "circle").symlink_to(root), ""),
        (lambda root: os.mkfifo(root / "pipe"), ""),
        (lambda root: (root / "to-nothing").symlink_to(root / "nothing"), ""),
    ],
)
def test_each_file_that_code_may_read_counts(change: Callable[[Path], object], why: str, root: Path) -> None:
    before = seen(root)
    change(root)
    assert [text.partition(" (")[0] for text in before.differences(seen(root))] == ([why] if why else [])


def test_what_the_project_says_that_no_code_reads_does_not_count(root: Path) -> None:
    (root / project.IGNORE).write_text("# logs\n*.log\n/outputs/\ndocs/*.md\n")
    before = seen(root)
    for name in ("train.log", "outputs/day/1.txt", "docs/index.md"):
        _write(name)(root)
    assert before.differences(seen(root)) == []
    _write("docs/table.csv")(root)
    assert before.differences(seen(root)) == [
        f"docs/table.csv is new (what no code reads may be named in {project.IGNORE})"
    ]


@pytest.mark.parametrize("name", ["SIZE", "WIDTH", "MY_RATE", "RATE", "RATE__LOW", "JAX_ENABLE_X64"])
def test_a_variable_that_the_project_or_a_library_names_counts(name: str, root: Path) -> None:
    before = seen(root, {"HOME": "/a", name: "1"})
    assert before.differences(seen(root, {"HOME": "/b", name: "1", "_": "x"})) == []
    assert before.differences(seen(root, {name: "2"})) == [f"the environment variable {name} has changed"]
    assert before.differences(seen(root, {})) == [f"the environment variable {name} is gone"]


def test_a_folder_of_many_files_and_large_ones_count_by_their_status(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not read, and the many are one entry."""
    many = [root / "pictures" / f"{number}.png" for number in range(300)]
    for picture in many:
        _write(str(picture.relative_to(root)))(root)
    os.truncate(root / "weights" / "base.pt", 9 << 20)
    read, reads = list[Path](), Path.read_bytes

    def noted(file: Path) -> bytes:
        read.append(file)
        return reads(file)

    monkeypatch.setattr(Path, "read_bytes", noted)
    before = seen(root)
    assert "pictures/" in before.files
    assert not any(file.suffix in (".png", ".pt") for file in read)
    os.utime(many[7], ns=(1, 1))
    os.utime(root / "weights" / "base.pt", ns=(1, 1))
    changed = before.differences(seen(root))
    assert [text.partition(" (")[0] for text in changed] == [
        "pictures/ has changed",
        "weights/base.pt has changed",
    ]


def test_a_project_of_too_many_files_is_not_compared_and_says_so(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project, "MOST_FILES", 5)
    (why,) = seen(root).differences(seen(root))
    assert "has more than 5 files, which are not compared" in why


def test_a_run_that_goes_on_in_a_changed_project_is_of_neither(root: Path) -> None:
    folder = RunFolder(root / "runs" / "first")
    folder.path.mkdir(parents=True)
    assert keep_project(folder, recipe_in(root), {"net.py"}).problem == ""
    folder.spec.touch()
    assert keep_project(folder, recipe_in(root), {"net.py"}).problem == ""
    _write("net.ini")(root)
    keep_project(folder, recipe_in(root), {"net.py"})
    (why,) = project.read_project(folder).differences(seen(root))
    assert "its project changed while it was stopped (net.ini has changed" in why


def test_where_code_lies_in_the_working_directory_that_is_of_the_project_too(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.toml").write_text("x = 1")
    (tmp_path / "shared.py").touch()
    assert not any("base.toml" in name for name in seen(root).files)
    found = look(recipe_in(root), RunFolder(root / "runs" / "new"), {str(tmp_path / "shared.py")}, {})
    assert str(tmp_path / "base.toml") in found.files
    shutil.rmtree(root / "runs", ignore_errors=True)
