"""A run over shards: its visits are those of a run over the prepared dataset with the same partitions."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from recorded_run import record

from cerebro_elastic import RunResult
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.runs.results.record_checks import check_shards
from cerebro_elastic.runs.results.replay import replay
from cerebro_elastic.runs.results.verify import verify
from cerebro_elastic.runs.start.prepare_run import write_spec
from support.sharded import SIZES, Rows, opened, prepared_twin, write_parquet


def rows(shard: int) -> Rows:
    x = np.random.default_rng(shard).normal(size=(SIZES[shard], 2)).astype(np.float32)
    return {"x": x, "y": (x[:, 0] > 0).astype(np.int64)}


@pytest.mark.usefixtures("imports_as_found")
def test_a_run_over_shards_is_that_over_prepared_data(tmp_path: Path) -> None:
    shards = write_parquet(str(tmp_path / "shards"), rows)
    url, manifest = opened(shards, str(tmp_path / "opened"), partitions=2, valid=0.2)
    shutil.copytree(url, tmp_path / "data")
    run = record(tmp_path)
    notes: list[str] = []
    assert verify(run, say=notes.append) == []
    assert all(again.same for again in replay(run))

    twin = prepared_twin(manifest, str(tmp_path / "prepared"))
    spec = run.spec
    write_spec(run.folder, replace(spec, data=str(tmp_path / "prepared"), data_digest=twin.digest))
    assert all(again.same for again in replay(RunResult(run.folder)))
    write_spec(run.folder, spec)

    shutil.rmtree(tmp_path / "data" / "made")
    taken_over = RunView(run.events)
    taken_over.log = [replace(visit, reused="another") for visit in taken_over.log]
    assert list(check_shards(spec, manifest, taken_over)) == []  # such a run has read no shard itself
    (tmp_path / "shards" / "000.parquet").touch()
    assert "says what its shards held" in str(verify(run, say=notes.append))
    assert any("000.parquet has changed" in note for note in notes)
