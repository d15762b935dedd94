"""What killed or refused attempts have left goes, and old checkpoints; what is needed stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from scene import Scene

from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.store.client.base import Snapshot
from cerebro_elastic.worker.checkpoint_collector import CheckpointCollector


def stray(scene: Scene, name: str) -> Path:
    """A checkpoint without manifest, as of a rank that was killed while it saved."""
    folder = scene.checkpoints / name
    folder.mkdir(parents=True)
    (folder / "tensors.safetensors.0123.tmp").write_bytes(b"half")
    return folder


def stray_log(scene: Scene, name: str) -> Path:
    file = scene.checkpoints.parent.parent / "logs" / "c" / f"{name}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{}")
    return file


def test_remains_of_a_killed_attempt_go_with_the_next_commit(scene: Scene) -> None:
    left = [stray(scene, "00000-00000-1"), stray_log(scene, "00000-00000-1")]
    others = [stray(scene, "00000-00001-9"), stray(scene, "00001-00000-9"), stray_log(scene, "00000-00001-9")]
    scene.perform()
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in others), "an attempt that is ahead may be under way"
    (visit,) = scene.ledger.visits()
    checkpoint.verify(visit.output)
    assert visit.log is not None
    assert Path(visit.log).exists()
    scene.perform()
    assert [path.exists() for path in others] == [False, True, False]


def test_a_refused_attempt_takes_its_checkpoint_and_log_with_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.perform()
    before = sorted(scene.checkpoints.parent.parent.rglob("*"))
    commit = scene.ledger.commit

    def too_late(*args):  # type: ignore[no-untyped-def]
        scene.register()
        return commit(*args)

    monkeypatch.setattr(scene.ledger, "commit", too_late)
    scene.perform()
    after = [path for path in sorted(scene.checkpoints.parent.parent.rglob("*")) if "cache" not in path.parts]
    assert after == [path for path in before if "cache" not in path.parts]


def visits_read(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many visits each further request for visits reads."""
    read, visits = scene.store.range, list[int]()

    def counting(prefix: str) -> Snapshot:
        snapshot = read(prefix)
        if "/visits/" in prefix:
            visits.append(len(snapshot.items))
        return snapshot

    monkeypatch.setattr(scene.store, "range", counting)
    return visits


def test_a_rank_does_not_read_its_own_visits(
    make_scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads what other ranks have committed: here nothing."""
    scene = make_scene(epochs=8)
    visits = visits_read(scene, monkeypatch)
    units = 0
    while scene.config.status is Status.LIVE:
        scene.perform()
        units += 1
    assert units == 16
    assert not visits


def test_a_rank_that_is_behind_reads_others_visits_once(
    make_scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cleans up behind visits when later ones are committed already."""
    scene = make_scene(epochs=8)
    for _ in range(4):
        scene.perform()
    context, visits = scene.attempts.context, scene.ledger.visits()
    other = CheckpointCollector(
        scene.ledger,
        str(scene.checkpoints.parent.parent),
        context.spec.plan,
        context.unit_runner.recipe,
        context.log,
    )
    requests = visits_read(scene, monkeypatch)
    for visit in visits[1:]:
        other.committed(visit, scene.config)
    assert len(requests) == 1
    for visit in visits[-2:]:
        checkpoint.verify(visit.output)


def test_a_store_that_was_set_back_costs_no_checkpoint(make_scene: Callable[..., Scene]) -> None:
    """etcd was restored from a snapshot: visits that this rank remembers did not happen, others did."""
    scene, restored = make_scene("one"), make_scene("other")
    for _ in range(3):
        scene.perform()
    for _ in range(2):
        restored.perform()
    collector, storage = scene.attempts.context.collector, restored.checkpoints.parent.parent
    collector._record, collector._storage = restored.ledger, str(storage)
    visits = restored.ledger.visits()
    collector.committed(visits[-1], restored.config)
    for visit in visits:
        checkpoint.verify(visit.output)
