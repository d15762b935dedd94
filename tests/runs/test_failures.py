"""The result of a run whose configs failed, some or all."""

from __future__ import annotations

from pathlib import Path

import pytest

from cerebro_elastic import Run, RunFailed, RunResult
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import ConfigCreated, ConfigEnded, Event, RunEnded, RunOpened
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.start.prepare_run import write_spec
from support.histories import write_history

STORY = "TypeError: no such layer\n  my_net.py:7 in step: self.layer(x)\n  raised at torch/nn.py:1 in forward"
SHOWN = "my_net.py:7 in step: self.layer(x)\nTypeError: no such layer"


def result_of(folder: Path, reasons: list[str | None]) -> RunResult:
    """The result of a run with a config for each reason to fail; ``None``: it was stopped by hand."""
    recipe = load_recipe(
        {
            "task": {"kind": "torch", "model_fn": "m:f", "loss": "mse_loss", "optimizer": "SGD"},
            "data": {"url": "d"},
            "search": {"space": {"lr": [1]}},
        }
    )
    plan = Plan("failed", 2, 1)
    (folder / "failed").mkdir()
    run = RunFolder(folder / "failed")
    write_spec(run, Spec(plan, recipe.resolved(), "", "", "", str(folder), {}, "", "0"))
    names = [f"c{i:04d}" for i in range(len(reasons))]
    events: list[Event] = [RunOpened(1, plan), *(ConfigCreated(2, Config(name, {"lr": 1})) for name in names)]
    for name, reason in zip(names, reasons, strict=True):
        status = Status.STOPPED if reason is None else Status.FAILED
        events.append(ConfigEnded(len(events) + 2, name, status, reason or "by hand"))
    write_history(run.history, [*events, RunEnded(len(events) + 2, "finished")])
    return RunResult(run)


def test_if_all_configs_failed_the_cause_is_raised_and_the_result_reachable(tmp_path: Path) -> None:
    result = result_of(tmp_path, [STORY, STORY, "out of memory"])
    assert result.failures == {"c0000": SHOWN, "c0001": SHOWN, "c0002": "out of memory"}
    assert repr(result) == "<RunResult 'failed': 3 configs, 3 failed>"
    with pytest.raises(RunFailed) as raised:
        Run.open("failed", home=tmp_path).wait()
    assert str(raised.value).startswith(f"{SHOWN}\nall 3 configs of run 'failed' failed, for 2 reasons")
    assert raised.value.result.failures == result.failures
    with pytest.raises(RunFailed, match="fresh=True"):
        result.best  # noqa: B018
