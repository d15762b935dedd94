"""A run's results include those of its check; a replay says which code made the run."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from recorded_run import record
from typer.testing import CliRunner

from cerebro_elastic import RunResult
from cerebro_elastic.cli.app import app
from cerebro_elastic.cli.output import outcome_json, show_outcome
from cerebro_elastic.reporting.page.report import read_metadata
from cerebro_elastic.runs.exactness.outcome import (
    CheckedConfig,
    CheckOutcome,
    Exactness,
    RunExactness,
    Verdict,
)
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.results.export import export
from cerebro_elastic.runs.results.report import write_report
from cerebro_elastic.runs.start.prepare_run import write_spec
from cerebro_elastic.runs.versions import other_code
from cerebro_elastic.system.files import moved
from cerebro_elastic.system.version import __version__
from cerebro_elastic.worker.rendezvous.compatibility import PACKAGE, package_digest

EQUAL = CheckedConfig({"lr": 0.1}, Exactness(CheckOutcome.EQUAL, compared={"weight": 1}))
DIFFERS = CheckedConfig(
    {"lr": 0.01}, Exactness(CheckOutcome.DIFFERS, "weight 0 differs.\nKeep it in the module")
)
FAILED = CheckedConfig({"lr": 9.0}, Exactness(CheckOutcome.FAILED, "ValueError"))
UNKNOWN = CheckedConfig({"lr": 0.1}, Exactness(CheckOutcome.UNKNOWN, "no time"))
CHANCE = CheckedConfig({"lr": 0.1}, Exactness(CheckOutcome.NOT_DETERMINISTIC, "a clock"))

CHECKED = "checked: units of 1 config equal one ordinary fit, bit for bit"
NOT_CHECKED = "not checked (`cerebro check` does it in seconds)"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunResult]:
    sys.modules.pop("a_recorded_model", None)
    yield record(tmp_path_factory.mktemp("exact"))
    del sys.modules["a_recorded_model"]


def checked(run: RunResult, *configs: CheckedConfig) -> RunResult:
    run.folder.check.write_text(json.dumps([config.as_json() for config in configs]))
    return run.now()


@pytest.mark.parametrize(
    ("configs", "verdict", "text"),
    [
        ((), Verdict.NOT_CHECKED, NOT_CHECKED),
        ((FAILED,), Verdict.NOT_CHECKED, NOT_CHECKED),
        ((UNKNOWN,), Verdict.NOT_CHECKED, "not checked: no time (`cerebro check` does it in seconds)"),
        ((EQUAL,), Verdict.CHECKED, CHECKED),
        ((EQUAL, FAILED), Verdict.CHECKED, CHECKED),
        ((EQUAL, DIFFERS), Verdict.DIFFERS, "differs in lr=0.01: weight 0 differs."),
        ((UNKNOWN, DIFFERS), Verdict.DIFFERS, "differs in lr=0.01: weight 0 differs."),
        ((CHANCE,), Verdict.DIFFERS, "differs in lr=0.1: a clock"),
    ],
)
def test_the_verdict_follows_from_the_configs(
    configs: tuple[CheckedConfig, ...], verdict: Verdict, text: str
) -> None:
    exactness = RunExactness(configs)
    assert (exactness.verdict, exactness.text) == (verdict, text)
    written = json.dumps(exactness.as_json())
    assert json.dumps(RunExactness.of_json(json.loads(written)).as_json()) == written
    of_before = written.replace('"outcome": "equal"', '"outcome": "varies"')
    assert RunExactness.of_json(json.loads(of_before)).verdict is not Verdict.CHECKED


@pytest.mark.parametrize(
    ("configs", "text"), [((), NOT_CHECKED), ((EQUAL,), CHECKED), ((DIFFERS,), "differs in lr=0.01")]
)
def test_leaderboard_json_report_and_card_have_it(
    run: RunResult,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    configs: tuple[CheckedConfig, ...],
    text: str,
) -> None:
    result = checked(run, *configs)
    show_outcome(result)
    assert f"exactness: {text}" in capsys.readouterr().out
    assert text in outcome_json(result)["exactness"]["text"]
    assert text.replace("`", "") in result._repr_html_().replace("`", "")
    write_report(result)
    metadata = read_metadata(result.folder.report.read_text())
    assert metadata is not None
    assert text in metadata.exactness
    assert '"exactness":"' in result.folder.report.read_text()
    export(result, tmp_path / "model")
    assert "| exactness | " in (tmp_path / "model" / "README.md").read_text()
    assert text in json.loads((tmp_path / "model" / "record.json").read_text())["exactness"]["text"]


@pytest.mark.parametrize(
    ("version", "code", "words"),
    [
        (__version__, {PACKAGE: package_digest()}, []),
        (
            "0.0.1",
            {PACKAGE: package_digest()},
            [f"cerebro-elastic 0.0.1 made the run, and here is {__version__}"],
        ),
        (
            __version__,
            {PACKAGE: "0" * 64},
            ["cerebro-elastic was 000000000000", f"is {package_digest()[:12]} here"],
        ),
        (
            __version__,
            {PACKAGE: package_digest(), "gone.py": "f" * 64},
            ["gone.py was ffffffffffff", "missing here"],
        ),
    ],
)
def test_the_code_that_made_a_run_and_that_here_are_named(
    run: RunResult, version: str, code: dict[str, str], words: list[str]
) -> None:
    texts = "; ".join(other_code(replace(run.spec, version=version, code=code)))
    assert all(word in texts for word in words)
    assert bool(texts) == bool(words)


def test_a_replay_that_differs_says_which_code_made_the_run(
    run: RunResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(moved.VARIABLE, "[]")
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # or the command replaces this process by one that has it
    shutil.copytree(run.folder.path, tmp_path / run.run)
    folder, plan = RunFolder(tmp_path / run.run), replace(run.spec.plan, seed=4)
    write_spec(folder, replace(run.spec, plan=plan, code={**run.spec.code, PACKAGE: "0" * 64}))
    arguments = ["replay", run.run, "--config", "c0000", "--home", str(tmp_path)]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 1, shown.output
    assert "note: the code of cerebro-elastic was 000000000000 when the run was made" in shown.output
