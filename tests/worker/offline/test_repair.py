"""Checkpoints damaged at rest, in any way: the same bytes are back in their place, or there is a story."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cerebro_elastic.core.history.progress import next_units, position, skipped
from cerebro_elastic.core.model.attempts import Attempt, Prefetch, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.core.model.units import CheckpointRef, Phase
from cerebro_elastic.errors import CheckpointError, DamagedCheckpoint, StorageError
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.system import files
from cerebro_elastic.system.files import exists, locate, read, write
from cerebro_elastic.system.logs import EventLog
from cerebro_elastic.training.unit_runner import UnitRunner
from cerebro_elastic.worker.offline.repair import CheckpointRepair
from cerebro_elastic.worker.state_fetcher import StateFetcher
from support.ledger import Ledger
from support.memory_store import MemoryStore
from support.prepared import prepare
from support.proxy import Bad, BadProxy
from support.same import assert_same

pytestmark = pytest.mark.usefixtures("s3")

MODEL = """
import functools

from torch import nn


@functools.cache
def scale():
    return [1.0]


class Scaled(nn.Module):
    def forward(self, x):
        return x * scale()[0]


def model(lr):
    return nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), Scaled(), nn.Linear(8, 2))
"""

RECIPE = {
    "epochs": 3,
    "task": {"kind": "torch", "model_fn": "a_model:model", "optimizer": "AdamW", "loss": "cross_entropy"},
    "data": {"batch_size": 3},
    "search": {"space": {"lr": [0.1]}},
    "objective": {"metric": "train_loss", "mode": "min"},
}


def rows() -> dict[str, Any]:
    x = torch.randn(22, 2, generator=torch.Generator().manual_seed(0)).numpy()
    return {"x": x, "y": (x[:, 0] > 0).astype("int64")}


class Lineage:
    """A config of a run, its visits, and what repairs its checkpoints."""

    def __init__(self, folder: Path, storage: str) -> None:
        (folder / "a_model.py").write_text(MODEL)
        data = str(folder / "data")
        manifest = prepare(rows, data, partitions=2, seed=1)
        recipe = load_recipe({**RECIPE, "data": {"batch_size": 3, "url": data}}, root=folder)  # type: ignore[dict-item]
        self.plan = Plan("r", 2, 3)
        paths = (data, manifest.digest, str(folder), {}, storage)
        spec = Spec(self.plan, recipe.resolved(), recipe.digest, *paths, "v")
        store = MemoryStore()
        self.ledger = Ledger(store, "r")
        self.ledger.open_run(spec)
        leader = self.ledger.lead("me", store.grant(99))
        assert leader is not None
        self.leader = leader
        self.node = self.ledger.register(Node("n", "host"), store.grant(99))
        leader.create_config(Config("c", {"lr": 0.1}))
        self.storage = storage
        self.unit_runner = UnitRunner(spec, folder / "cache", "cpu")
        self.beats = 0
        repairs = CheckpointRepair(self.ledger, spec, self.unit_runner, EventLog(), self.beat)
        self.state_fetcher = StateFetcher(
            lambda partition, beat, room: self.unit_runner.fetch(Phase.TRAIN, partition, beat, room),
            repairs.repair,
        )

    def beat(self) -> None:
        self.beats += 1

    def go_on(self, batches: int | None = None) -> CheckpointRef:
        """One more visit, up to ``batches`` of its partition."""
        config = self.ledger.config("c")
        assert config is not None
        unit = next_units(config, self.plan)[0]
        registered = (self.node.registration, config.revision)
        attempt = Attempt(unit, "n", *registered, config.head, skip=skipped(config))
        token = self.leader.assign(attempt)
        assert token is not None
        state = checkpoint.load(config.head) if config.head else None
        job = self.unit_runner.job(config, unit, state, stop=lambda done: done == batches)
        result = self.unit_runner.perform(job)
        place = position(config)
        output = checkpoint.save(result.state, f"{self.storage}/checkpoints/c/{unit.epoch}-{place}")
        visit = Visit(
            *(unit, place, "n", token, config.head, output, result.samples, result.batches, 1.0, 0.0, 0.0),
            skip=job.skip,
            whole=result.whole,
        )
        assert result.whole == (batches is None)
        assert self.ledger.commit(replace(attempt, token=token), config, visit, self.plan)
        return output


@pytest.fixture
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "s3://bucket/run" if getattr(request, "param", "local") == "s3" else str(tmp_path / "run")


@pytest.fixture
def lineage(tmp_path: Path, storage: str, imports_as_found: None) -> Iterator[Lineage]:  # noqa: ARG001
    lineage = Lineage(tmp_path, storage)
    yield lineage
    lineage.state_fetcher.close()


def change(ref: CheckpointRef, name: str, how: Callable[[bytes], bytes]) -> None:
    place = locate(ref.url) / name
    write(place, [how(read(place))])


DAMAGES: dict[str, Callable[[CheckpointRef], None]] = {
    "gone": lambda ref: files.remove(locate(ref.url)),
    "no manifest": lambda ref: files.remove(locate(ref.url) / "manifest.json"),
    "tensors cut short": lambda ref: change(ref, "tensors.safetensors", lambda data: data[:-9]),
    "a bit of the tree": lambda ref: change(ref, "tree.json", lambda data: data[:-1] + bytes([data[-1] ^ 1])),
}


@pytest.mark.parametrize(
    ("storage", "damage"),
    [*(("local", damage) for damage in DAMAGES), ("s3", "gone"), ("s3", "tensors cut short")],
    indirect=["storage"],
)
def test_any_damage_is_repaired_in_place_with_a_warning(
    lineage: Lineage, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    lineage.go_on()
    ref = lineage.go_on()
    whole = checkpoint.load(ref)
    DAMAGES[damage](ref)
    with caplog.at_level(logging.WARNING, "cerebro"):
        assert_same(lineage.state_fetcher.load(ref), whole)
    checkpoint.verify(ref)
    assert "repaired a damaged checkpoint" in caplog.text
    assert lineage.beats >= 4


class TestWaysBack:
    def test_a_first_visit_is_done_again_from_nothing(self, lineage: Lineage) -> None:
        ref = lineage.go_on()
        DAMAGES["gone"](ref)
        (Path(lineage.storage) / "checkpoints" / "others").mkdir(parents=True)
        lineage.state_fetcher.load(ref)
        checkpoint.verify(ref)

    def test_partial_visits_are_done_again_to_the_same_batch(self, lineage: Lineage) -> None:
        """Three in one partition: one from its beginning, one in the middle, and its rest."""
        for batches in (1, 3, None):
            ref = lineage.go_on(batches)
            whole = checkpoint.load(ref)
            DAMAGES["no manifest"](ref)
            assert_same(lineage.state_fetcher.load(ref), whole)

    def test_a_repair_goes_back_to_a_readable_checkpoint(self, lineage: Lineage) -> None:
        refs = [lineage.go_on(batches) for batches in (None, 2, None, None)]
        whole = checkpoint.load(refs[-1])
        for ref in refs[1:]:
            DAMAGES["gone"](ref)
        lineage.beats = 0
        assert_same(lineage.state_fetcher.load(refs[-1]), whole)
        assert lineage.beats < 3 * 4 + 3, "the first visit was done again"
        for ref in refs:
            checkpoint.verify(ref)

    def test_another_result_is_not_put_in_its_place(self, lineage: Lineage) -> None:
        lineage.go_on()
        ref = lineage.go_on()
        DAMAGES["tensors cut short"](ref)
        sys.modules["a_model"].scale()[0] = 2.0
        with pytest.raises(CheckpointError) as caught:
            lineage.state_fetcher.load(ref)
        assert not isinstance(caught.value, DamagedCheckpoint)
        for part in ("cut short", "doing epoch 0, partition 1 of c again did not help", ref.digest):
            assert part in str(caught.value)
        with pytest.raises(DamagedCheckpoint, match="cut short"):
            checkpoint.verify(ref)

    def test_a_disk_that_is_not_mounted_is_no_damage(self, lineage: Lineage) -> None:
        lineage.go_on()
        ref = lineage.go_on()
        Path(lineage.storage, "checkpoints").rename(Path(lineage.storage, "elsewhere"))
        with pytest.raises(StorageError, match="look whether its disk is mounted"):
            lineage.state_fetcher.load(ref)
        assert not exists(locate(ref.url))

    def test_a_checkpoint_that_nobody_wrote_has_a_story(self, lineage: Lineage) -> None:
        lineage.go_on()
        with pytest.raises(CheckpointError, match="no visit is recorded that wrote it"):
            lineage.state_fetcher.load(CheckpointRef(f"{lineage.storage}/checkpoints/c/nine", "0", 1))


@pytest.mark.parametrize("storage", ["s3"], indirect=True)
def test_a_storage_out_of_reach_repairs_nothing(
    lineage: Lineage, s3: BadProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cerebro_elastic.system.files.place.PATIENCE", 0.0)
    lineage.go_on()
    ref = lineage.go_on()
    s3.first(99, Bad.SLOW_DOWN)
    lineage.state_fetcher.prefetch(Prefetch(0, ref))
    with pytest.raises(StorageError, match="cannot be reached"):
        lineage.state_fetcher.load(ref)
    assert lineage.beats == 0
