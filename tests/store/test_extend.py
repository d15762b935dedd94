"""The transaction that extends a run: its guard, lost answers, and foreign writes."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import RunExtended
from cerebro_elastic.core.model.run import Extension, Plan, Spec
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.start.prepare_run import extend_in_store
from support.faults import Lost, losing
from support.ledger import Ledger
from support.memory_store import MemoryStore

SPEC = Spec(Plan("r", 1, 1), {"epochs": 1}, "d1", "", "", "", {"a.py": "1"}, "", "")


def longer(spec: Spec, epochs: int) -> Spec:
    number = len(spec.extensions) + 1
    extension = Extension(
        number, epochs, {}, (), ("c0",), spec.plan.epochs, {"epochs": spec.plan.epochs}, "d1"
    )
    plan = replace(spec.plan, epochs=epochs)
    return replace(spec, plan=plan, recipe={"epochs": epochs}, extensions=(*spec.extensions, extension))


class Stage:
    """A run that has ended with one config, which was stopped."""

    def __init__(self, faults: list[Lost | None] | None = None) -> None:
        self.store = MemoryStore()
        self.faults = list[Lost | None]()
        lossy = losing(self.store, lambda: self.faults.pop(0) if self.faults else None)
        self.ledger = Ledger(lossy, "r")
        assert self.ledger.open_run(SPEC)
        self.leader = self.ledger.lead("one", self.store.grant(30))
        assert self.leader is not None
        assert self.leader.create_config(Config("c0", {})) is not None
        config = self.ledger.config("c0")
        assert config is not None
        assert self.leader.end_config(config, Status.STOPPED, "") is not None
        assert self.leader.end_run("finished") is not None
        self.faults += faults or []

    def extensions(self) -> list[RunExtended]:
        return [event for event in self.ledger.history() if isinstance(event, RunExtended)]


@pytest.mark.parametrize("faults", list(product((None, Lost.REQUEST, Lost.ANSWER), repeat=2)))
def test_it_takes_effect_once_whatever_is_lost(faults: tuple[Lost | None, ...]) -> None:
    stage = Stage(list(faults))
    assert stage.ledger.extend_run(SPEC, longer(SPEC, 3))
    assert [event.extension.epochs for event in stage.extensions()] == [3]
    state = stage.ledger.state()
    assert state.plan is not None
    assert (state.plan.epochs, state.outcome, state.extended) == (3, None, stage.extensions()[0].revision)
    assert not stage.ledger.ended()


def test_of_two_people_one_wins_and_the_other_gets_an_error() -> None:
    stage = Stage()
    extend_in_store(stage.ledger, longer(SPEC, 3))
    with pytest.raises(RunError, match="extended by somebody else meanwhile"):
        extend_in_store(stage.ledger, longer(SPEC, 4))
    assert [event.extension.epochs for event in stage.extensions()] == [3]


def test_an_extension_that_was_begun_is_completed_and_the_code_is_the_runs_last() -> None:
    stage = Stage()
    known = replace(SPEC, code={"a.py": "0"})  # as the folder of somebody else has it
    done = extend_in_store(stage.ledger, longer(known, 3))
    assert done.code == {"a.py": "1"}
    assert extend_in_store(stage.ledger, longer(known, 3)) == done
    assert len(stage.extensions()) == 1
