"""Nodes by real torchrun for a run that the test leads through its ledger, as a controller would."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cerebro_elastic import __version__
from cerebro_elastic.core.history.progress import next_units, skipped
from cerebro_elastic.core.model.attempts import Attempt, Member
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.core.model.units import Phase, Strategy, Unit
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.start.agents import agent_command
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.client.lease import LeaseKeeper
from cerebro_elastic.system import forkserver
from cerebro_elastic.system.run_key import RunKey
from support.agents import Agents
from support.ledger import Ledger
from support.prepared import prepare
from support.waiting import wait_for

RECIPE = {
    "epochs": 2,
    "task": {"kind": "torch", "model_fn": "a_task:model", "input_fn": "a_task:prepared", "optimizer": "AdamW",
             "loss": "cross_entropy", "metrics": {"accuracy": "accuracy"}},
    "search": {"space": {"deed": ["train"], "lr": [0.01]}},
    "limits": {"hang_seconds": 60, "hang_factor": 1},
}  # fmt: skip


class Stage(Agents):
    """A run of the functions in ``module`` on ``etcd``, and its nodes."""

    def __init__(
        self,
        folder: Path,
        etcd: EmbeddedEtcd,
        stack: ExitStack,
        module: str,
        source: Callable[[], Mapping[str, np.ndarray]],
        *,
        strategies: Sequence[Strategy],
        batch_size: int,
        storage: str | None = None,
    ) -> None:
        super().__init__(folder, stack)
        self._etcd = etcd
        self.run = f"r{uuid.uuid4().hex[:8]}"
        (folder / "a_task.py").write_text(module)
        data = str(folder / "data")
        manifest = prepare(source, data, partitions=2, seed=1, valid=0.2)
        recipe = load_recipe({**RECIPE, "data": {"url": data, "batch_size": batch_size}}, root=folder)
        self.plan = Plan(self.run, 2, 2, strategies=tuple(strategies))
        self.spec = Spec(
            *(self.plan, recipe.resolved(), recipe.digest, data, manifest.digest),
            *(str(folder), {}, storage or str(folder), __version__),
        )
        self.ledger = Ledger(
            stack.enter_context(closing(EtcdStore(etcd.settings))), self.run, RunKey.from_env(os.environ)
        )
        self.ledger.open_run(self.spec)
        leader = self.ledger.lead("test", stack.enter_context(LeaseKeeper(self.ledger.store, 30)).lease)
        assert leader is not None
        self.leader = leader

    def start(self, name: str, ranks: int, **env: str) -> forkserver.Process:
        (endpoint,) = self._etcd.settings.endpoints
        return self.launch(name, agent_command(self.run, endpoint, name, ranks), **env)

    def node(self, name: str) -> Node:
        """The node, once it is registered."""
        found: Node = wait_for(lambda: self.ledger.node(name), f"{name} to register")
        return found

    def config(self, name: str) -> Config:
        config = self.ledger.config(name)
        assert config is not None
        return config

    def create(self, name: str, **hparams: Any) -> None:
        config = Config(name, {"deed": "train", "lr": 0.01, **hparams})
        assert self.leader.create_config(config)

    def assign(
        self, config: str, nodes: Sequence[str], strategy: Strategy, *, profile: bool = False
    ) -> Attempt:
        """The config's next unit, or a profile of ``strategy``, to these nodes."""
        at, (lead, *others) = self.config(config), [self.node(name) for name in nodes]
        unit = next_units(at, self.plan)[0]
        attempt = Attempt(
            Unit(unit.config, unit.epoch, unit.partition, Phase.PROFILE) if profile else unit,
            lead.name,
            lead.registration,
            at.revision,
            at.head,
            strategy=strategy,
            gang=tuple(Member(node.name, node.registration) for node in others),
            skip=0 if profile else skipped(at),
        )
        token = self.leader.assign(attempt)
        assert token is not None, f"{attempt} was not let through"
        return replace(attempt, token=token)

    def partial_unit(self, attempt: Attempt, node: str) -> None:
        """Wait until a rank of the node takes part."""
        began = partial(self.said, node, "began")
        wait_for(lambda: any(line["attempt"] == attempt.token for line in began()), f"{attempt} to begin")

    def done(self, attempt: Attempt) -> None:
        """Wait until the attempt has ended, one way or the other."""
        both = (self.ledger.assignment, self.ledger.saving)
        wait_for(lambda: all(at(attempt.node) is None for at in both), f"the end of {attempt}")
