"""What people see while a run goes on: in a terminal of any size, and in a plain log."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from cerebro_elastic.cli.output import state_json
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import Point, State
from cerebro_elastic.core.model.units import Strategy, Unit
from cerebro_elastic.recipes import Objective
from cerebro_elastic.reporting.progress import progress_view
from cerebro_elastic.runs.recorded import RunStatus
from cerebro_elastic.runs.terminal_view import TerminalView

ACCURACY = Objective(metric="val_accuracy", mode="max")


def drawn(view: object, width: int = 80) -> list[str]:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(view)
    return capture.get().splitlines()


PLAN = Plan(run="r", partitions=4, epochs=10)


def state(configs: int, nodes: int) -> State:
    """``configs`` configs, of which the last are in training on ``nodes`` nodes."""
    rows = {
        f"c{i:04d}": Config(f"c{i:04d}", {"lr": 0.1, "a_long_name_of_a_parameter": 123456, "another": i})
        for i in range(configs)
    }
    return State(
        plan=PLAN,
        configs=rows,
        nodes={f"node-{i}": Node(f"node-{i}", "here") for i in range(nodes)},
        homes={j: (f"node-{j % nodes}",) for j in range(4)},
        attempts={
            f"node-{i}": Attempt(
                Unit(f"c{configs - 1 - i:04d}", 0, i % 4), f"node-{i}", registration=1, config_revision=1
            )
            for i in range(nodes)
        },
        timings={"c0000": 0.5},
    )


@pytest.mark.parametrize(("configs", "nodes", "lines"), [(4, 2, 24), (500, 2, 24), (500, 40, 24), (9, 3, 12)])
def test_the_progress_fits_the_terminal(configs: int, nodes: int, lines: int) -> None:
    shown = drawn(progress_view(state(configs, nodes), ACCURACY, 61.0, lines, redrawn=True))
    assert len(shown) <= lines
    assert all(len(line) <= 80 for line in shown)
    assert "1:01 gone" in shown[-1]
    assert any(line.startswith(f"c{configs - nodes:04d}") for line in shown), "those in training are shown"


def curve(*values: float) -> tuple[Point, ...]:
    return tuple(Point(i, i, {"val_accuracy": value}, ends=True) for i, value in enumerate(values, start=1))


def test_the_best_so_far_is_shown_and_how_far_the_others_are() -> None:
    known = replace(
        state(3, 1),
        curves={
            "c0000": curve(0.5, 0.75, 0.7),
            "c0001": (*curve(0.5), Point(2, 1, {"val_accuracy": 0.9})),
            "c0002": curve(math.nan),
        },
    )
    shown = drawn(progress_view(known, ACCURACY, None), 120)
    assert shown[-1].endswith("best so far c0000: val_accuracy 0.75")
    gaps = {line.split()[0]: line for line in shown if line.startswith("c000")}
    assert " best " in gaps["c0000"]
    assert " 0.25 " in gaps["c0001"], "the middle of an epoch does not count"
    assert "best" not in gaps["c0002"]


def test_configs_waiting_for_a_gang_or_for_missing_nodes_are_shown() -> None:
    gang = replace(PLAN, strategies=(Strategy("ddp", 2, 2),), max_nodes=2)
    both = replace(state(3, 2), plan=gang, attempts={})
    shown = drawn(progress_view(both, ACCURACY, None), 120)
    assert all("waits for node-0 node-1" in line for line in shown if line.startswith("c0"))
    alone = replace(both, nodes={"node-0": both.nodes["node-0"]})
    shown = drawn(progress_view(alone, ACCURACY, None, 24), 120)
    assert any(
        "3 configs wait for nodes: ddp x2 over 2 nodes takes 2 nodes of one kind" in li for li in shown
    )
    wait = state_json("r", RunStatus("running", alone), ACCURACY)["waits"]["c0001"]
    assert wait.lacks is not None
    assert wait.lacks.endswith("there are: 1 cpu of 1 rank")

    file = io.StringIO()
    with TerminalView(ACCURACY, Console(file=file, width=100)) as view:
        for now in (both, alone, alone, both, alone):
            view.watcher.show([], now)
    assert file.getvalue().count("3 configs wait for nodes: ") == 2, "when it changes"


def played(past: Any, *, terminal: bool, verbose: bool = False) -> str:
    """What a view writes while it sees the history."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=100, height=30, color_system=None)
    so_far = State()
    with TerminalView(Objective(metric="val_acc", mode="max"), console, verbose=verbose) as view:
        for event in list(past.events):
            so_far = past.after(so_far, event)
            view.watcher.show([event], so_far)
    return file.getvalue()


def test_a_plain_log_has_lines_alone(past: Any) -> None:
    text = played(past, terminal=False, verbose=True)
    assert "\x1b" not in text
    lines = text.splitlines()
    assert "node-1 left" in lines
    assert [line for line in lines if line.startswith("first unit: ")] == [
        "first unit: c0000 epoch 1 partition 0 on node-0"
    ]
    assert "c0003 failed: the loss is NaN" in lines
    marks = [mark.text for _, mark in RunView(past.events).spans.marks]
    assert set(marks) <= set(lines), "the pages have the same sentences"
    assert any(line.startswith("c0001 epoch 1/2 val_acc=0.9 loss=0.2 (6/16 units") for line in lines)
    assert len(lines) < len(past.events)


def test_a_terminal_has_a_table_that_moves(past: Any) -> None:
    text = played(past, terminal=True)
    assert "\x1b" in text
    assert "state from" in text
    assert "epoch 1/2 val_acc" not in text, "the table shows it"
    assert "c0003 failed: the loss is NaN" in text
