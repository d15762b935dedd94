"""Behaviour that all commands share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cerebro_elastic.cli import main


def test_the_help_fits_one_screen_and_another_name_is_answered_with_the_commands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {}
    for name in ("--help", "foo"):
        monkeypatch.setattr(sys, "argv", ["cerebro", name])
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code == (0 if name == "--help" else 2)
        printed = capsys.readouterr()
        said[name] = " ".join(f"{printed.out}{printed.err}".replace("│", "").split())
        assert len(printed.out.splitlines()) <= 50
    assert "choices: add, check, doctor" in said["foo"]


class Interrupting:
    """Ctrl-C while the command's modules are imported, which takes a second."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "cerebro_elastic.cli.app":
            raise KeyboardInterrupt


def test_ctrl_c_before_a_command_has_begun_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cerebro_elastic.cli.app", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 130


def test_a_full_disk_ends_a_command_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        with open("/dev/full", "w") as file:
            file.write("a line")

    monkeypatch.setattr("cerebro_elastic.cli.app.app", full)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    assert "the storage has no space left" in capsys.readouterr().err


def test_the_first_line_of_a_run_comes_before_what_takes_long_to_import(tmp_path: Path) -> None:
    script = """
import sys
from cerebro_elastic.cli import main
sys.argv = ["cerebro", "run", "nothing.yaml"]
heavy = {"cerebro_elastic.recipes", "yaml", "numpy", "fsspec", "torch", "urllib3", "lightning", "scipy"}

def echo(text, **_):
    print(text, sorted(heavy & set(sys.modules)))

from cerebro_elastic.cli import start
start.echo = echo
main()
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.stdout.startswith("reading nothing.yaml []"), ended
    assert (ended.returncode, "nothing.yaml: cannot read" in ended.stderr) == (2, True)


_RECIPE = """
name: r
epochs: 1
task: {kind: torch, model_fn: 'net:make', loss: cross_entropy}
data: {source: rows.csv}
search: {space: {lr: [0.1]}}
"""
_LIGHTNING = "{{kind: lightning, module: 'net:Net', {}}}\nobjective: {{metric: val_los}}"
_TORCH = "{kind: torch, model_fn: 'net:make', loss: cross_entropy}"


_NET = """
def make(): ...

class Net(lightning.LightningModule):
    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self(batch))
"""


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("rows.csv", "row.csv", "row.csv does not exist (did you mean 'rows.csv'?)"),
        ("net:make", "nett:make", "'nett:make': no module 'nett' in"),
        ("net:make", "net:mke", "'net:mke': net has no 'mke'; did you mean 'make'?"),
        ("net:make", "broken:make", "broken.py:1: SyntaxError"),
        (
            _TORCH,
            _LIGHTNING.format("trainer: {devices: 4}"),
            "task.trainer: devices cannot be set: the run decides where",
        ),
        ("epochs: 1", "loggers: ['net:Board']", "'net:Board': net has no 'Board'"),
        ("epochs: 1", "loggers: [wandbb]", "'wandbb' is none of Lightning's loggers"),
        (_TORCH, _LIGHTNING.format("callbacks: [Early]"), "'Early' is none of Lightning's callbacks"),
        (
            _TORCH,
            _LIGHTNING.format("args: {}"),
            "'val_los', which the task does not log; did you mean 'val_loss'",
        ),
        ("epochs: 1", "objective: {metric: val_accuracy}", "{metrics: {accuracy: accuracy}}` makes"),
        ("{source: rows.csv}", "{url: nowhere}", "there is no dataset at"),
        ("epochs: 1", "checkpoints: /proc/nowhere", "checkpoints cannot be written to /proc/nowhere"),
        ("net:make", "hidden:make", "the imports are waited for"),
    ],
)
def test_wrong_names_and_paths_are_reported_without_the_imports(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    (tmp_path / "net.py").write_text(_NET)
    (tmp_path / "broken.py").write_text("def make(:\n")
    (tmp_path / "hidden.py").write_text("globals()['make'] = dict\n")  # only its import shows what it has
    (tmp_path / "rows.csv").write_text("x,y\n1,2\n")
    assert before in _RECIPE
    (tmp_path / "r.yaml").write_text(_RECIPE.replace(before, after))
    script = """
import sys
from cerebro_elastic.cli import main
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.start.imports import SharedImports

def load(*_):
    raise RunError("the imports are waited for")

sys.argv = ["cerebro", "run", "r.yaml"]
SharedImports.load = load
main()
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode in (1, 2)
    assert message in ended.stderr
