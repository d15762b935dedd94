"""State trees: exact round trips, ties, refusals by path."""

from __future__ import annotations

import enum
import json
import math
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cerebro_elastic.errors import CheckpointError
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.hop.checkpoint.tree import flatten, unflatten


def test_the_bytes_of_a_state_do_not_change(tmp_path: Path) -> None:
    """Runs of former versions go on from their checkpoints, and equal states have equal digests."""
    state = {
        "model": {"w": torch.arange(6.0).reshape(2, 3), "t": torch.arange(6.0).reshape(2, 3).T},
        "half": torch.ones(3, dtype=torch.bfloat16),
        "sparse": torch.eye(2).to_sparse(),
        "array": np.arange(4, dtype=np.uint16),
        "scalar": np.float32(2.5),
        "plain": [1, 2.5, None, (1, 2), {3: "x"}, torch.float32, torch.device("cpu"), torch.Size([1, 2])],
    }
    digest = "a29b7bb6e6bbed662a539e0f6fdee527b4acab2172cbf247861442b6b8288d78"
    assert checkpoint.save(state, str(tmp_path / "state")).digest == digest


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_arrays_of_dtypes_that_numpy_itself_lacks(name: str, tmp_path: Path) -> None:
    array = np.arange(6).reshape(2, 3).astype(getattr(ml_dtypes, name))
    loaded = checkpoint.load(checkpoint.save({"a": array, "one": array[1, 2]}, str(tmp_path / "a")))
    assert same(loaded, {"a": array, "one": array[1, 2]})
    tensor = torch.arange(6).reshape(2, 3).to(getattr(torch, name))
    stored = (tmp_path / "a" / "tensors.safetensors").read_bytes()
    checkpoint.save({"a": tensor}, str(tmp_path / "b"))
    assert stored == (tmp_path / "b" / "tensors.safetensors").read_bytes(), "as torch's of the same values"


def test_a_rank_of_a_task_of_numpys_arrays_imports_no_torch() -> None:
    """Neither does the check before a run, nor what plugins import."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import cerebro_elastic.worker.rank, cerebro_elastic.runs.start.preflight\n"
        "import cerebro_elastic.extending.tasks, cerebro_elastic.runs.results.export"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def trip(state: Any) -> Any:
    """Through real JSON text, as a file would have it."""
    tree, tensors = flatten(state)
    return unflatten(json.loads(json.dumps(tree)), tensors)


def same(left: Any, right: Any) -> bool:
    """Equal in type, bits and order, at every depth."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and left.shape == right.shape and bits(left) == bits(right)
    if isinstance(left, np.ndarray | np.generic):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, dict):
        pairs = zip(left.items(), right.items(), strict=True)
        return len(left) == len(right) and all(same(a, b) for a, b in pairs)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return left.hex() == right.hex() and math.copysign(1, left) == math.copysign(1, right)
    return bool(left == right)


def bits(tensor: torch.Tensor) -> bytes:
    return (
        tensor.resolve_conj().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        if tensor.numel()
        else b""
    )


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
keys = st.text() | st.integers() | st.booleans() | st.none() | st.tuples(st.integers(), st.text())
arrays = st.builds(
    lambda dtype, shape: np.arange(math.prod(shape)).reshape(shape).astype(dtype),
    st.sampled_from(["f4", "i8", "u1", "u4", "?", "c8", "f2"]),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
)
trees = st.recursive(
    scalars | arrays | arrays.map(torch.from_numpy),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
        | st.dictionaries(keys, inner, max_size=3).map(OrderedDict)
        | st.sets(scalars.filter(lambda x: x == x), max_size=3)
        | st.frozensets(st.integers(), max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=200)
@given(trees)
def test_any_tree_comes_back_exactly(state: Any) -> None:
    assert same(trip(state), state)


@pytest.mark.parametrize(
    "value",
    [
        10**5000,
        -(1 << 63),
        1 << 63,
        math.inf,
        -math.inf,
        math.nan,
        -0.0,
        5e-324,
        "\ud800 lone, \x00, $tag",
        {"$tuple": [1]},
        {"": 0},
        np.float64(0.1),
        np.float32("nan"),
        np.int64(-1),
        np.bool_(True),
        torch.bfloat16,
        torch.device("cuda:1"),
        torch.Size([2, 3]),
        torch.tensor(3.5),
        torch.empty(0, 4, dtype=torch.int16),
        torch.randn(3).to(torch.bfloat16),
        torch.randn(4).to(torch.float8_e4m3fn),
        torch.randn(4, dtype=torch.complex128),
        torch.randn(4, dtype=torch.complex64).conj(),
        np.asfortranarray(np.ones((2, 3))),
        np.ones(4)[::-2],
        np.random.default_rng(0).bit_generator.state,
        np.random.RandomState(1).get_state(),
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_a_hard_value_comes_back_exactly(value: Any) -> None:
    assert same(trip([value]), [value])


def test_a_real_training_state_comes_back_and_trains_on_identically() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters(), amsgrad=True)
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}
    back = trip(state)
    assert same(back, state)
    assert vars(back["model"]) == vars(state["model"])  # the state dict's _metadata


def test_tied_tensors_stay_tied_and_equal_ones_do_not_become_so() -> None:
    weight = torch.randn(3, 2)
    tree, tensors = flatten({"a": weight, "b": weight.view(3, 2), "c": weight.clone(), "t": weight.T})
    assert len(tensors) == 3
    back = unflatten(tree, {name: tensor.clone() for name, tensor in tensors.items()})
    back["a"].zero_()
    assert torch.equal(back["b"], torch.zeros(3, 2))
    assert torch.equal(back["c"], weight)


def test_dense_memory_layouts_are_kept_and_gaps_are_not() -> None:
    last = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    back = trip(
        {"last": last, "columns": torch.randn(6, 6)[:, ::2], "expanded": torch.ones(1, 1).expand(3, 3)}
    )
    assert back["last"].stride() == last.stride()
    assert torch.equal(back["last"], last)
    assert back["columns"].is_contiguous()
    assert back["expanded"].is_contiguous()


def test_names_are_the_paths_and_never_clash() -> None:
    zero = [torch.zeros(1) for _ in range(5)]
    state = {"a": {"b": zero[0], 1: zero[1]}, "a/b": zero[2], "__metadata__": zero[3], "a/1": zero[4]}
    _, tensors = flatten(state)
    assert list(tensors) == ["a/b", "a/1", "a/b~", "__metadata__~", "a/1~"]


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr", "to_sparse_csc"])
def test_a_sparse_tensor_stays_as_it_is(layout: str) -> None:
    tensor = getattr(torch.tensor([[0.0, 2.0], [3.0, 0.0]]), layout)()
    back = trip({"x": tensor})["x"]
    assert back.layout is tensor.layout
    assert torch.equal(back.to_dense(), tensor.to_dense())


def test_a_sparse_gradient_stays_in_the_order_in_which_it_came() -> None:
    gradient = torch.sparse_coo_tensor(torch.tensor([[2, 0, 2]]), torch.tensor([1.0, 2.0, 3.0]), (4,))
    back = trip({"x": gradient})["x"]
    assert not back.is_coalesced()
    assert same(back._indices(), gradient._indices())
    assert trip({"x": gradient.coalesce()})["x"].is_coalesced()


def test_sets_are_written_in_one_order_whatever_their_hashes() -> None:
    clashing = [k * ((1 << 61) - 1) for k in range(8)]  # one hash: iteration follows insertion
    mirrored = clashing[::-1]
    forward, backward = set(clashing), set(mirrored)
    assert list(forward) != list(backward)
    assert flatten(forward) == flatten(backward)


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "kind", "hint"),
    [
        (Colour.RED, "Colour", "plain values"),
        (object(), "builtins.object", "plain values"),
        (torch.nn.Parameter(torch.ones(1)), "Parameter", "detach"),
        (torch.ones(1, requires_grad=True), "requires grad", "detach"),
        (torch.empty(1, device="meta"), "meta", "dense"),
        (np.array([object()]), "dtype object", "numeric"),
        ({Colour.RED: 1}, "key of type Colour", "str or int"),
    ],
)
def test_a_refusal_names_path_type_and_remedy(value: Any, kind: str, hint: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        flatten({"callbacks": [{"stopper": value}]})
    message = str(caught.value)
    assert message.startswith("state['callbacks'][0]['stopper'] is ")
    assert kind in message
    assert hint in message
