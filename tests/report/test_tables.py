"""What people see: curves in few characters, tables that fit the terminal."""

from __future__ import annotations

import math

import pytest
from rich.console import Console

from cerebro_elastic.core.state import State
from cerebro_elastic.core.values import Attempt, Config, Node, Plan, Status, Unit
from cerebro_elastic.report.results import ConfigResult
from cerebro_elastic.report.tables import leaderboard_table, progress_view, sparkline, summary_line


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([], ""),
        ([math.nan], ""),
        ([3.0], "▁"),
        ([1.0, 1.0], "▁▁"),
        ([0.0, 1.0, 0.5], "▁█▅"),
        ([0.0, math.nan, 1.0], "▁ █"),
        ([0.0, math.inf, 7.0], "▁ █"),
        (list(range(8)), "▁▂▃▄▅▆▇█"),
        (list(range(24)), sparkline(list(range(12)))),
        ([0.0] * 500 + [1.0] * 500, "▁▁▁▁▁▁██████"),
    ],
)
def test_a_curve_in_few_characters(values: list[float], told: str) -> None:
    assert sparkline(values) == told


def drawn(view: object, width: int = 80) -> list[str]:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(view)
    return capture.get().splitlines()


def result(place: int, curve: list[float]) -> ConfigResult:
    return ConfigResult(
        config=f"c{place:04d}",
        hparams={"batch_size": 32, "dropout": 0.2090861234, "weight_decay": 0.00226719, "width": 16},
        status=Status.FINISHED,
        reason="",
        curve=[{"val_accuracy": value} for value in curve],
        visits=[],
        best_epoch=0,
        best=curve[0],
    )


def test_the_leaderboard_fits_eighty_columns_and_cuts_no_name() -> None:
    lines = drawn(leaderboard_table([result(i, [0.5 + i, *range(300)]) for i in range(30)], "val_accuracy"))
    assert all(len(line) <= 80 for line in lines)
    text = "\n".join(lines)
    assert "the best 20 of 30 configs" in text
    assert "c0019" in text
    assert "c0020" not in text
    for whole in ("val_accuracy", "finished", "weight_decay=0.002267", "dropout=0.2091", "1/301"):
        assert whole in text


PLAN = Plan(run="r", partitions=4, epochs=10)


def state(configs: int, nodes: int) -> State:
    """``configs`` configs, of which the last are in training on ``nodes`` nodes."""
    made = {
        f"c{i:04d}": Config(f"c{i:04d}", {"lr": 0.1, "a_long_name_of_a_parameter": 123456, "another": i})
        for i in range(configs)
    }
    return State(
        plan=PLAN,
        configs=made,
        nodes={f"node-{i}": Node(f"node-{i}", "here") for i in range(nodes)},
        homes={j: f"node-{j % nodes}" for j in range(4)},
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
    shown = drawn(progress_view(state(configs, nodes), "val_accuracy", 61.0, lines))
    assert len(shown) <= lines
    assert all(len(line) <= 80 for line in shown)
    assert "1:01 gone" in shown[-1]
    assert any(line.startswith(f"c{configs - nodes:04d}") for line in shown), "those in training are shown"


def test_without_a_limit_everything_is_shown() -> None:
    shown = drawn(progress_view(state(50, 2), "val_accuracy", None))
    assert sum(line.startswith("c0") for line in shown) == 50


def test_time_to_go_is_told_once_a_unit_was_timed() -> None:
    known = state(4, 2)
    assert summary_line(known, 3.0) == "0/160 units, 2 nodes, 0:03 gone, about 0:40 to go"
    unknown = State(plan=PLAN, configs=known.configs, nodes=known.nodes)
    assert summary_line(unknown, 3.0) == "0/160 units, 2 nodes, 0:03 gone"
