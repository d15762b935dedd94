"""``cerebro check``, as users type it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cerebro_elastic.runs.start import background_check as command
from support.commands import Cerebro, assert_shape

RECIPE = """\
task: {kind: torch, model_fn: "a_checked_net:model", loss: cross_entropy, optimizer: SGD}
data: {source: "a_users_data:load", partitions: 2, valid: 0.2, batch_size: 4}
search: {space: {lr: [0.01, 0.001], kind: [plain, counting, wrong]}}
"""

MODEL = """
import os

from torch import nn


class Counting(nn.Linear):
    def forward(self, input):
        os.environ["SEEN"] = str(int(os.environ.get("SEEN", "0")) + 1)
        return super().forward(input) * int(os.environ["SEEN"])


def model(kind):
    return {"plain": nn.Linear(4, 2), "counting": Counting(4, 2), "wrong": nn.Linear(5, 2)}[kind]
"""


def test_the_check_prints_exact_and_inexact_state_for_people_and_machines(
    cerebro: Cerebro, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One check for both: what is printed are two views of it."""
    (project / "a_checked_net.py").write_text(MODEL)
    (project / "check.yaml").write_text(RECIPE)
    rows_and_answers: list[Any] = []
    begin = command.check

    @contextmanager
    def once(*given: Any) -> Iterator[Any]:
        if rows_and_answers:
            yield rows_and_answers[0], iter(rows_and_answers[1])
            return
        with begin(*given) as (points, answers):
            rows_and_answers.extend([points, list(answers)])
            yield rows_and_answers[0], iter(rows_and_answers[1])

    monkeypatch.setattr(command, "check", once)
    said = cerebro("check", "check.yaml")
    assert said.code == 1, said.err
    assert "kind=counting lr=0.001: units do not equal one ordinary fit: weight" in said.out
    assert "kind=wrong lr=0.001: cannot be trained: RuntimeError" in said.out
    assert "3 of 6 configs checked" in said.out
    assert "config 1 of 3 (kind=plain lr=0.01)" in said.err
    assert "in turns in one process" not in said.err, "one alone is exact"
    assert not (project / "runs").exists()
    printed = cerebro("check", "check.yaml", "--json").out
    assert_shape("check", printed)
    answer = json.loads(printed)
    outcomes = {checked["hparams"]["kind"]: checked["exactness"]["outcome"] for checked in answer["checked"]}
    assert outcomes == {"plain": "equal", "counting": "differs", "wrong": "failed"}
    assert answer["configs"] == 6
    assert answer["wrong"] is None, "some can be trained"
    rows_and_answers[1] = rows_and_answers[1][:1]
    assert cerebro("check", "check.yaml").code == 0
