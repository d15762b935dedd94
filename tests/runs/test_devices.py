"""Which accelerators a machine has, and which of them a node sees."""

from __future__ import annotations

from typing import Any

import pytest

from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.runs.start import machine
from cerebro_elastic.runs.start.machine import Accelerators, accelerators_of
from cerebro_elastic.runs.start.room import check_room
from cerebro_elastic.system.devices import SHARED


def recipe(kind: str = "torch", **sections: Any) -> Recipe:
    task = {
        "torch": {"model_fn": "a:b", "loss": "mse_loss", "optimizer": "SGD"},
        "sklearn": {"estimator": "a:b"},
    }[kind]
    data = {"source": "a:load", "partitions": 4}
    return load_recipe(
        {"task": {"kind": kind, **task}, "data": data, "search": {"space": {"lr": [0.1]}}, **sections}
    )


def of(count: int, kind: str = "cuda", in_machine: int = 0) -> Accelerators:
    return Accelerators(kind, tuple(map(str, range(count))), "H100" if count else "cpu", in_machine)


@pytest.mark.parametrize(
    ("count", "nodes", "shares"),
    [
        (0, 2, ["", ""]),
        (4, 1, ["0,1,2,3"]),
        (4, 2, ["0,1", "2,3"]),
        (5, 2, ["0,1", "2,3"]),
        (4, 4, ["0", "1", "2", "3"]),
        (2, 3, ["0", "1", "0"]),
    ],
)
def test_nodes_share_evenly_by_the_makers_variable(count: int, nodes: int, shares: list[str]) -> None:
    for kind, variable in (("cuda", "CUDA_VISIBLE_DEVICES"), ("xpu", "ZE_AFFINITY_MASK")):
        sees = of(count, kind).share(nodes)
        shared = {SHARED: "yes"} if 0 < count < nodes else {}
        assert sees == [{variable: share, **shared} if share else {} for share in shares]
    assert of(1, "mps").share(2) == [{}, {}], "Apple has no such variable, and one device"


def test_a_machine_says_where_its_nodes_train(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of(8).text(2, 1) == "on 2 of 8 GPUs (H100)"
    assert of(8).text(8, 1) == "on 8 GPUs (H100)"
    assert of(2).text(4, 1) == "on 2 GPUs (H100)"
    assert of(4).text(1, 2) == "on 2 of 4 GPUs (H100)"
    assert of(0).text(1, 1) == ""
    assert of(0, "cpu", 8).text(1, 1).startswith("on the CPU: torch has none")
    assert of(0, "cpu", 8).text(1, 1).endswith("although this machine has 8 GPUs")
    for given, says in {"": "", "-1": "", "MIG-1": "is 'MIG-1', and torch finds none of these"}.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
        assert of(0, "cpu").text(1, 1).partition("CUDA_VISIBLE_DEVICES ")[2] == says


def test_auto_is_one_node_for_each_device_or_for_each_ranks_of_them() -> None:
    assert [of(count).nodes_of(recipe()) for count in (0, 1, 8)] == [1, 1, 8]
    assert of(8).nodes_of(recipe(node={"ranks": 2})) == 4


def test_ranks_that_train_together_have_a_device_each() -> None:
    two = recipe(nodes=2, node={"ranks": 2}, parallelism="ddp")
    with pytest.raises(
        RecipeError,
        match=r"2 nodes with 2 ranks each take 4 GPUs, and this machine has 2: .* at most 1 node here",
    ):
        check_room(two, 2, 8, of(2))
    gang = recipe(nodes=2, gang=2, parallelism="ddp")
    with pytest.raises(RecipeError, match="2 nodes with 1 rank each take 2 GPUs, and this machine has 1"):
        check_room(gang, 2, 8, of(1))
    check_room(gang, 2, 8, of(2))
    check_room(gang, 2, 8, of(0))
    check_room(recipe(nodes=4), 4, 8, of(2))
    assert any(
        "7 of 8 accelerators have no node" in note for note in check_room(recipe(nodes=1), 1, 8, of(8))
    )


def test_other_frameworks_share_the_devices_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not asked: their nodes find their devices themselves."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1f, GPU-2e")
    assert accelerators_of(recipe("sklearn"), {}).names == ("GPU-1f", "GPU-2e")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert accelerators_of(recipe("sklearn"), {}).names == ()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(machine, "_files", lambda: [object()] * 2)
    assert accelerators_of(recipe("sklearn"), {}).names == ("0", "1")
