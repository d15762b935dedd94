"""What people see: curves in few characters, tables that fit the terminal."""

from __future__ import annotations

import math

import pytest
from rich.console import Console

from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.reporting.results import ConfigResult
from cerebro_elastic.reporting.tables import leaderboard_table, sparkline


@pytest.mark.parametrize(
    ("values", "characters"),
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
def test_a_curve_in_few_characters(values: list[float], characters: str) -> None:
    assert sparkline(values) == characters


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
        best_place=0,
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
