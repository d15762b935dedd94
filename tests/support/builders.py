"""Values of the model as most tests need them: a test names only what it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cerebro_elastic.core.model.attempts import Failure, FailureKind, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.units import CheckpointRef, Phase, Unit
from cerebro_elastic.recipes import Recipe, load_recipe

REF = CheckpointRef("u", "d", 1)


def config(name: str = "c0", hparams: Mapping[str, Any] | None = None, **fields: Any) -> Config:
    """A config with a checkpoint."""
    return replace(Config(name, hparams or {}, head=REF, revision=9), **fields)


def nodes(names: Iterable[str], **fields: Any) -> dict[str, Node]:
    """Nodes on one host, the first of them longest there."""
    return {name: Node(name, "h", registration=at, **fields) for at, name in enumerate(names, start=1)}


def visit(
    config: str = "c0",
    epoch: int = 0,
    partition: int = 0,
    phase: Phase = Phase.TRAIN,
    node: str = "n",
    seconds: float = 1.0,
    **fields: Any,
) -> Visit:
    """A visit of one batch, as the first of its epoch, without a hop."""
    unit = Unit(config, epoch, partition, phase)
    return replace(Visit(unit, 0, node, 1, None, REF, 1, 1, seconds, 0.0, 0.0), **fields)


def failure(unit: Unit, kind: FailureKind = FailureKind.CRASH, node: str = "b", **fields: Any) -> Failure:
    """A failure of the node's ninth attempt."""
    return replace(Failure(unit, node, 9, kind, "boom"), **fields)


def recipe(search: Mapping[str, Any], root: Path | None = None, **sections: Any) -> Recipe:
    """A recipe of two partitions that no process can train."""
    task = {"kind": "torch", "model_fn": "m:f", "loss": "mse_loss", "optimizer": "SGD"}
    given = {"task": task, "data": {"source": "x.npz", "partitions": 2}, "search": search, **sections}
    return load_recipe(given, root=root)
