"""A node of a run with one config, and what performs its attempts: real task, data, checkpoints and ledger;
only the store is in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from cerebro_elastic.core.history.progress import next_units, skipped
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.units import Phase, Strategy
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.from_recipe import plan_of
from cerebro_elastic.system.clock import SystemClock
from cerebro_elastic.system.logs import EventLog
from cerebro_elastic.training.unit_runner import UnitRunner
from cerebro_elastic.worker.group_rendezvous import RankIdentity
from cerebro_elastic.worker.leaving import Leaving
from cerebro_elastic.worker.rank_attempt import perform
from cerebro_elastic.worker.rank_context import RankContext
from cerebro_elastic.worker.watchdog import Watchdog
from support.ledger import Ledger
from support.memory_store import MemoryStore
from support.prepared import prepare
from support.waiting import wait_for

FUNCTIONS = """
import functools
import sys
import time
import torch
from torch import nn


def model(deed):
    if deed == "freeze":
        frozen = nn.Sequential(nn.Linear(2, 600), nn.Linear(600, 600)).requires_grad_(False)
        return nn.Sequential(frozen, nn.Linear(600, 2))
    return shared() if deed == "share" else nn.Linear(2, 2)


@functools.cache
def shared():
    return nn.Linear(2, 2)


def train(model, optimizer, batches, deed):
    try:
        return steps(model, optimizer, batches, deed)
    except Exception:
        if deed != "hide":
            raise
        return {"loss": 0.0}
    finally:
        if deed == "hoard at last":
            torch.ones(25_000_000)


def steps(model, optimizer, batches, deed):
    for x, y in batches:
        if deed == "count":
            with open(__file__ + ".seen", "a") as seen:
                print("a batch", file=seen)
        if deed == "raise":
            raise ValueError("not to my liking")
        if deed == "exit":
            sys.exit(0)
        if deed == "memory":
            raise torch.OutOfMemoryError("out of memory")
        if deed == "hoard":
            hoard = torch.ones(25_000_000)
        if deed == "hang":
            time.sleep(600)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return {"loss": loss.item() * (float("nan") if deed == "nan" else 1.0)}
"""

RECIPE = {
    "epochs": 4,
    "task": {"kind": "torch", "model_fn": "an_act:model", "train_fn": "an_act:train", "optimizer": "SGD",
             "loss": "cross_entropy"},
    "search": {"space": {"deed": ["train"], "lr": [0.1]}},
    "objective": {"metric": "train_loss", "mode": "min"},
}  # fmt: skip


def rows() -> dict[str, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(16, 2)).astype(np.float32)
    return {"x": x, "y": (x[:, 0] > 0).astype(np.int64)}


class Attempts:
    """The attempts of one rank; each has cleaned up behind it when it returns."""

    def __init__(self, context: RankContext) -> None:
        self.context = context

    def perform(self, attempt: Attempt, own: Node | None = None) -> None:
        perform(self.context, attempt, own)
        self.context.cleaner.wait()


class Scene:
    """A unit may take ``memory`` bytes; what is saved within ``quick`` seconds is so in the foreground;
    the dataset is prepared at the URL ``data``, ``too`` are further sections of the recipe."""

    def __init__(
        self,
        folder: Path,
        deed: str,
        *,
        batch_size: int = 4,
        memory: int | None = None,
        quick: float = 60.0,
        storage: str | None = None,
        configs: str = "c",
        data: str | None = None,
        valid: float = 0.0,
        **too: Any,
    ) -> None:
        self._memory = memory
        self._quick = quick
        self.next_waits = False
        (folder.parent / "an_act.py").write_text(FUNCTIONS)
        data = data or str(folder / "data")
        manifest = prepare(rows, data, partitions=2, seed=1, valid=valid)
        recipe = load_recipe(
            {**RECIPE, "data": {"url": data, "batch_size": batch_size}, **too}, root=folder.parent
        )
        self.plan = plan_of(recipe, "r", len(manifest.train), len(manifest.valid))
        self.spec = Spec(
            *(self.plan, recipe.resolved(), recipe.digest, data, manifest.digest, str(folder.parent), {}),
            *(storage or str(folder), "v"),
        )
        self.store = MemoryStore()
        self.ledger = Ledger(self.store, "r")
        self.ledger.open_run(self.spec)
        leader = self.ledger.lead("me", self.store.grant(99))
        assert leader is not None
        self.leader = leader
        self.register()
        for name in configs:
            leader.create_config(Config(name, {"deed": deed, "lr": 0.1}))
        self.unit_runner = UnitRunner(self.spec, folder / "cache", "cpu")
        self.dump = (folder / "dump").open("w+")
        self.checkpoints = folder / "checkpoints" / "c"

    @contextmanager
    def rank(self) -> Iterator[Self]:
        """A rank of the node; one at a time."""
        clock = SystemClock()
        self.leaving, self.watchdog = Leaving(clock), Watchdog(self.dump, clock)
        self.alarms: list[BaseException] = []
        context = RankContext(
            ledger=self.ledger,
            spec=self.spec,
            unit_runner=self.unit_runner,
            clock=clock,
            log=EventLog(),
            identity=RankIdentity("n", "boot"),
            leaving=self.leaving,
            watchdog=self.watchdog,
            alarm=self.alarms.append,
            memory_limit_bytes=self._memory,
            quick_save_seconds=self._quick,
            next_waits=lambda: self.next_waits,
        )
        with context:
            self.attempts = Attempts(context)
            yield self

    def register(self, boot: str = "boot") -> None:
        self.lease = self.store.grant(99)
        self.node = self.ledger.register(Node("n", "host", boot=boot), self.lease)

    @property
    def config(self) -> Config:
        return self.config_of("c")

    def config_of(self, name: str) -> Config:
        config = self.ledger.config(name)
        assert config is not None
        return config

    def assign(
        self,
        phase: Phase = Phase.TRAIN,
        strategy: Strategy = Strategy(),
        config_id: str = "c",
        *,
        behind: int = 0,
    ) -> Attempt:
        config = self.config_of(config_id)
        unit = replace(next_units(config, self.plan)[0], phase=phase)
        attempt = Attempt(
            *(unit, "n", self.node.registration, config.revision, config.head),
            skip=skipped(config),
            strategy=strategy,
            queued_behind=behind,
            second_key=behind > 0,
        )
        # A save that ends in this moment has changed what the leader has just read.
        token = wait_for(lambda: self.leader.assign(attempt), "the assignment")
        assert token is not None
        return replace(attempt, token=token)

    def perform(self) -> None:
        """The next unit."""
        self.attempts.perform(self.assign())
