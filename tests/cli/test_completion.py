"""Tab completes commands, run ids and configs; and each command's help has an example."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cerebro_elastic.cli import main
from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import ConfigCreated
from cerebro_elastic.runs.folder import RunFolder
from support.commands import Cerebro


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs, of which ``digits`` has two configs on record."""
    monkeypatch.delenv("CEREBRO_HOME", raising=False)
    for home, name in (("runs", "digits"), ("runs", "other"), ("elsewhere", "digits-2")):
        folder = RunFolder(tmp_path / home / name)
        folder.path.mkdir(parents=True)
        folder.spec.touch()
    events = [ConfigCreated(n, Config(f"c000{n}", {"lr": 0.1})) for n in (1, 2)]
    history = RunFolder(tmp_path / "runs" / "digits").history
    history.write_text("".join(f"{encode(event)}\n" for event in events))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("cerebro rep", ["replay", "report"]),
        ("cerebro tri", []),
        ("cerebro status ", ["digits", "other"]),
        ("cerebro status d", ["digits"]),
        ("cerebro status --home elsewhere ", ["digits-2"]),
        ("cerebro stop digits ", ["c0001", "c0002"]),
        ("cerebro stop runs/digits c0002", ["c0002"]),
        ("cerebro stop other ", []),
        ("cerebro replay digits --config ", ["c0001", "c0002"]),
        (
            "cerebro init digits_",
            [f"digits_{each}" for each in ("asha", "dataset", "jax", "keras", "pbt", "sklearn", "torch")],
        ),
    ],
)
def test_what_tab_completes(
    words: str,
    answer: list[str],
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What bash gets for the last word of a command line."""
    monkeypatch.chdir(runs)
    monkeypatch.setattr(sys, "argv", ["cerebro"])
    asked = {"COMPLETE": "complete_bash", "WORDS": words, "CWORD": str(len(words.split(" ")) - 1)}
    for name, value in asked.items():
        monkeypatch.setenv("_CEREBRO_COMPLETE" if name == "COMPLETE" else f"COMP_{name}", value)
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().out.split() == answer


def test_help_offers_completion_and_a_shell_gets_its_script(
    cerebro: Cerebro, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    shown = cerebro("--help").out
    assert "--install-completion" in shown
    assert "--show-completion" in shown
    assert "_CEREBRO_COMPLETE=complete_bash" in cerebro("--show-completion", "bash").out
