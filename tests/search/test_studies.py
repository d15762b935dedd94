"""optuna's studies: of the user's as a search, of a run's history as one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from cerebro_elastic.core.model import events as ev
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import Event, RunEnded, StateRead
from cerebro_elastic.core.model.interfaces import ConfigView, SearchContext
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.units import CheckpointRef, Unit
from cerebro_elastic.errors import RecipeError, SearchError
from cerebro_elastic.recipes import Objective, Recipe, load_recipe
from cerebro_elastic.registry import load
from cerebro_elastic.search.studies import is_study, section_of, tell
from cerebro_elastic.search.study_journal import study_of
from support import builders
from support.histories import folded

LOSS = Objective(metric="loss")
FUNCTION = """
def space(trial):
    if trial.suggest_categorical("act", ["relu", "gelu"]) == "gelu":
        trial.suggest_float("slope", 0.0, 1.0)

def broken(trial):
    raise KeyError("lr")
"""


def recipe(**search: Any) -> Recipe:
    space = {"lr": {"loguniform": [1e-3, 1]}, "act": ["a", "b"]}
    return builders.recipe({"space": space, **search}, epochs=2, objective={"metric": "loss"})


def history(losses: dict[str, Sequence[float]]) -> list[Event]:
    """Epochs of one unit each, config after config; the last config is stopped."""
    events: list[Event] = [
        ev.RunOpened(1, Plan("r", 1, 2)),
        ev.NodeJoined(2, Node("n", "h", registration=2)),
        ev.HomesAssigned(3, {0: ("n",)}),
    ]
    for name, values in losses.items():
        created = len(events) + 1
        events.append(ev.ConfigCreated(created, Config(name, {"lr": 0.1, "act": "a"})))
        head, revision = None, created
        for epoch, value in enumerate(values):
            unit, at = Unit(name, epoch, 0), len(events) + 1
            output = CheckpointRef(f"{name}{epoch}", f"{name}{epoch}", 1)
            events.append(ev.UnitAssigned(at, Attempt(unit, "n", 2, revision, head)))
            chain = {"attempt": at, "input": head, "output": output}
            done = builders.visit(name, epoch, metrics={"loss": value}, **chain)
            events.append(ev.UnitCommitted(at + 1, done))
            head, revision = output, at + 1
        if len(values) < 2:
            events.append(ev.ConfigEnded(len(events) + 1, name, Status.STOPPED, "rests"))
    return [*events, RunEnded(len(events) + 1, "finished")]


def at_once(recipe: Recipe, events: Iterable[Event]) -> optuna.Study:
    """The study of all events."""
    rest = iter(events)
    return study_of(recipe, "r", lambda: rest)


def watched(recipe: Recipe, events: Sequence[Event]) -> optuna.Study:
    """The study of all events, looked at after each."""
    new: list[Event] = [events[0]]
    study = study_of(recipe, "r", lambda: [new.pop() for _ in new[:]])
    for event in events[1:]:
        new.append(event)
        study.get_trials()
    return study


def test_a_history_is_a_study_at_every_moment() -> None:
    events = history({"c0000": [3.0, 2.0], "c0001": [1.0], "c0002": [math.nan, math.nan]})
    study = watched(recipe(), events)
    states = [trial.state for trial in study.trials]
    assert states == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL]
    assert study.best_value == 2.0
    assert study.best_trial.user_attrs["config"] == "c0000"
    assert study.trials[0].intermediate_values == {1: 3.0, 2: 2.0}
    assert study.trials[0].params == {"lr": 0.1, "act": "a"}
    afresh = at_once(recipe(), events)
    assert [(t.state, t.values, t.params) for t in afresh.trials] == [
        (t.state, t.values, t.params) for t in study.trials
    ]
    read = at_once(recipe(), [StateRead(9, folded(events))])
    assert [trial.state for trial in read.trials] == states
    with pytest.raises(SearchError, match=r"copy it with optuna\.copy_study"):
        study.set_user_attr("a", 1)


def test_a_users_study_becomes_a_section_and_gets_its_trials() -> None:
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(), pruner=optuna.pruners.NopPruner())
    study.enqueue_trial({"lr": 0.5, "act": "b"})
    assert is_study(study)
    assert not is_study({"method": "tpe"})
    assert section_of(study, LOSS) == {"method": "tpe", "enqueue": [{"lr": 0.5, "act": "b"}]}
    tell(study, at_once(recipe(), history({"c0000": [3.0, 2.0]})))
    assert [trial.state for trial in study.trials] == [TrialState.FAIL, TrialState.COMPLETE]
    assert study.best_value == 2.0
    pruned = optuna.create_study(pruner=optuna.pruners.SuccessiveHalvingPruner())
    assert section_of(pruned, LOSS) == {"method": "asha", "sampler": "tpe"}


@pytest.mark.parametrize(
    ("study", "words"),
    [
        (
            lambda: optuna.create_study(direction="maximize"),
            "is to maximize, the objective 'loss' has mode 'min'",
        ),
        (lambda: optuna.create_study(directions=["minimize", "minimize"]), "minimize, minimize"),
        (
            lambda: optuna.create_study(pruner=optuna.pruners.WilcoxonPruner()),
            "pruner is WilcoxonPruner, which has no counterpart",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_study_that_cannot_be_a_search(study: Any, words: str) -> None:
    with pytest.raises(SearchError, match=words):
        section_of(study(), LOSS)


@pytest.mark.usefixtures("imports_as_found")
def test_a_space_may_be_a_function_of_a_trial(tmp_path: Any) -> None:
    (tmp_path / "users_space.py").write_text(FUNCTION)
    section = {"space_fn": "users_space:space", "method": "tpe", "num": 12, "concurrency": 12}
    resolved = load_recipe({**recipe().resolved(), "search": section}, root=tmp_path)
    search = load("cerebro.search", "tpe")(resolved)
    proposals = search.propose(SearchContext())
    assert len({p.hparams.get("slope") for p in proposals}) > 2
    assert all(("slope" in p.hparams) == (p.hparams["act"] == "gelu") for p in proposals)
    known = [ConfigView(f"c{i:04d}", p.hparams, origin=p.origin) for i, p in enumerate(proposals[:3])]
    assert search.propose(SearchContext(known)) == proposals[3:]
    broken = {**section, "space_fn": "users_space:broken"}
    failing = load("cerebro.search", "tpe")(
        load_recipe({**recipe().resolved(), "search": broken}, root=tmp_path)
    )
    with pytest.raises(RecipeError, match="space_fn fails: KeyError: 'lr'"):
        failing.propose(SearchContext())
    on_a_grid = {"method": "grid", "space_fn": "users_space:space"}
    with pytest.raises(RecipeError, match="needs a `space`, not a function"):
        load("cerebro.search", "grid")(
            load_recipe({**recipe().resolved(), "search": on_a_grid}, root=tmp_path)
        )
