"""``cerebro check``, as users type it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cerebro_elastic.cli import check as command

Cerebro = Callable[..., Any]

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


def test_what_hops_exactly_and_what_does_not_for_people_and_machines(
    cerebro: Cerebro, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One check for both: what is printed are two views of it."""
    (project / "a_checked_net.py").write_text(MODEL)
    (project / "check.yaml").write_text(RECIPE)
    found: list[Any] = []
    begin = command.begin

    @contextmanager
    def once(*given: Any) -> Iterator[Any]:
        if found:
            yield found[0], iter(found[1])
            return
        with begin(*given) as (points, answers):
            found.extend([points, list(answers)])
            yield found[0], iter(found[1])

    monkeypatch.setattr(command, "begin", once)
    said = cerebro("check", "check.yaml")
    assert said.code == 1, said.err
    assert "kind=counting lr=0.01: units do not equal one ordinary fit: weight" in said.out
    assert "kind=wrong lr=0.01: cannot be trained: RuntimeError" in said.out
    assert "3 of 6 configs checked" in said.out
    assert not (project / "runs").exists()
    told = json.loads(cerebro("check", "check.yaml", "--json").out)
    outcomes = {each["hparams"]["kind"]: each["exactness"]["outcome"] for each in told["checked"]}
    assert outcomes == {"plain": "equal", "counting": "differs", "wrong": "failed"}
    assert told["configs"] == 6
    assert told["wrong"] is None, "some can be trained"
    found[1] = found[1][:1]
    assert cerebro("check", "check.yaml").code == 0
