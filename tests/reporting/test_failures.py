"""Why configs failed, for people."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from cerebro_elastic.core.model.attempts import Failure, FailureKind
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import ConfigEnded, UnitFailed
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.reporting.tables import failure_texts
from cerebro_elastic.runs.terminal_view import TerminalView

STORY = "TypeError: no such layer\n  my_net.py:7 in step: self.layer(x)\n  raised at torch/nn.py:1 in forward"


def failed(config: str, node: str, token: int) -> UnitFailed:
    return UnitFailed(token, Failure(Unit(config, 0, 2), node, token, FailureKind.EXCEPTION, STORY))


def ended(config: str, reason: str, *failures: Failure) -> Config:
    return Config(config, {}, Status.FAILED, reason=reason, failures=failures)


def test_each_reason_is_listed_once(tmp_path: Path) -> None:
    (tmp_path / "node-1.log").touch()
    names = [f"c{i:04d}" for i in range(7)]
    why = f"epoch 0 failed alike on node-0, node-1: exception: {STORY}"
    configs = [
        ended(name, why, *(failed(name, node, i).failure for node in ("node-0", "node-1")))
        for i, name in enumerate(names)
    ]
    texts = list(failure_texts([*configs, ended("c0007", "no strategy is feasible")], tmp_path))
    assert texts == [
        "c0000, c0001, c0002, c0003, c0004 and 2 others failed: my_net.py:7 in step: self.layer(x)\n"
        f"TypeError: no such layer\n  all of it: {tmp_path}/node-1.log",
        "c0007 failed: no strategy is feasible",
    ]


def test_a_live_view_shows_a_failure_once_in_a_line() -> None:
    file = io.StringIO()
    line = "TypeError: no such layer my_net.py:7 in step: self.layer(x)"
    why = "epoch 0 failed alike on node-0, node-1: exception: "
    end = ConfigEnded(4, "c0000", Status.FAILED, why + STORY)
    with TerminalView(None, Console(file=file, width=60)) as view:
        for event in (failed("c0000", "node-0", 2), failed("c0001", "node-1", 3), end):
            view.watcher.show([event], State())
    assert file.getvalue().splitlines() == [
        f"c0000 epoch 1 partition 2 failed on node-0: {line}",
        "c0001 epoch 1 partition 2 failed on node-1: the same as c0000 epoch 1 partition 2",
        f"c0000 failed: {why}the same as c0000 epoch 1 partition 2",
    ]
