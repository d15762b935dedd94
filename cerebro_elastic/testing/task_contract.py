"""The contract of every ``Task``, as a class of tests.

Example::

    class TestMyTask(TaskContract):
        arrays = "numpy"
        hparams = {"lr": 0.1}
        variants = {"float": {"lr": 0.0}, "batch_size": {"batch_size": 2}}

        def make(self) -> Task:
            return MyTask(MySection(model_fn="my_model:build"), FOLDER)

        def trained(self, state: TaskState) -> Mapping[str, Any]:
            return state["weights"]

        def sequential(self, epochs: Sequence[Epoch]) -> Mapping[str, Any]:
            model = my_model.build(lr=0.1)
            for epoch in epochs:
                for x, y in epoch.batches:
                    model.step(x, y)
            return model.weights
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from uuid import uuid4

import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from numpy.typing import NDArray

from cerebro_elastic.core.model.units import CheckpointRef, Phase, Unit
from cerebro_elastic.data.reading.column_rows import Arrays
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.errors import TaskError
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.hop.generators import generators
from cerebro_elastic.training import job_batches
from cerebro_elastic.training.task import (
    Exports,
    Stopped,
    SupportsTest,
    Task,
    TaskState,
    UnitJob,
    UnitResult,
    never,
)
from cerebro_elastic.training.test_metrics import intervals, named_as_test

ROWS = (11, 8, 5)
"""The rows of the training partitions. The last batches of a partition are short ones."""
ORDERS = ((1, 0, 2), (2, 0, 1))
"""The partitions in the order of visits, per epoch."""
UNITS = tuple((epoch, place) for epoch, order in enumerate(ORDERS) for place in range(len(order)))


@dataclass(frozen=True)
class Epoch:
    """One epoch of ordinary, sequential training."""

    number: int
    """Its number, from 0."""
    batches: Sequence[Any]
    """Its batches, in the order in which the units take them."""
    validation: Sequence[Any]
    """The batches of the validation after it."""


@dataclass(frozen=True)
class _Shared:
    """Files and jobs that the tests of a class share."""

    task: Task
    results: list[UnitResult] = field(default_factory=list)


_SHARED: dict[type, _Shared] = {}
"""By the class of tests; not in the class, which a task may take for a part of the user's module."""


class TaskContract:
    """Tests of a task. A subclass overrides ``make``, ``trained`` and ``sequential``, and whatever else
    differs.

    The data have the columns ``x`` (rows of 4 numbers) and ``y`` (a class, 0 to 2), in batches ``(x, y)``.
    """

    arrays: ClassVar[Arrays] = "torch"
    """As the task's section says (``ARRAYS``)."""
    hparams: ClassVar[Mapping[str, Any]] = {}
    """Hyper-parameters that the task accepts."""
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Other configs of the same task: their differences from ``hparams``, by the purpose of each. Name one
    for each kind of value (float, int, text, bool, null, list, mapping, batch_size) and for each place where
    values end up: in an optimizer, in an architecture, in a closure or an object. No two may train alike."""
    batch_size: ClassVar[int] = 3
    """Rows of a batch."""
    seed: ClassVar[int] = 5
    """The run's seed, less than 2**32: a task's first random numbers follow from it."""
    exact: ClassVar[bool] = True
    """Whether units equal sequential training bit for bit. Where a framework trains all rows of a unit at
    once (boosting), sequential training does not exist: then ``sequential`` is not called."""
    measures_means: ClassVar[bool] = True
    """Whether one of the task's metrics is a mean over rows, as a loss or an accuracy is; one over tokens is
    not. Such metrics of a test set have intervals."""

    def make(self) -> Task:
        """A new instance of the task."""
        raise NotImplementedError

    def trained(self, state: TaskState) -> Mapping[str, Any]:
        """The arrays of a state that training has made, by name: weights, the optimizer's moments, ..."""
        raise NotImplementedError

    def sequential(self, epochs: Sequence[Epoch]) -> Mapping[str, Any]:
        """The same arrays, by the framework alone: one model, trained on all batches in one go."""
        raise NotImplementedError

    # --- the parts of the tests

    def partition(self, index: int, rows: int) -> Partition:
        """A partition of the contract's data."""
        x = np.random.default_rng(index).standard_normal((rows, 4)).astype(np.float32)
        y: NDArray[np.int64] = (x.sum(1) > 0).astype(np.int64) + (x[:, 0] > 0.5)
        return Partition(index, rows, {"x": x, "y": y})

    def job(self, number: int, state: TaskState | None, **changes: Any) -> UnitJob:
        """The job of the unit ``number`` of ``UNITS``."""
        epoch, place = UNITS[number]
        order = ORDERS[epoch]
        ends_epoch = place + 1 == len(order)
        job = UnitJob(
            unit=Unit("c0", epoch, order[place]),
            hparams=dict(self.hparams),
            seed=self.seed,
            epochs=len(ORDERS),
            visited=order[:place],
            rows=ROWS,
            partition=self.partition(order[place], ROWS[order[place]]),
            validation=[self.partition(9, 7)] if ends_epoch else (),
            loader=LoaderSettings(self.batch_size, arrays=self.arrays),
            state=None if state is None else hop(state),
            device="cpu",
        )
        return replace(job, **changes)

    def task(self) -> Task:
        """A task that all tests of the class share, since some compile for each instance."""
        return self._shared.task

    def trained_units(self, count: int = len(UNITS)) -> list[UnitResult]:
        """The first units, one after the other."""
        results = self._shared.results
        for number in range(len(results), count):
            result = self.task().train(self.job(number, results[-1].state if results else None))
            results.append(replace(result, state=hop(result.state)))
        return results[:count]

    @property
    def _shared(self) -> _Shared:
        if type(self) not in _SHARED:
            _SHARED[type(self)] = _Shared(self.make())
        return _SHARED[type(self)]

    def epochs(self) -> list[Epoch]:
        """The epochs of sequential training."""
        jobs = [self.job(number, None) for number in range(len(UNITS))]
        return [
            Epoch(
                number,
                [batch for job in of_epoch for batch in job_batches.training_batches(job)],
                list(job_batches.natural_batches(of_epoch[-1], of_epoch[-1].validation)),
            )
            for number, of_epoch in ((n, [j for j in jobs if j.unit.epoch == n]) for n in range(len(ORDERS)))
        ]

    # --- the contract

    def test_a_unit_reports_what_it_has_trained(self) -> None:
        for number, result in enumerate(self.trained_units()):
            job = self.job(number, None)
            assert (result.samples, result.whole) == (job.partition.rows, True)
            assert result.batches == job_batches.unit_batches(job)
            assert result.not_finite is None
            for row in result.log:
                assert row["epoch"] == job.unit.epoch, "a row of the log has its epoch"
                assert "step" in row, "a row of the log has its step"

    def test_a_result_depends_on_the_job_alone(self) -> None:
        first, second = self.trained_units(2)
        task = self.make()
        for number, before, expected in (
            (1, first.state, second),
            (0, None, first),
            (1, first.state, second),
        ):
            random.random()
            np.random.random()
            result = task.train(self.job(number, before))
            assert digest(result.state) == digest(expected.state), "the state"
            assert result.metrics == expected.metrics
            assert list(result.log) == list(expected.log)

    def test_two_configs_on_one_rank_equal_each_alone(self) -> None:
        """Objects that a task keeps (compiled functions, models) serve only the configs that they suit."""
        if not self.variants:
            pytest.skip("name other configs in `variants`")
        names = ["hparams", *self.variants]
        before = [dict(self.hparams), *({**self.hparams, **change} for change in self.variants.values())]
        configs = copy.deepcopy(before)
        alone = [self._curves(self.make(), [config])[0] for config in configs]
        together = self._curves(self.task(), configs)
        assert configs == before, "the task changes hyper-parameters that others get, too"
        differing = [name for name, one, other in zip(names, alone, together, strict=True) if one != other]
        assert not differing, "these configs train otherwise beside others than alone"
        alike = [name for name, curve in zip(names, alone, strict=True) if alone.count(curve) > 1]
        assert not alike, "these configs train alike, so that they show nothing"

    def _curves(self, task: Task, configs: Sequence[Mapping[str, Any]]) -> list[str]:
        """The results of two units of each config. The configs take turns, in reverse order in the second
        unit."""
        states: list[TaskState | None] = [None] * len(configs)
        curves = [""] * len(configs)
        rows = 2 * self.batch_size  # few, and in batches of one shape: some tasks compile for each
        of_rows = {"rows": (rows,) * len(ROWS), "partition": self.partition(0, rows)}
        for number, order in enumerate((range(len(configs)), reversed(range(len(configs))))):
            for at in order:
                result = task.train(self.job(number, states[at], hparams=configs[at], **of_rows))
                states[at] = result.state
                curves[at] += f"{digest(result.state)} {result.metrics} {result.log}\n"
        return curves

    def test_a_unit_leaves_the_generators_as_they_were(self) -> None:
        before = generators.capture()
        self.task().train(self.job(0, None))
        assert digest({"generators": generators.capture()}) == digest({"generators": before})

    def test_units_equal_sequential_training(self) -> None:
        if not self.exact:
            pytest.skip("the framework does not train batch after batch")
        actual = self.trained(self.trained_units()[-1].state)
        with generators.borrowed():
            expected = self.sequential(self.epochs())
        assert actual.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(np.asarray(actual[name]), np.asarray(value), err_msg=name)

    @pytest.mark.parametrize("number", [0, 2, 3])
    def test_a_unit_in_parts_equals_one_in_one_go(self, number: int) -> None:
        before = self.trained_units(number)[-1].state if number else None
        whole = self.task().train(self.job(number, before))
        for stops in ([1], [*range(1, whole.batches)]):
            if not self.task().splits:
                with pytest.raises(Stopped) as stopped:
                    self.task().train(self.job(number, before, stop=lambda done: done >= 1))
                assert stopped.value.batches == 1
                return
            parts: list[UnitResult] = []
            state = before
            for stop in (*stops, None):
                skip = sum(part.batches for part in parts)
                until = never if stop is None else (lambda done, stop=stop: done >= stop)
                parts.append(self.task().train(self.job(number, state, skip=skip, stop=until)))
                assert parts[-1].whole is (stop is None)
                state = parts[-1].state
            assert digest(parts[-1].state) == digest(whole.state)
            assert parts[-1].metrics == whole.metrics
            assert [row for part in parts for row in part.log] == list(whole.log)
            assert sum(part.batches for part in parts) == whole.batches
            assert sum(part.samples for part in parts) == whole.samples

    def test_a_state_comes_back_from_its_checkpoint(self) -> None:
        (result,) = self.trained_units(1)
        with _saved(result.state) as ref:
            loaded = checkpoint.load(ref)
        assert digest(loaded) == ref.digest, "the loaded state is the saved one"
        direct, after = (self.task().train(self.job(1, state)) for state in (result.state, loaded))
        assert digest(after.state) == digest(direct.state), "and the next unit gives the same"

    def test_unknown_hyper_parameters_are_refused(self) -> None:
        self.task().check(dict(self.hparams))
        with pytest.raises(TaskError, match="no_such_parameter"):
            self.task().check({**self.hparams, "no_such_parameter": 1})

    def test_an_evaluation_leaves_the_state_as_it_is(self) -> None:
        (result,) = self.trained_units(1)
        unit = Unit("c0", 0, 0, Phase.EVALUATE)
        job = self.job(1, result.state, unit=unit, partition=self.partition(9, 7), validation=())
        if not self.task().evaluates:
            with pytest.raises((TaskError, NotImplementedError)):
                self.task().evaluate(job)
            return
        evaluated = self.task().evaluate(job)
        assert digest(evaluated.state) == digest(result.state)
        assert evaluated.metrics
        assert evaluated.samples == job.partition.rows
        task = self.task()
        if isinstance(task, SupportsTest):
            measured = task.measure_test(replace(job, state=hop(result.state))).metrics
            assert measured == {named_as_test(name): value for name, value in evaluated.metrics.items()}

    def test_a_test_set_is_measured_whole_and_row_by_row(self) -> None:
        task = self.task()
        if not isinstance(task, SupportsTest):
            pytest.skip("the task does not measure test sets")
        (result,) = self.trained_units(1)
        unit, rows = Unit("c0", 0, 0, Phase.EVALUATE), 7
        job = self.job(1, result.state, unit=unit, partition=self.partition(9, rows), validation=())
        before = digest(job.state or {})
        values = task.measure_test(job)
        assert digest(job.state or {}) == before, "the state stays as it is"
        assert values.metrics
        for name, each in values.rows.items():
            assert len(each) == rows, name
        found = intervals(values, rows, seed=1)
        assert found == intervals(values, rows, seed=1)
        for name, (low, high) in found.items():
            assert low <= values.metrics[name] <= high
        assert bool(found) == self.measures_means, "a metric that is a mean over rows has an interval"

    def test_an_export_has_the_models_arrays(self) -> None:
        task = self.task()
        if not isinstance(task, Exports):
            pytest.skip("the task does not export")
        state = self.trained_units(len(ORDERS[0]))[-1].state
        exported, again = (
            task.export(dict(self.hparams), hop(state), self.seed, len(ORDERS), len(ROWS)) for _ in range(2)
        )
        assert exported.weights, "it has weights"
        assert digest(dict(exported.weights)) == digest(dict(again.weights))
        assert "MODEL" in exported.load or "CHECKPOINT" in exported.load, "the code names a file"
        compile(exported.load, "load", "exec")


def hop(state: TaskState) -> TaskState:
    """The way of a state through a checkpoint."""
    with _saved(copy.deepcopy(state)) as ref:
        state_after: TaskState = checkpoint.load(ref)
        return state_after


def digest(state: TaskState) -> str:
    """The digest of a state's checkpoint."""
    with _saved(state) as ref:
        return ref.digest


@contextmanager
def _saved(state: TaskState) -> Iterator[CheckpointRef]:
    """A checkpoint of the state, in memory."""
    folder = f"/cerebro-contract-{uuid4().hex}"
    memory = MemoryFileSystem()
    try:
        yield checkpoint.save(state, f"memory:/{folder}/state")
    finally:
        memory.rm(folder, recursive=True)
