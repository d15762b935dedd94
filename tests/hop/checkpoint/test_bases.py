"""What training leaves as it is stays: stored once and mapped into memory, in states that are the same."""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch

from cerebro_elastic.core.model.attempts import Prefetch
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.errors import DamagedCheckpoint
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.hop.checkpoint import bases as bases_module
from cerebro_elastic.hop.equality import values_equal
from cerebro_elastic.system import cache_space
from cerebro_elastic.system.files import Place, chunks, digest, locate, sizes
from cerebro_elastic.system.files.operations import _this_machine
from cerebro_elastic.worker.state_fetcher import StateFetcher

FROZEN = ("a.weight", "a.bias", "b.bias")


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("CEREBRO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(bases_module, "_cache", None)
    yield {"local": str(tmp_path / "run"), "memory": "memory://run"}[request.param]
    fsspec.filesystem("memory").store.clear()


def make_state(prefix: str = "") -> dict[str, Any]:
    """An adapter on a base, of which two tensors are alike."""
    generator = torch.Generator().manual_seed(0)
    model = {
        "a.weight": torch.randn(700, 500, generator=generator),
        "a.bias": torch.zeros(2000),
        "b.bias": torch.zeros(2000),
        "adapter": torch.randn(500, 4, generator=generator),
    }
    return {"model": {prefix + name: value for name, value in model.items()}, "step": 0}


def untrained(state: dict[str, Any]) -> dict[str, checkpoint.Still]:
    frozen = {f"model/{n}": v for n, v in state["model"].items() if n.endswith(FROZEN)}
    return checkpoint.as_they_are(frozen)


def saved(state: dict[str, Any], before: dict[str, checkpoint.Still], url: str) -> CheckpointRef:
    return checkpoint.stage(state).save(url, before=before)


def bases(storage: str) -> list[Place]:
    home = locate(f"{storage}/bases")
    return [Place(home.fs, path) for path in sizes(home)]


def copies(cache: Path) -> list[Path]:
    """Those of this host."""
    return list(cache.glob("*/base-00000/base"))


def trained(state: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        state["model"][name] += 1
    return {**state, "step": state["step"] + 1}


def test_a_base_is_stored_once_for_all_configs_and_no_digest_depends_on_it(storage: str) -> None:
    state, renamed = make_state(), make_state("wrapped.")
    one = saved(state, untrained(state), f"{storage}/checkpoints/c0/v0")
    two = saved(renamed, untrained(renamed), f"{storage}/checkpoints/c1/v0")
    whole = checkpoint.save(state, f"{storage}/checkpoints/c2/v0")
    assert (one.digest, one.bytes) == (whole.digest, whole.bytes)
    assert one.base_bytes == sum(state["model"][name].nbytes for name in FROZEN)
    assert one.hopping_bytes < 0.01 * whole.bytes + state["model"]["adapter"].nbytes
    assert len(bases(storage)) == 1
    for ref, expected in ((one, state), (two, renamed), (whole, state)):
        checkpoint.verify(ref)
        assert values_equal(checkpoint.load(ref), expected)


def test_what_is_trained_leaves_the_base_and_nobody_else_sees_it(storage: str) -> None:
    state = make_state()
    ref = saved(state, untrained(state), f"{storage}/checkpoints/c0/v0")
    state, other = checkpoint.load(ref), checkpoint.load(ref)
    before = checkpoint.stays_in(state)
    assert set(before) == {f"model/{name}" for name in FROZEN}
    ref = saved(trained(state, "adapter"), before, f"{storage}/checkpoints/c0/v1")
    assert ref.base_bytes == sum(state["model"][name].nbytes for name in FROZEN)

    state = checkpoint.load(ref)
    before = checkpoint.stays_in(state)
    state["model"]["a.bias"].data[3] = 7  # past torch's counter of writes
    state["model"]["b.bias"].numpy()[1999] = 8
    ref = saved(trained(state), before, f"{storage}/checkpoints/c0/v2")
    assert ref.base_bytes == state["model"]["a.weight"].nbytes
    state = checkpoint.load(ref)
    assert (state["model"]["a.bias"].sum(), state["model"]["b.bias"].sum()) == (7, 8)
    assert other["model"]["a.bias"].sum() == other["model"]["b.bias"].sum() == 0
    assert len(bases(storage)) == 1


def test_the_digest_of_a_mapped_tensor_is_known(storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    state = make_state()
    ref = saved(state, untrained(state), f"{storage}/checkpoints/c0/v0")
    mapped = bases_module.bytes_of(checkpoint.load(ref)["model"]["a.weight"])
    expected = digest([mapped]).sha256
    with monkeypatch.context() as patch:
        patch.setattr(bases_module, "digest", None)
        assert bases_module.sha256_of(mapped) == expected
    mapped[0] ^= 1
    assert bases_module.sha256_of(mapped) == digest([mapped]).sha256 != expected


def test_copies_of_a_base_stay_if_they_are_equal(storage: str) -> None:
    state = make_state()
    ref = saved(state, untrained(state), f"{storage}/checkpoints/c0/v0")
    state = checkpoint.load(ref)
    before = checkpoint.stays_in(state)
    model = {name: value.clone() for name, value in state["model"].items()}
    model["a.weight"][699, 499] += 1
    ref = saved({"model": model, "step": 1}, before, f"{storage}/checkpoints/c0/v1")
    assert ref.base_bytes == model["a.bias"].nbytes + model["b.bias"].nbytes
    assert values_equal(checkpoint.load(ref)["model"], model)
    # A run that begins with another run's state has bases of its own.
    ref = saved(checkpoint.load(ref), before, f"{storage}/other/checkpoints/c0/v0")
    assert len(bases(f"{storage}/other")) == 1
    assert values_equal(checkpoint.load(ref)["model"], model)


@pytest.mark.parametrize("repair", ["in its place", "beside it"])
def test_a_damaged_base_is_found_and_made_again(storage: str, repair: str) -> None:
    state = make_state()
    refs = [saved(state, untrained(state), f"{storage}/checkpoints/c0/v{n}") for n in range(2)]
    (base,) = bases(storage)
    data = bytearray(base.fs.cat_file(base.path))
    data[-200] ^= 1
    base.fs.pipe_file(base.path, bytes(data))
    for find in (checkpoint.verify, checkpoint.load):
        with pytest.raises(DamagedCheckpoint, match="bases/"):
            find(refs[0])
    if repair == "in its place":
        checkpoint.restore(state, refs[0])
    else:
        checkpoint.put_back(checkpoint.save(state, f"{storage}/checkpoints/c0/v0-again"), refs[0])
    checkpoint.verify(refs[0])
    with pytest.raises(DamagedCheckpoint, match="missing"):
        checkpoint.load(refs[1])
    state = checkpoint.load(refs[0])
    saved(state, untrained(state), f"{storage}/checkpoints/c0/v2")
    checkpoint.verify(refs[1])


def test_a_hosts_damaged_copy_is_fetched_again(storage: str, tmp_path: Path) -> None:
    state = make_state()
    ref = saved(state, untrained(state), f"{storage}/checkpoints/c0/v0")
    checkpoint.load(ref)
    for copy in copies(tmp_path / "cache"):
        os.truncate(copy, 1000)
    assert values_equal(checkpoint.load(ref), state)


def test_what_killed_processes_of_this_machine_have_left_goes(tmp_path: Path) -> None:
    """What another one writes stays: on a network mount a lock may not hold for it."""
    folder = tmp_path / "bases"
    folder.mkdir()
    left = [folder / f"0123.{machine}-1.tmp" for machine in (_this_machine(), "another", "given_up")]
    for path in left:
        path.touch()
    os.utime(left[-1], (0, 0))
    state = make_state()
    saved(state, untrained(state), f"{tmp_path}/checkpoints/c0/v0")
    assert [path for path in left if path.exists()] == left[1:2]


def test_a_process_that_is_killed_while_it_fetches_a_base_leaves_it_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CEREBRO_CACHE", str(tmp_path))
    monkeypatch.setattr(bases_module, "_cache", None)
    state = make_state()
    ref = saved(state, untrained(state), "memory://killed/checkpoints/c0/v0")
    reads, writes = os.pipe()

    def halfway(place: Place) -> Iterator[bytes]:
        for chunk in chunks(place):
            yield chunk[: len(chunk) // 2]
            os.write(writes, b"!")
            signal.pause()

    with monkeypatch.context() as patch:
        patch.setattr(cache_space, "chunks", halfway)
        fetching = in_child(lambda: checkpoint.load(ref))
    assert os.read(reads, 1)
    waiting = in_child(lambda: checkpoint.load(ref))
    assert not copies(tmp_path)
    os.kill(fetching, signal.SIGKILL)
    assert [os.waitpid(child, 0)[1] for child in (fetching, waiting)] == [signal.SIGKILL, 0]
    assert values_equal(checkpoint.load(ref), state)
    assert not list(tmp_path.rglob("*.tmp"))
    fsspec.filesystem("memory").store.clear()


def test_a_rank_that_waits_for_a_base_fetched_ahead_gives_signs_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = make_state()
    ref = saved(state, untrained(state), "memory://ahead/checkpoints/c0/v0")
    fetching, beat = threading.Event(), threading.Event()

    def slowly(place: Place) -> Iterator[bytes]:
        fetching.set()
        assert beat.wait(60)
        yield from chunks(place)

    def beats() -> None:
        if threading.current_thread() is threading.main_thread():
            beat.set()

    monkeypatch.setattr(cache_space, "chunks", slowly)
    monkeypatch.setattr(bases_module, "_cache", (tmp_path, None, beats))
    state_fetcher = StateFetcher(lambda *_: None, lambda *_: None)
    state_fetcher.prefetch(Prefetch(0, ref))
    assert fetching.wait(60)
    assert values_equal(state_fetcher.load(ref), state)
    state_fetcher.close()
    assert len(copies(tmp_path)) == 1
    fsspec.filesystem("memory").store.clear()


def in_child(act: Callable[[], object]) -> int:
    """A forked process that does this and ends with status 0."""
    child = os.fork()
    if not child:
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    return child


def test_copies_take_room_in_the_hosts_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is mapped stays; others go for one that is needed."""
    refs = []
    for number in range(4):
        state = make_state()
        state["model"]["a.weight"] += number
        refs.append(saved(state, untrained(state), f"memory://run/checkpoints/c{number}/v0"))
    beats: list[None] = []
    beat = partial(beats.append, None)  # else a long fetch would count as a hang
    monkeypatch.setattr(bases_module, "_cache", (tmp_path, int(1.5 * refs[0].base_bytes), beat))
    held = [checkpoint.load(ref) for ref in refs[:3]]
    assert len(copies(tmp_path)) == 3, "all are in use"
    held.clear()
    gc.collect()
    checkpoint.load(refs[3])
    assert len(copies(tmp_path)) == 1
    assert len(beats) == len(refs)
    fsspec.filesystem("memory").store.clear()


def test_bases_that_nobody_needs_are_swept(storage: str) -> None:
    refs = []
    for number in range(2):
        state = make_state()
        state["model"]["a.weight"] += number
        refs.append(saved(state, untrained(state), f"{storage}/checkpoints/c{number}/v0"))
    checkpoint.prune(refs[0].url, "removed")
    checkpoint.sweep(f"{storage}/checkpoints")
    assert len(bases(storage)) == 1
    assert values_equal(checkpoint.load(refs[1]), state)


def test_a_manifest_that_names_other_places_is_refused(tmp_path: Path) -> None:
    state = make_state()
    ref = saved(state, untrained(state), f"{tmp_path}/checkpoints/c0/v0")
    manifest = tmp_path / "checkpoints" / "c0" / "v0" / "manifest.json"
    text = manifest.read_text()
    stays = json.loads(text)["stays"]
    one, other = (stays[f"model/{name}"] for name in ("a.bias", "b.bias"))
    elsewhere = {
        "another tensor's place": [*one[:2], 0, stays["model/a.weight"][3]],
        "one place for two tensors": other,
        "a base that is not listed": [*one[:2], 1, one[3]],
        "no place": one[:2],
        "beyond the end": [*one[:2], 0, 1 << 40],
    }
    for place in elsewhere.values():
        changed = {**json.loads(text), "stays": {**stays, "model/a.bias": place}}
        manifest.write_text(json.dumps(changed, separators=(",", ":")))
        with pytest.raises(DamagedCheckpoint):
            checkpoint.load(ref)
    for foreign in ({"bases": [1]}, {"bases": {"a": 1}}, {"stays": [1]}):
        manifest.write_text(json.dumps({**json.loads(text), **foreign}, separators=(",", ":")))
        with pytest.raises(DamagedCheckpoint, match="bases are not as written"):
            checkpoint.origin(ref)
