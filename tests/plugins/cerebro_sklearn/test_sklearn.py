"""Estimators, pipelines and boosters keep the contract of tasks; estimators equal their own loop."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import sklearn
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.tasks import TaskState
from cerebro_elastic.hop.generators import generators
from cerebro_elastic.testing.task_contract import ROWS, Epoch, TaskContract
from cerebro_sklearn.boosting import BoostingTask
from cerebro_sklearn.section import BoostingSection, SklearnSection
from cerebro_sklearn.task import SklearnTask, fitted_arrays, objects_of

HERE = Path(__file__).parent


SCALER = StandardScaler()
DRAWS = np.random.RandomState(0)


def pipeline(
    alpha: float,
    loss: str = "log_loss",
    average: int = 2,
    shuffle: bool = True,
    class_weight: dict[int, float] | None = None,
) -> Pipeline:
    """Its scaler and its generator are objects that all configs get."""
    settings = {"average": average, "shuffle": shuffle, "class_weight": class_weight}
    return make_pipeline(SCALER, SGDClassifier(loss=loss, alpha=alpha, random_state=DRAWS, **settings))


def network(alpha: float, layers: list[int] | None = None, momentum: float = 0.9) -> MLPClassifier:
    layers = layers or []
    layers.append(6)
    return MLPClassifier(layers, alpha=alpha, batch_size=2, solver="sgd", momentum=momentum)


def regressor(alpha: float) -> SGDRegressor:
    return SGDRegressor(alpha=alpha)


def configured(alpha: float) -> SGDRegressor:
    sklearn.set_config(assume_finite=alpha > 0.1)
    return SGDRegressor(alpha=alpha)


def test_a_configs_settings_of_scikit_learn_are_refused_and_reach_no_other() -> None:
    contract, task = (
        EstimatorContract(),
        SklearnTask(SklearnSection(estimator=f"{__name__}:configured"), HERE),
    )
    with pytest.raises(TaskError, match=r"sklearn\.set_config changed in training"):
        task.train(contract.job(0, None, hparams={"alpha": 0.5}))
    assert not sklearn.get_config()["assume_finite"]
    task.train(contract.job(0, None, hparams={"alpha": 0.01}))


class EstimatorContract(TaskContract):
    arrays = "numpy"
    hparams = {"alpha": 0.01}  # noqa: RUF012
    make_estimator: Any
    classes: int | None = 3

    def make(self) -> SklearnTask:
        name = f"{__name__}:{self.make_estimator.__name__}"
        return SklearnTask(SklearnSection(estimator=name, classes=self.classes), HERE)

    def trained(self, state: TaskState) -> Mapping[str, Any]:
        return fitted_arrays(self.estimator(state))

    def estimator(self, state: TaskState) -> Any:
        made = copy.deepcopy(self.make_estimator(alpha=0.01))
        objects_of(made).restore(state)
        return made

    def sequential(self, epochs: Sequence[Epoch]) -> Mapping[str, Any]:
        generators.seed_all(self.seed)
        estimator = copy.deepcopy(self.make_estimator(alpha=0.01))
        known = {} if self.classes is None else {"classes": np.arange(self.classes)}
        for x, y in (batch for epoch in epochs for batch in epoch.batches):
            last = estimator
            if isinstance(estimator, Pipeline):
                scaler, last = (step for _, step in estimator.steps)
                x = scaler.partial_fit(x).transform(x)
            last.partial_fit(x, y, **known)
        return fitted_arrays(estimator)


class TestPipeline(EstimatorContract):
    variants: ClassVar[dict[str, dict[str, Any]]] = {
        "a float": {"alpha": 0.5},
        "an int": {"average": 1},
        "a text": {"loss": "modified_huber"},
        "a bool": {"shuffle": False},
        "a mapping, not null": {"class_weight": {0: 2.0, 1: 1.0, 2: 0.5}},
        "batch_size": {"batch_size": 2},
    }
    make_estimator = staticmethod(pipeline)


class TestNetwork(EstimatorContract):
    """It draws from numpy's generator, and has an optimizer with moments."""

    variants: ClassVar[dict[str, dict[str, Any]]] = {
        "a float of the optimizer": {"momentum": 0.0},
        "a list": {"layers": [5]},
    }

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
    variants: ClassVar[dict[str, dict[str, Any]]] = {
        "a float": {"learning_rate": 0.1},
        "an int": {"rounds": 1},
        "a text": {"boosting": "dart"},
        "a bool": {"boost_from_average": False},
        "a list": {"feature_contri": [0.1, 1.0, 1.0, 1.0]},
    }
    hparams = {"learning_rate": 0.3, "num_leaves": 3}  # noqa: RUF012

    def make(self) -> BoostingTask:
        params = {"objective": "multiclass", "num_class": 3, "min_data_in_leaf": 1}
        return BoostingTask(BoostingSection(library="lightgbm", rounds=2, params=params), HERE)


class TestXgBoost(BoosterContract):
    variants: ClassVar[dict[str, dict[str, Any]]] = {
        "a float": {"eta": 0.1},
        "an int": {"min_child_weight": 2},
        "a text": {"booster": "gblinear"},
        "a list": {"eval_metric": ["mlogloss"], "max_delta_step": 0.01},
    }
    hparams = {"eta": 0.3}  # noqa: RUF012

    def make(self) -> BoostingTask:
        params = {"objective": "multi:softprob", "num_class": 3, "max_depth": 2}
        return BoostingTask(BoostingSection(library="xgboost", rounds=2, params=params), HERE)


def no_estimator() -> object:
    return object()


@pytest.mark.parametrize("contract", [TestLightGbm, TestXgBoost])
@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("early_stopping_round", 3, "a unit adds all of its rounds"),
        ("categorical_feature", "name:city", "whose columns have no names: give their numbers"),
    ],
)
def test_what_a_unit_cannot_honour_is_refused(
    contract: type[BoosterContract], name: str, value: object, why: str
) -> None:
    with pytest.raises(TaskError, match=why):
        contract().make().check({name: value})


def test_a_child_goes_on_with_its_own_hyper_parameters() -> None:
    contract = TestPipeline()
    (parent,) = contract.trained_units(1)
    job = contract.job(1, parent.state, hparams={"alpha": 0.5}, inherits={"alpha": 0.01})
    child = contract.estimator(contract.task().train(job).state)
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
def test_an_estimator_that_cannot_learn_batch_by_batch_is_refused(
    section: dict[str, Any], message: str
) -> None:
    with pytest.raises(TaskError, match=message):
        SklearnTask(SklearnSection(**section), HERE).check({})
