"""Estimators, pipelines and boosters keep the contract of tasks; estimators equal their own loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from cerebro_elastic.extending.errors import CheckpointError, TaskError
from cerebro_elastic.extending.tasks import ObjectDecoder, ObjectEncoder, TaskState
from cerebro_elastic.testing import TaskContract
from cerebro_elastic.testing.task_contract import ROWS, Epoch
from cerebro_elastic.training import generators
from cerebro_sklearn.boosting import BoostingTask
from cerebro_sklearn.estimators import fitted_arrays
from cerebro_sklearn.section import BoostingSection, SklearnSection
from cerebro_sklearn.task import LIBRARIES, SklearnTask

HERE = Path(__file__).parent


def pipeline(alpha: float) -> Pipeline:
    return make_pipeline(StandardScaler(), SGDClassifier(loss="log_loss", alpha=alpha, average=2))


def network(alpha: float) -> MLPClassifier:
    return MLPClassifier((6,), alpha=alpha, batch_size=2)


def regressor(alpha: float) -> SGDRegressor:
    return SGDRegressor(alpha=alpha)


def configured(alpha: float) -> SGDRegressor:
    sklearn.set_config(assume_finite=alpha > 0.1)
    return SGDRegressor(alpha=alpha)


def test_what_a_config_sets_of_scikit_learn_goes_with_it_and_reaches_no_other() -> None:
    contract, task = (
        EstimatorContract(),
        SklearnTask(SklearnSection(estimator=f"{__name__}:configured"), HERE),
    )
    state = task.train(contract.job(0, None, hparams={"alpha": 0.5})).state
    assert not sklearn.get_config()["assume_finite"]
    assert "settings" not in task.train(contract.job(0, None, hparams={"alpha": 0.01})).state
    later = task.train(contract.job(1, state, hparams={"alpha": 0.5})).state
    assert later["settings"]["sklearn.set_config"]["assume_finite"]


class EstimatorContract(TaskContract):
    arrays = "numpy"
    hparams = {"alpha": 0.01}  # noqa: RUF012
    make_estimator: Any
    classes: int | None = 3

    def make(self) -> SklearnTask:
        name = f"{__name__}:{self.make_estimator.__name__}"
        return SklearnTask(SklearnSection(estimator=name, classes=self.classes), HERE)

    def trained(self, state: TaskState) -> Mapping[str, Any]:
        return fitted_arrays(ObjectDecoder(__name__, LIBRARIES).value(state["estimator"]))

    def sequential(self, epochs: Sequence[Epoch]) -> Mapping[str, Any]:
        generators.seed_all(self.seed)
        estimator = self.make_estimator(alpha=0.01)
        known = {} if self.classes is None else {"classes": np.arange(self.classes)}
        for x, y in (batch for epoch in epochs for batch in epoch.batches):
            last = estimator
            if isinstance(estimator, Pipeline):
                scaler, last = (step for _, step in estimator.steps)
                x = scaler.partial_fit(x).transform(x)
            last.partial_fit(x, y, **known)
        return fitted_arrays(estimator)


class TestPipeline(EstimatorContract):
    make_estimator = staticmethod(pipeline)


class TestNetwork(EstimatorContract):
    """It draws from numpy's generator, and has an optimizer with moments."""

    make_estimator = staticmethod(network)


class TestRegressor(EstimatorContract):
    make_estimator = staticmethod(regressor)
    classes = None


class BoosterContract(TaskContract):
    arrays = "numpy"
    exact = False

    def trained(self, state: TaskState) -> Mapping[str, Any]:
        return state


class TestLightGbm(BoosterContract):
    hparams = {"learning_rate": 0.3, "num_leaves": 3}  # noqa: RUF012

    def make(self) -> BoostingTask:
        params = {"objective": "multiclass", "num_class": 3, "min_data_in_leaf": 1}
        return BoostingTask(BoostingSection(library="lightgbm", rounds=2, params=params), HERE)


class TestXgBoost(BoosterContract):
    hparams = {"eta": 0.3}  # noqa: RUF012

    def make(self) -> BoostingTask:
        params = {"objective": "multi:softprob", "num_class": 3, "max_depth": 2}
        return BoostingTask(BoostingSection(library="xgboost", rounds=2, params=params), HERE)


def no_estimator() -> object:
    return object()


def test_of_hundreds_of_parameters_the_nearest_are_named() -> None:
    with pytest.raises(TaskError) as told:
        TestLightGbm().make().check({"learning_rat": 0.1})
    assert "did you mean 'learning_rate'" in str(told.value)
    assert len(str(told.value)) < 200


@pytest.mark.parametrize("contract", [TestLightGbm, TestXgBoost])
def test_stopping_inside_a_unit_is_refused(contract: type[BoosterContract]) -> None:
    with pytest.raises(TaskError, match="a unit adds all of its rounds"):
        contract().make().check({"early_stopping_round": 3})


def test_a_child_goes_on_with_its_own_hyper_parameters() -> None:
    contract = TestPipeline()
    (parent,) = contract.trained_units(1)
    job = contract.job(1, parent.state, hparams={"alpha": 0.5}, inherits={"alpha": 0.01})
    child = ObjectDecoder(__name__, LIBRARIES).value(contract.task().train(job).state["estimator"])
    assert child.steps[1][1].alpha == 0.5
    assert child.steps[1][1].t_ == 1 + ROWS[1] + ROWS[0], "the parent's steps count"


def forest() -> RandomForestClassifier:
    return RandomForestClassifier()


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"estimator": f"{__name__}:forest", "classes": 3}, "no partial_fit"),
        ({"estimator": "sklearn.linear_model:SGDClassifier"}, "task.classes"),
        ({"estimator": f"{__name__}:no_estimator"}, "expected an estimator"),
    ],
)
def test_what_cannot_learn_batch_by_batch_is_refused(section: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        SklearnTask(SklearnSection(**section), HERE).check({})


@pytest.mark.parametrize("name", ["os:system", "builtins:eval", "numpy:load", "sklearn.datasets:load_files"])
def test_a_state_calls_nothing_but_what_makes_estimators(name: str) -> None:
    tree = {"object": [0, "made", name, ("anything",), None]}
    with pytest.raises(CheckpointError, match="not made again"):
        ObjectDecoder("users", LIBRARIES).value(tree)


def test_arrays_that_are_the_same_stay_the_same() -> None:
    shared = np.arange(3.0)
    first, second = ObjectDecoder("users", LIBRARIES).value(ObjectEncoder().tree([shared, shared]))
    assert first is second
