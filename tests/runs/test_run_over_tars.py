"""A run over tar archives on S3 that no index counts: nodes count them while they fetch them."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

import cerebro_elastic
from cerebro_elastic.data.manifest import read_manifest
from cerebro_elastic.runs.results.replay import replay
from cerebro_elastic.runs.results.verify import verify
from cerebro_elastic.system.files import locate, write
from support.proxy import BadProxy

SHARDS, VALUES = 192, 4096

FUNCTIONS = """
import numpy as np
from torch import nn


def model():
    return nn.Linear(4096, 2)


def opened(value):
    return np.frombuffer(value, np.float32)
"""


def archive(number: int) -> bytes:
    """Ten to twenty rows of 16 kB."""
    rng, file = np.random.default_rng(number), io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for row in range(10 + number % 11):
            value = rng.normal(size=VALUES).astype(np.float32).tobytes()
            for name, content in (("bin", value), ("cls", b"%d" % (row % 2))):
                member = tarfile.TarInfo(f"{row:04d}.{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


@pytest.mark.usefixtures("imports_as_found")
def test_each_byte_is_served_once_for_all_configs_and_epochs(s3: BadProxy, tmp_path: Path) -> None:
    total = sum(write(locate(f"s3://bucket/t/{n:03d}.tar"), [archive(n)]).bytes for n in range(SHARDS))
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    s3.reset()
    result = cerebro_elastic.run(
        {
            "epochs": 2,
            "nodes": 2,
            "check": "off",
            "task": {
                "kind": "torch",
                "model_fn": "functions:model",
                "loss": "cross_entropy",
                "optimizer": "SGD",
            },
            "data": {
                "shards": "s3://bucket/t/*.tar",
                "columns": ["bin", "cls"],
                "decode": {"bin": "functions:opened"},
                "partitions": 4,
                "valid": 0,
            },
            "search": {"space": {"lr": [0.1 / 2**n for n in range(4)]}},
            "objective": {"metric": "train_loss", "mode": "min"},
        },
        root=tmp_path,
        home=tmp_path / "runs",
    )
    assert sum(s3.served.values()) <= 1.02 * total
    manifest = read_manifest(result.spec.data)
    assert (manifest.digest, manifest.estimated) == (result.spec.data_digest, False)
    assert sum(manifest.rows) == sum(10 + number % 11 for number in range(SHARDS))
    assert {
        visit.unit.partition: visit.samples for row in result.leaderboard for visit in row.visits
    } == dict(enumerate(manifest.rows))
    assert verify(result) == []
    assert all(again.same for again in replay(result, result.best.config))
