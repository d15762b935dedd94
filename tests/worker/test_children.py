"""A child begins with its parent's checkpoint: kept as long as it is needed, and made again if it must be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scene import Scene

from cerebro_elastic.core.history.progress import next_units
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.hop import checkpoint


def config(scene: Scene, name: str) -> Config:
    found = scene.ledger.config(name)
    assert found is not None
    return found


def perform(scene: Scene, name: str) -> CheckpointRef:
    """The config's next unit; its new head."""
    before = config(scene, name)
    unit = next_units(before, scene.plan)[0]
    attempt = Attempt(unit, "n", scene.node.registration, before.revision, before.head)
    token = scene.leader.assign(attempt)
    assert token is not None
    scene.attempts.perform(replace(attempt, token=token))
    head = config(scene, name).head
    assert head is not None
    assert head != before.head
    return head


def child_of(scene: Scene, name: str, lr: float) -> str:
    created = scene.ledger.clone(name, {"lr": lr})
    assert created is not None
    return created.id


def test_a_childs_first_checkpoint_is_kept_until_it_has_two_of_its_own(scene: Scene) -> None:
    perform(scene, "c")
    shared = perform(scene, "c")
    child = child_of(scene, "c", 0.05)
    grandchild = child_of(scene, child, 0.01)
    for _ in range(3):
        perform(scene, "c")
    checkpoint.verify(shared)
    for _ in range(2):
        perform(scene, child)
    perform(scene, "c")
    checkpoint.verify(shared)
    for _ in range(2):
        perform(scene, grandchild)
    perform(scene, "c")
    assert not Path(shared.url).exists(), "all are weaned"


def test_a_child_is_repaired_from_its_ancestors(scene: Scene) -> None:
    shared = perform(scene, "c")
    child = child_of(scene, "c", 0.05)
    first = perform(scene, child)
    assert config(scene, child).epoch == 1
    for ref in (first, shared):
        (Path(ref.url) / "tensors.safetensors").write_bytes(b"damaged")
    perform(scene, child)
    checkpoint.verify(shared)
    checkpoint.verify(first)


def test_a_child_trains_at_its_own_rate(scene: Scene) -> None:
    perform(scene, "c")
    child = child_of(scene, "c", 0.05)
    state = checkpoint.load(perform(scene, child))
    assert [group["lr"] for group in state["optimizer"]["param_groups"]] == [0.05]
    replayer = checkpoint.load(perform(scene, child))
    assert [group["lr"] for group in replayer["optimizer"]["param_groups"]] == [0.05]
