"""Data damaged in the middle of a run: whatever happens to a cached file, and whenever, what is committed is
what a quiet run commits."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
import pytest
from scene import Scene, rows

from cerebro_elastic.core.history.progress import next_units
from cerebro_elastic.core.model.attempts import FailureKind
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.units import Phase, Unit
from cerebro_elastic.data.manifest import read_manifest
from cerebro_elastic.data.ragged import Columns
from cerebro_elastic.data.reading import batches
from cerebro_elastic.data.reading.partition import Partition
from support.prepared import prepare

ELSEWHERE = "memory://damaged/data"
BATCHES = 4
"""Of a unit."""


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    fsspec.filesystem("memory").store.clear()


@dataclass
class Faults:
    """What happens in a unit when so many of its batches have been copied out of their files, or (negative)
    right before that batch is."""

    acts: dict[int, Callable[[], object]] = field(default_factory=dict)
    copied: int = 0

    def reach(self, at: int) -> None:
        self.acts.pop(at, lambda: None)()


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    faults, copy, check = Faults(), batches.equal_rows, Partition.check_rows

    def copying(partition: Partition, name: str, index: Any) -> Any:
        if partition.columns[name].ndim > 1:  # type: ignore[union-attr]  # the first one of a batch
            faults.copied += 1
            faults.reach(-faults.copied)
        return copy(partition, name, index)

    def checking(partition: Partition, name: str, *copied: Any) -> None:
        if partition.columns[name].ndim == 1:  # type: ignore[union-attr]  # the last one
            faults.reach(faults.copied)
        check(partition, name, *copied)

    monkeypatch.setattr(batches, "equal_rows", copying)
    monkeypatch.setattr(Partition, "check_rows", checking)
    return faults


def following(scene: Scene) -> Unit:
    """The unit that is next."""
    return next_units(scene.config, scene.plan)[0]


def perform(scene: Scene) -> None:
    scene.attempts.perform(scene.assign(following(scene).phase))


def finished(scene: Scene) -> list[str]:
    """The digests of all that is committed until the config has finished."""
    for _ in range(20):
        if scene.config.status is Status.LIVE:
            perform(scene)
    assert scene.config.status is Status.FINISHED, scene.config.failures
    return [visit.output.digest for visit in scene.ledger.visits()]


_quiet: list[str] = []


@pytest.fixture
def quiet(make_scene: Callable[..., Scene]) -> list[str]:
    """What a run commits whose data nobody damages."""
    if not _quiet:
        _quiet.extend(finished(make_scene("quiet", batch_size=2)))
    return _quiet


def cached(scene: Scene, name: str = "train-00000/000.npy") -> Path:
    return scene.unit_runner.cache.root / scene.spec.data_digest / name


def flip(path: Path, at: int = -5) -> None:
    """A bit of the file, in place."""
    with path.open("r+b") as file:
        file.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 16]))


def exchange_rows(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-16] + data[-8:] + data[-16:-8])


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "flip": flip,
    "flip in the sums": lambda path: flip(path.with_name("000.sums")),
    "rows exchanged": exchange_rows,
    "cut short": cut_short,
    "deleted": lambda path: path.unlink(missing_ok=True),
    "folder deleted": lambda path: shutil.rmtree(path.parent, ignore_errors=True),
}
HARMLESS = {"deleted", "folder deleted"}
"""What is read is still right, or the file is seen not to be there before anything is read."""


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_unit_trained_on_damaged_data_is_repeated_on_repaired_data(
    make_scene: Callable[..., Scene], faults: Faults, quiet: list[str], damage: str
) -> None:
    """After the first batch of a unit, the last but one, or the last, when nothing more is read; right before
    the third, when the partition has been looked at; and between two units."""
    scene = make_scene("damaged", batch_size=2, data=ELSEWHERE)
    moments = [1, -3, BATCHES - 1, BATCHES, 0]
    scene.perform()
    while scene.config.status is Status.LIVE:
        faults.copied = 0
        if moments:
            partition = f"train-{following(scene).partition:05d}/000.npy"
            faults.acts[moments.pop(0)] = lambda name=partition: DAMAGE[damage](cached(scene, name))
            faults.reach(0)
        scene.perform()
    assert not moments
    assert not faults.acts, "all has happened"
    assert [visit.output.digest for visit in scene.ledger.visits()] == quiet
    failures = scene.config.failures
    assert {failure.kind for failure in failures} == (
        set() if damage in HARMLESS else {FailureKind.DAMAGED_DATA}
    )
    for failure in failures:
        assert f"partition {failure.unit.partition} of memory://damaged/data: the file" in failure.story
        assert "row" in failure.story or "bytes" in failure.story


def test_damage_that_is_gone_before_the_units_end_is_found_too(
    make_scene: Callable[..., Scene], faults: Faults, quiet: list[str]
) -> None:
    scene = make_scene("damaged", batch_size=2, data=ELSEWHERE)
    faults.acts = {-2: lambda: exchange_all(cached(scene)), 2: lambda: exchange_all(cached(scene))}
    assert finished(scene) == quiet
    assert [failure.kind for failure in scene.config.failures] == [FailureKind.DAMAGED_DATA]


def exchange_all(path: Path) -> None:
    """Twice, it is as it was."""
    data = path.read_bytes()
    path.write_bytes(data[:128] + bytes(byte ^ 1 for byte in data[128:]))


def test_no_code_in_between_can_hide_it(make_scene: Callable[..., Scene], faults: Faults) -> None:
    expected = finished(make_scene("quiet", "hide", batch_size=2))
    faults.copied = 0
    scene = make_scene("damaged", "hide", batch_size=2, data=ELSEWHERE)
    faults.acts[2] = lambda: flip_all(cached(scene))
    assert finished(scene) == expected
    assert [failure.kind for failure in scene.config.failures] == [FailureKind.DAMAGED_DATA]


def flip_all(path: Path) -> None:
    for at in range(128, path.stat().st_size, 4):
        flip(path, at)


@pytest.mark.parametrize("evaluations", [False, True], ids=["at the epoch's end", "units of their own"])
def test_validation_data_are_compared_too(make_scene: Callable[..., Scene], evaluations: bool) -> None:
    sizes: dict[str, Any] = {"batch_size": 2, "valid": 0.25}
    if evaluations:
        sizes["validation"] = "evaluate"
    expected = finished(make_scene("quiet", **sizes))
    scene = make_scene("damaged", data=ELSEWHERE, **sizes)
    while not cached(scene, "valid-00000/000.sums").exists():
        perform(scene)
    flip(cached(scene, "valid-00000/000.npy"))
    assert finished(scene) == expected
    (failure,) = scene.config.failures
    assert failure.kind is FailureKind.DAMAGED_DATA
    assert (failure.unit.phase is Phase.EVALUATE) == evaluations
    assert "valid partition 0" in failure.story


def test_damage_at_the_source_too_is_reported_until_somebody_restores_it(
    make_scene: Callable[..., Scene], quiet: list[str]
) -> None:
    scene = make_scene("damaged", batch_size=2, data=ELSEWHERE)
    scene.perform()
    fs, source = fsspec.core.url_to_fs(f"{ELSEWHERE}/{read_manifest(ELSEWHERE).train[0].files[0].path}")
    whole = fs.cat_file(source)
    fs.pipe_file(source, whole[:-1] + bytes([whole[-1] ^ 1]))
    flip(cached(scene))
    for _ in range(4):
        scene.perform()
    kinds = [failure.kind for failure in scene.config.failures]
    assert kinds == [FailureKind.DAMAGED_DATA, FailureKind.STORAGE, FailureKind.STORAGE]
    assert "train/00000/x.npy is damaged: expected" in scene.config.failures[-1].story
    fs.pipe_file(source, whole)
    assert finished(scene) == quiet


@pytest.mark.parametrize("how", ["flip", "deleted", "prepared again"])
def test_a_users_own_dataset_is_read_in_place_and_named(
    make_scene: Callable[..., Scene], quiet: list[str], tmp_path: Path, how: str
) -> None:
    scene = make_scene("damaged", batch_size=2)
    for _ in range(2):
        scene.perform()
    data = tmp_path / "damaged" / "data"
    file = data / "train/00000/x.npy"
    assert cached(scene).resolve() == file
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    if how == "prepared again":
        fsspec.filesystem("file").rm(str(data), recursive=True)
        prepare(others, str(data), partitions=2, seed=1)
    else:
        DAMAGE[how](file)
    for _ in range(2):
        scene.perform()
    first, last = scene.config.failures
    assert first.kind is (FailureKind.STORAGE if how == "deleted" else FailureKind.DAMAGED_DATA)
    assert last.kind is FailureKind.STORAGE
    assert len(scene.ledger.visits()) == 2
    named = "somebody has prepared another dataset there" if how == "prepared again" else str(file)
    assert named in last.story
    assert "restore" in last.story
    for path, content in before.items():
        path.write_bytes(content)
    assert finished(scene) == quiet


def others() -> Columns:
    return {name: column[::-1] for name, column in rows().items()}
