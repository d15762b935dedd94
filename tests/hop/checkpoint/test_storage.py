"""Checkpoints on real file systems: durable, immutable, verified, and the same bytes everywhere."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import safetensors.torch
import torch

from cerebro_elastic.errors import CheckpointError
from cerebro_elastic.hop.checkpoint import load, remove, save, verify
from cerebro_elastic.system.files import CHUNK


def make_state() -> dict[str, Any]:
    """Small, but with every width, a chunk boundary inside one tensor, and a tie."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(CHUNK // 4 + 7, generator=generator)
    return {
        "model": {"weight": weight, "tied": weight, "half": torch.ones(3, dtype=torch.bfloat16)},
        "mask": torch.tensor([True, False, True]),
        "wide": torch.arange(5, dtype=torch.float64),
        "empty": torch.empty(0, 2),
        "names": {"b", "a", "c"},
        "step": 7,
    }


@pytest.fixture(params=["local", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield {"local": str(tmp_path / "checkpoints" / "v0"), "memory": "memory://checkpoints/v0"}[request.param]
    fsspec.filesystem("memory").store.clear()


def test_a_saved_state_is_loaded_bit_for_bit(url: str) -> None:
    state = make_state()
    ref = save(state, url)
    back = load(ref)
    verify(ref)
    assert list(back) == list(state)
    assert torch.equal(back["model"]["weight"], state["model"]["weight"])
    assert back["model"]["tied"] is back["model"]["weight"]
    assert back["model"]["half"].dtype is torch.bfloat16
    assert torch.equal(back["mask"], state["mask"])
    assert torch.equal(back["wide"], state["wide"])
    assert (back["names"], back["step"], back["empty"].shape) == ({"a", "b", "c"}, 7, (0, 2))


def test_loaded_tensors_are_writable_and_own_their_memory(tmp_path: Path) -> None:
    ref = save(make_state(), str(tmp_path / "c"))
    first, second = load(ref), load(ref)
    first["wide"].zero_()
    assert second["wide"].sum() == 10
    assert first["wide"].untyped_storage().nbytes() == 5 * 8
    remove(ref)
    assert second["wide"].sum() == 10


def test_the_safetensors_library_reads_the_file_and_agrees_on_its_bytes(tmp_path: Path) -> None:
    state = {"a": torch.randn(3, 2), "b": torch.arange(3), "h": torch.ones(1, dtype=torch.float16)}
    save(state, str(tmp_path / "c"))
    path = tmp_path / "c" / "tensors.safetensors"
    read = safetensors.torch.load_file(path)
    assert all(torch.equal(read[name], tensor) for name, tensor in state.items())
    assert path.read_bytes() == safetensors.torch.save(state)


def test_a_dtype_unknown_to_the_format_is_kept_as_its_bytes(tmp_path: Path) -> None:
    wide = torch.randn(2, 3, dtype=torch.complex128)
    ref = save({"wide": wide}, str(tmp_path / "c"))
    assert torch.equal(load(ref)["wide"], wide)
    assert safetensors.torch.load_file(tmp_path / "c" / "tensors.safetensors")["wide"].dtype is torch.uint8


def test_equal_states_have_equal_digests_in_every_process(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_storage import make_state, save\n"
        "print(save(make_state(), sys.argv[1]).digest)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    other = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "other")],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    ref = save(make_state(), str(tmp_path / "here"))
    assert other.stdout.strip() == ref.digest
    assert ref.digest == hashlib.sha256((tmp_path / "here" / "manifest.json").read_bytes()).hexdigest()
    assert save({**make_state(), "step": 8}, str(tmp_path / "third")).digest != ref.digest


def test_the_manifest_gives_sizes_and_digests_and_nothing_else_is_left(tmp_path: Path) -> None:
    ref = save(make_state(), str(tmp_path / "c"))
    manifest = json.loads((tmp_path / "c" / "manifest.json").read_text())
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == sorted(
        [*manifest["files"], "manifest.json"]
    )
    tree = (tmp_path / "c" / "tree.json").read_bytes()
    assert manifest["files"]["tree.json"] == {"bytes": len(tree), "sha256": hashlib.sha256(tree).hexdigest()}
    # Of the tensors, whatever file they lie in: the digest of their digests.
    stored = safetensors.torch.load_file(tmp_path / "c" / "tensors.safetensors")
    order = [name for name, _, shape in json.loads(tree)["tensors"] if 0 not in shape]
    memory = [stored[name].view(torch.uint8).numpy().tobytes() for name in order]
    digests = "".join(hashlib.sha256(each).hexdigest() for each in memory)
    assert manifest["files"]["tensors.safetensors"] == {
        "bytes": sum(map(len, memory)),
        "sha256": hashlib.sha256(digests.encode()).hexdigest(),
    }
    assert ref.bytes == sum(said["bytes"] for said in manifest["files"].values())


def test_a_checkpoint_is_never_overwritten(url: str) -> None:
    ref = save({"step": 1}, url)
    with pytest.raises(CheckpointError, match="never change"):
        save({"step": 2}, url)
    assert load(ref) == {"step": 1}


def test_a_state_that_cannot_be_stored_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"state\['x'\]"):
        save({"x": object()}, str(tmp_path / "c"))
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("name", ["tensors.safetensors", "tree.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["missing", "cut short", "flipped", "longer"])
def test_every_damage_is_found_and_reported(tmp_path: Path, name: str, damage: str) -> None:
    ref = save(make_state(), str(tmp_path / "c"))
    path = tmp_path / "c" / name
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        half = len(data) // 2
        flipped = data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :]
        path.write_bytes({"cut short": data[:half], "flipped": flipped, "longer": data + b" "}[damage])
    messages = []
    for read in (load, verify):
        with pytest.raises(CheckpointError) as caught:
            read(ref)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert name in messages[0]
    assert "restore it from a copy" in messages[0]
    if damage != "missing":
        assert "expected" in messages[0]
        assert "found" in messages[0]
    if damage == "cut short" and name != "manifest.json":
        assert "cut short" in messages[0]


def test_remove_deletes_all_and_may_be_repeated(url: str) -> None:
    ref = save({"x": torch.ones(3)}, url)
    remove(ref)
    remove(ref)
    with pytest.raises(CheckpointError, match="missing"):
        verify(ref)
    fs, path = fsspec.core.url_to_fs(url)
    assert not fs.exists(path)
