"""Requirements that a machine must meet before it joins a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.errors import DataError
from cerebro_elastic.runs.start.join import _check_data
from support.prepared import prepare


def rows() -> dict[str, np.ndarray]:
    return {"x": np.arange(24, dtype=np.float32)}


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    digest = prepare(rows, str(tmp_path / "data"), partitions=2, seed=1).digest
    return Spec(Plan("r", 2, 1), {}, "", str(tmp_path / "data"), digest, "", {}, str(tmp_path), "v")


def test_another_dataset_at_the_same_path_is_refused(spec: Spec) -> None:
    with pytest.raises(DataError, match=r"have digest .*, the run began with another"):
        _check_data(replace(spec, data_digest="another"))


def test_a_dataset_that_lacks_a_file_is_refused(spec: Spec) -> None:
    file = next(Path(spec.data).rglob("*.npy"))
    file.unlink()
    with pytest.raises(DataError, match=file.name):
        _check_data(spec)
