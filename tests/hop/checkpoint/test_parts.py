"""A state in parts: cut as ``torch.chunk`` does it, one file per rank, together the state again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.errors import CheckpointError, DamagedCheckpoint
from cerebro_elastic.hop.checkpoint import (
    Part,
    complete,
    is_divided,
    load,
    put_back,
    remove,
    save,
    save_part,
    verify,
)
from cerebro_elastic.system.files import exists, locate, write
from cerebro_elastic.training.parallel import group

FULL = {"odd": torch.arange(14.0).reshape(7, 2), "few": torch.ones(1, 3), "none": torch.empty(0, 2)}


@pytest.fixture
def mesh() -> Iterator[Any]:
    """A mesh of a single rank: the tests look only at the written files."""
    with group.formed(group.listen("127.0.0.1"), 0, 1, torch.device("cpu")):
        yield init_device_mesh("cpu", (1,))


def state_of(part: Part, mesh: Any) -> dict[str, Any]:
    """The state of a rank: its rows of ``FULL``, with a tied one, and a whole tensor."""
    own = {
        name: DTensor.from_local(
            tensor[part.rows(len(tensor))], mesh, [Shard(0)], shape=tensor.shape, stride=tensor.stride()
        )
        for name, tensor in FULL.items()
    }
    return {"model": {**own, "tied": own["few"]}, "step": torch.tensor(3.0), "names": ["a"]}


@pytest.mark.parametrize("rows", [0, 1, 2, 5, 6, 7, 8])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_rows_are_cut_as_torch_cuts_them(rows: int, count: int) -> None:
    cut = [torch.arange(rows)[Part(index, count).rows(rows)].tolist() for index in range(count)]
    chunks = [chunk.tolist() for chunk in torch.arange(rows).chunk(count)] if rows else []
    assert [part for part in cut if part] == chunks
    assert [row for part in cut for row in part] == list(range(rows))


@pytest.mark.parametrize("count", [2, 3])
def test_parts_are_the_state_for_all_and_for_each(tmp_path: Path, mesh: Any, count: int) -> None:
    url, written = str(tmp_path / "c"), []
    parts = [Part(index, count) for index in range(count)]
    for part in reversed(parts):
        state = state_of(part, mesh)
        assert is_divided(state)
        written.append(save_part(state, url, part))
    with pytest.raises(CheckpointError, match="missing"):
        load(complete(written, str(tmp_path / "elsewhere")))
    ref = complete(written, url)
    verify(ref)

    for whole in (load(ref), load(ref, Part(0, count + 1))):
        assert {name: whole["model"][name].tolist() for name in FULL} == {
            name: tensor.tolist() for name, tensor in FULL.items()
        }
        assert whole["model"]["tied"] is whole["model"]["few"]
    for part in parts:
        mine = load(ref, part)
        for name, tensor in FULL.items():
            assert torch.equal(mine["model"][name], tensor[part.rows(len(tensor))])
        assert (float(mine["step"]), mine["names"]) == (3.0, ["a"])


def test_a_rank_finds_damage_in_the_parts_that_it_reads(tmp_path: Path, mesh: Any) -> None:
    url, written = str(tmp_path / "c"), []
    for part in (Part(0, 2), Part(1, 2)):
        written.append(save_part(state_of(part, mesh), url, part))
    ref = complete(written, url)
    file = tmp_path / "c" / "part-1.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    load(ref, Part(0, 2))
    for given in (Part(1, 2), None):
        with pytest.raises(DamagedCheckpoint, match=r"part-1.safetensors is damaged"):
            load(ref, given)
    with pytest.raises(DamagedCheckpoint):
        verify(ref)
    assert set(json.loads((tmp_path / "c" / "manifest.json").read_text())["files"]) == {
        "part-0.safetensors", "part-1.safetensors", "tensors.safetensors", "tree.json",
    }  # fmt: skip


@pytest.mark.parametrize("protocol", ["", "memory:/"])
def test_a_remade_checkpoint_replaces_the_damaged_one_if_it_is_equal(
    tmp_path: Path, mesh: Any, protocol: str
) -> None:
    def made(name: str, other: float = 3.0) -> CheckpointRef:
        url, written = f"{protocol}{tmp_path}/{name}", []
        for part in (Part(0, 2), Part(1, 2)):
            written.append(save_part({**state_of(part, mesh), "step": torch.tensor(other)}, url, part))
        return complete(written, url)

    ref = made("c")
    write(locate(ref.url) / "part-1.safetensors", [b"damaged"])
    another = made("c-again", 4.0)
    with pytest.raises(CheckpointError, match="cannot be put back: it held a state of digest"):
        put_back(another, ref)
    with pytest.raises(DamagedCheckpoint, match="cut short"):
        load(ref)
    load(ref, Part(0, 2))
    remove(another)
    again = made("c-again")
    put_back(again, ref)
    verify(ref)
    assert not exists(locate(again.url))


def test_a_checkpoint_that_is_whole_or_divided_otherwise_is_refused(tmp_path: Path, mesh: Any) -> None:
    with pytest.raises(CheckpointError, match="each rank saves its part"):
        save(state_of(Part(0, 2), mesh), str(tmp_path / "c"))
    twice = DTensor.from_local(torch.ones(2), mesh, [Replicate()])
    with pytest.raises(CheckpointError, match=r"state\['w'\] is a DTensor placed as .*divide it by rows"):
        save_part({"w": twice}, str(tmp_path / "c"), Part(0, 2))
    assert not list(tmp_path.iterdir())
