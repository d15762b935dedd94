"""A save that is cut short by a power cut, or by a storage that goes away: no checkpoint, or all of it."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.errors import CheckpointError, DamagedCheckpoint, StorageError
from cerebro_elastic.hop.checkpoint import load, remove, restore, save, verify
from cerebro_elastic.system.files import exists, locate, operations
from support.proxy import Bad, BadProxy

STATE: dict[str, Any] = {"weight": torch.arange(2000.0), "step": 7}


class Disk:
    """What a power cut would leave of a folder, derived from the system calls that make data durable.

    Adversarial: a file's bytes survive if they were synced, a name if its folder was synced after the naming;
    any subset of the other names may survive.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.synced: dict[int, bytes] = {}
        self.durable: dict[str, int] = {}
        self.named: dict[str, int] = {}
        self.cuts: list[tuple[dict[str, int], dict[str, int], dict[int, bytes]]] = []
        self._fsync, self._replace = os.fsync, os.replace
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(os, "replace", self.replace)

    def fsync(self, file: int) -> None:
        self._fsync(file)
        path = Path(os.readlink(f"/proc/self/fd/{file}"))
        if path.is_dir():
            inside = {name: inode for name, inode in self.named.items() if Path(name).parent == path}
            self.durable.update(inside)
        else:
            self.synced[os.fstat(file).st_ino] = path.read_bytes()
        self.remember()

    def replace(self, source: str, target: str) -> None:
        inode = os.stat(source).st_ino
        self._replace(source, target)
        self.named[target] = inode
        self.remember()

    def remember(self) -> None:
        self.cuts.append((dict(self.durable), dict(self.named), dict(self.synced)))

    def after_power_cuts(self) -> Iterator[None]:
        """Lay the folder as it may be after a cut at each of the points, in every way."""
        for durable, named, synced in self.cuts:
            loose = [name for name in named if durable.get(name) != named[name]]
            for count in range(len(loose) + 1):
                for survivors in itertools.combinations(loose, count):
                    shutil.rmtree(self.root, ignore_errors=True)
                    for name, inode in {**durable, **{name: named[name] for name in survivors}}.items():
                        Path(name).parent.mkdir(parents=True, exist_ok=True)
                        Path(name).write_bytes(synced.get(inode, b""))
                    yield


def whole_or_none(ref: CheckpointRef) -> bool:
    """Whether the checkpoint is there; if it is, it must be whole."""
    if not exists(locate(ref.url) / "manifest.json"):
        return False
    verify(ref)
    return True


def test_a_power_cut_leaves_no_checkpoint_or_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        disk = Disk(tmp_path / "c", context)
        ref = save(STATE, str(tmp_path / "c"))
    outcomes = [whole_or_none(ref) for _ in disk.after_power_cuts()]
    assert len(outcomes) > len(disk.cuts) >= 9
    assert outcomes[-1], "it is durable when save returns"
    assert not outcomes[0]


def test_a_restored_checkpoint_is_whole_or_still_known_as_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = save(STATE, str(tmp_path / "c"))
    (tmp_path / "c" / "tree.json").write_bytes(b"{}")
    with monkeypatch.context() as context:
        disk = Disk(tmp_path / "c", context)
        restore(STATE, ref)
    verify(ref)
    for _ in disk.after_power_cuts():
        whole_or_none(ref)


URL = "s3://bucket/run/c"


@pytest.mark.parametrize("bad", [Bad.DROP, Bad.LOST], ids=lambda bad: bad.name)
def test_a_storage_that_goes_away_at_any_request_leaves_none_or_a_whole_one(
    s3: BadProxy, bad: Bad, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = save(STATE, URL)
    requests = len(s3.requests)
    outcomes = []
    for cut in range(requests):
        remove(ref)
        s3.reset()
        s3.plan = lambda request, cut=cut: bad if request.number >= cut else None  # type: ignore[misc]
        with monkeypatch.context() as context:
            context.setattr("cerebro_elastic.system.files.place.PATIENCE", 0.0)
            with pytest.raises(StorageError):
                save(STATE, URL)
        s3.reset()
        outcomes.append(whole_or_none(ref))
    # If nothing but the last answer is lost, it is there, although nobody will ever refer to it.
    assert outcomes == [False] * (requests - 1) + [bad is Bad.LOST]


@pytest.mark.parametrize("bad", [Bad.SLOW_DOWN, Bad.LOST], ids=lambda bad: bad.name)
def test_a_storage_with_bad_days_keeps_checkpoints(s3: BadProxy, bad: Bad) -> None:
    """A third of the requests goes wrong."""
    chance = random.Random(0)
    s3.plan = lambda _request: bad if chance.random() < 1 / 3 else None
    ref = save(STATE, URL)
    verify(ref)
    assert torch.equal(load(ref)["weight"], STATE["weight"])
    remove(ref)
    with pytest.raises(DamagedCheckpoint, match="missing"):
        load(ref)


@pytest.mark.parametrize("read", [load, verify])
@pytest.mark.parametrize("bad", [Bad.CUT, Bad.FORBIDDEN], ids=lambda bad: bad.name)
def test_an_unreadable_checkpoint_is_not_reported_as_damaged(
    s3: BadProxy, read: Any, bad: Bad, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = save(STATE, URL)
    s3.first(99, bad)
    with monkeypatch.context() as context:
        context.setattr("cerebro_elastic.system.files.place.PATIENCE", 0.0)
        with pytest.raises(StorageError, match=r"s3://bucket/run/c/manifest.json: the storage"):
            read(ref)
    s3.reset()
    read(ref)


def test_a_read_error_of_a_disk_is_a_fault_of_this_machine() -> None:
    """``/proc/self/mem`` can be opened, and then gives EIO."""
    with pytest.raises(StorageError, match="Input/output error"):
        next(operations.chunks(locate("/proc/self/mem")))


def test_another_state_is_not_restored(tmp_path: Path) -> None:
    ref = save(STATE, str(tmp_path / "c"))
    (tmp_path / "c" / "tree.json").write_bytes(b"{}")
    with pytest.raises(CheckpointError, match=f"held a state of digest {ref.digest}"):
        restore({**STATE, "step": 8}, ref)
    with pytest.raises(DamagedCheckpoint):
        verify(ref)
