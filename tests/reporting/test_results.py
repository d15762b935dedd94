"""Results as tables for other tools."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import RunOpened, StateRead
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.core.model.state import State
from cerebro_elastic.reporting.page.board import Board
from cerebro_elastic.reporting.page.run_page import RunPage
from cerebro_elastic.reporting.results import (
    ConfigResult,
    leaderboard_text,
    records,
    write_curves,
)


def row(config: str, curve: list[dict[str, float]], behind: int = 0, **hparams: Any) -> ConfigResult:
    return ConfigResult(config, hparams, Status.FINISHED, "", curve, (), behind=behind)


ROWS = [
    row("c0001", [{"loss": 0.5}, {"loss": 0.25, "lr": 0.01}], lr=0.1),
    row("c0000", [{"loss": 1.0}], behind=2, lr=0.2, width=8),
]


def test_pandas_takes_them_as_they_are() -> None:
    table = pd.DataFrame(records(ROWS))
    assert list(table.columns) == ["config", "epoch", "lr", "width", "loss", "metric.lr"]
    assert list(table["epoch"]) == [3, 1, 2], "a clone's epochs go on from its parent's"
    assert table.groupby("config")["loss"].min().to_dict() == {"c0000": 1.0, "c0001": 0.25}
    assert table["metric.lr"].isna().sum() == 2
    (odd,) = records(
        [replace(ROWS[1], hparams={"config": "deep", "epoch": 7}, curve=[{"epoch": 0.5}], behind=0)]
    )
    assert odd == {
        "config": "c0000",
        "epoch": 1,
        "hparam.config": "deep",
        "hparam.epoch": 7,
        "metric.epoch": 0.5,
    }


def test_the_file_is_the_same_table(tmp_path: Path) -> None:
    write_curves(ROWS, tmp_path / "a.csv")
    with (tmp_path / "a.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["config"], line["epoch"], line["loss"]) for line in lines] == [
        ("c0000", "3", "1.0"),
        ("c0001", "1", "0.5"),
        ("c0001", "2", "0.25"),
    ]
    write_curves([row("c0000", [], lr=1)], tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_text().strip() == "config,epoch,lr"


def test_the_progress_of_a_config_with_several_trainings_is_their_mean() -> None:
    plan = Plan("run", partitions=2, epochs=3, evaluations=1, repeats=2)
    members = {
        name: Config(name, {}, epoch=epoch, member_of="c0000")
        for name, epoch in (("c0000.s0", 2), ("c0000.s1", 1))
    }
    board = Board()
    page = RunPage(board, Spec(plan, {"objective": {}}, "", "", "", "", {}, "", ""))
    for event in (RunOpened(1, plan), StateRead(2, State(plan=plan, configs=members), ())):
        page.take(event)
    page.publish(live=False)
    shown = json.loads(board.since(0)[1])["configs"]
    assert {name: row["done"] for name, row in shown.items()} == {"c0000.s0": 6, "c0000.s1": 3, "c0000": 4}


def test_the_leaderboard_as_a_table() -> None:
    rows = [row("c0001", [{"loss": 0.5}], behind=2, best=7, lr=0.1), row("c0000", [], status="odd")]
    first, second = csv.DictReader(io.StringIO(leaderboard_text(rows, "loss"), newline=""))
    assert (first["place"], first["config"], first["epochs"]) == ("1", "c0001", "3")
    assert (first["best"], first["hparam.best"], first["lr"]) == ("", "7", "0.1")
    assert (second["status"], second["hparam.status"], second["epochs"]) == ("finished", "odd", "0")
    assert leaderboard_text([], "loss").strip() == ""
