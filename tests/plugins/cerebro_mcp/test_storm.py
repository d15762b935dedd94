"""Agents propose without a pause, also nonsense, while nodes die, leaders change and answers are lost."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from cerebro_elastic import Run, StoreSettings, __version__
from cerebro_elastic.core.history.members import by_config
from cerebro_elastic.core.model.events import ConfigCreated, ConfigEnded
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.errors import CerebroError, TxnUnknown
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from cerebro_elastic.store.client.base import Compare, Op, TxnResult
from cerebro_elastic.store.ledger.operators import Allowance
from cerebro_elastic.system.run_key import VARIABLE
from cerebro_mcp.text import MOST_TOKENS, tokens
from cerebro_mcp.tools import Desk, call
from support.world import RestlessSearch, World

RECIPE: dict[str, Any] = {
    "task": {"kind": "torch", "model_fn": "a_net:model", "loss": "cross_entropy", "optimizer": "SGD"},
    "data": {"source": "a:b"},
    "objective": {"metric": "val_acc", "mode": "max"},
    "search": {"method": "random", "num": 2, "space": {"lr": {"loguniform": [0.01, 1.0]}}},
}
RATES = (0.02, 0.05, 0.1, 0.5, 0.7, 1, 1.0, 7.0, "0.02", None)


class Killed(BaseException):
    """The agent's server was killed."""


class Storm:
    """A run, and two servers of one agent that reach its store."""

    def __init__(self, seed: int, home: Path) -> None:
        self.rng = random.Random(seed)
        self.repeats = 2 * (seed % 2)
        plan = Plan("storm", 2, 2, repeats=self.repeats)
        self.world = World(plan, 2, LongestRemaining(), search=RestlessSearch)
        self.world.ledger.replace_spec(Spec(plan, RECIPE, "", "", "", str(home), {}, "", __version__))
        run = Run.open("storm", home=home, store=StoreSettings.at("127.0.0.1:2379"))
        self.allowance = Allowance("robot", 4, 6 * (self.repeats or 1))
        self.desk = Desk(run, self.allowance, may_stop=True)
        self.answers: list[str] = []
        self.killed = 0
        self.inside = False
        """Whether an agent is between what it has read and its transaction."""

    def __getattr__(self, verb: str) -> Any:
        return getattr(self.world.store, verb)

    def close(self) -> None:
        """As a store's."""

    def txn(self, compares: Sequence[Compare], ops: Sequence[Op]) -> TxnResult:
        """As a store's, of an agent."""
        if not self.inside:
            self.inside = True
            for _ in range(self.rng.randrange(3)):
                self.step()
            self.inside = False
        fault = self.rng.random()
        if fault < 0.1:
            raise TxnUnknown("never sent")
        result: TxnResult = self.world.store.txn(compares, ops)
        if fault < 0.2:
            raise TxnUnknown("the answer is lost")
        if fault < 0.3:
            raise Killed
        return result

    def step(self) -> None:
        step = self.rng.choice(
            ["control", "control", "elect", "join", "lose", "start", "commit", "fail", "agent"]
        )
        match step:
            case "control" | "elect":
                getattr(self.world, step)()
            case "join" | "lose" | "start":
                getattr(self.world, step)(self.rng.choice("ab"))
            case "commit" | "fail":
                getattr(self.world, step)(self.rng.randrange(3))
            case _:
                self.propose()
        assert self.world.check() == []
        self.world.check_fold()

    def propose(self) -> None:
        config = self.rng.choice(
            [*(each.seen_as for each in self.world.ledger.state().configs.values()), "c9"]
        )
        reason, hparams = f"why {self.rng.random()}", {"lr": self.rng.choice(RATES)}
        name, arguments = self.rng.choice(
            [
                ("add", {"hparams": hparams, "reason": reason}),
                ("add", {"like": config, "hparams": hparams, "start": "here", "reason": reason}),
                ("stop", {"config": config, "reason": reason}),
                ("leaderboard", {}),
            ]
        )
        try:
            answer = call(self.desk, name, arguments)
        except CerebroError as error:
            answer = f"refused: {error}"
        except Killed:
            self.killed += 1
            return
        assert tokens(answer) <= MOST_TOKENS
        self.answers.append(f"{reason} (by robot): {answer}" if name != "leaderboard" else "")


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Storm]:
    """A storm of this seed, whose run has begun."""

    def begun(seed: int) -> Storm:
        monkeypatch.delenv(VARIABLE, raising=False)
        storm = Storm(seed, tmp_path)
        monkeypatch.setattr("cerebro_elastic.runs.attach.EtcdStore", lambda _settings: storm)
        monkeypatch.setattr(StoreSettings, "trusted", True)
        storm.world.elect()
        storm.world.join("a")
        for _ in range(6):
            storm.world.control()
        return storm

    return begun


def test_in_a_storm_agents_break_nothing(begin: Callable[[int], Storm]) -> None:
    assert sum(added_in(begin(seed)) for seed in range(2)), "some was added"


def added_in(storm: Storm) -> int:
    """How many configs agents have added in a storm, by the answers that they got; it breaks nothing."""
    world = storm.world
    for _ in range(60):
        storm.step()
        state = world.ledger.state()
        added, units = storm.allowance.used(state.configs.values(), world.plan)
        assert added <= storm.allowance.configs
        assert units <= (storm.allowance.units or 0)
    assert world.finish(["a", "b"], 300)
    assert world.check() == []
    configs = list(world.ledger.state().configs.values())
    trained = [(json.dumps(dict(c.hparams)), c.parent, c.fold, c.repeat) for c in configs]
    assert len(set(map(str, trained))) == len(configs), "no config twice"
    acts = [e for e in world.events if isinstance(e, ConfigCreated | ConfigEnded) and e.by_hand]
    reasons = [e.config.reason if isinstance(e, ConfigCreated) else e.reason for e in acts]
    assert all(reason.endswith("(by robot)") for reason in reasons)
    for answer in filter(None, storm.answers):
        reason, _, said = answer.partition(": ")
        assert (reason in reasons) != said.startswith("refused: ")
    added = sum(" is added " in answer for answer in storm.answers)
    mine = [c for c in configs if c.origin.get("agent")]
    assert added <= len(by_config(mine)) <= added + storm.killed
    return added
