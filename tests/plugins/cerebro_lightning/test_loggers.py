"""Loggers that a recipe can name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cerebro_elastic.errors import TaskError
from cerebro_elastic.reporting.logged import Logged
from cerebro_lightning.loggers import LightningLoggers


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("CSVLoger", "did you mean 'CSVLogger'"),
        ("no_such_module:Logger", "no module 'no_such_module'"),
    ],
)
def test_an_unknown_logger_is_reported_at_once(spec: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=message):
        LightningLoggers([spec], "r", tmp_path, tmp_path)


def test_an_object_that_is_no_logger_is_reported(tmp_path: Path) -> None:
    loggers = LightningLoggers(["pathlib:PurePath"], "r", tmp_path, tmp_path)
    with pytest.raises(TaskError, match="expected a Lightning Logger"):
        loggers.write(Logged("c0000", {}, [], 0.0, 1.0))
