"""Plain PyTorch by the paper's three functions (section 4.1): the task ``torch``.

The recipe names the functions. Each gets its arguments *by the names of its parameters*:
``docs/how-to/models.md`` lists the names. ``epochs`` is the config's budget of epochs, ``steps`` the number
of batches in all of them. With ``step_scheduler: step`` a ``train_fn`` steps the scheduler itself; else that
is done once an epoch. A unit of a ``train_fn`` that must stop before its end is discarded: ``batches`` raises
``Stopped``, which is no ``Exception``.

On several ranks the ready-made step and validation divide each batch among them. ``train_fn`` gets its rank's
rows of each batch; ddp and fsdp average the gradients. ``eval_fn`` gets all rows on every rank. The metrics
that both return are averaged over the ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.errors import TaskError
from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.training import job_batches
from cerebro_elastic.training.function_unit import FunctionUnit, begun
from cerebro_elastic.training.parallel.base import Parts, make_parallelism
from cerebro_elastic.training.passes import check_per_row, refused_by
from cerebro_elastic.training.task import (
    GENERATORS,
    Exported,
    MetricRow,
    ModelValues,
    Observe,
    Observed,
    OrdinaryFit,
    TaskState,
    UnitJob,
    UnitResult,
)
from cerebro_elastic.training.test_metrics import evaluated, named_as_test
from cerebro_elastic.training.user_functions import UserFunctions


class FunctionTask(Observed):
    """The task ``torch``; the module's docstring has the signatures of its functions. It is observed before
    each batch is trained, and at the end of each unit."""

    def __init__(self, section: TorchSection, root: Path) -> None:
        self._section = section
        self._user = UserFunctions(section, root)

    def check(self, hparams: HParams) -> None:
        self._user.takers.check(hparams)

    def takes(self, name: str) -> bool:
        return self._user.takers.takes(name)

    def refusal(self, hparams: HParams, strategy: Strategy) -> str | None:
        """Checked with a model without values, if ``model_fn`` can make one."""
        parallelism = make_parallelism(strategy.parallelism, strategy.options)
        parts = self._hollow(hparams)
        return None if parts is None else parallelism.refusal(parts, strategy.ranks)

    def _hollow(self, hparams: HParams) -> Parts | None:
        """The model without values; ``None`` if ``model_fn`` cannot make one."""
        try:
            with self._user.files.borrowed(), torch.device("meta"):
                return self._user.make_parts(hparams, {"epochs": 1, "steps": 100})
        except Exception:  # the user's code may need values
            return None

    def check_weights(self, strategies: Sequence[Strategy]) -> None:
        """Raise ``TaskError`` if the loss cannot be weighted, or by none of the ``strategies``."""
        if self._user.loss is None:
            return
        check_per_row(self._user.loss)
        refusals = [
            refused_by(make_parallelism(strategy.parallelism, strategy.options), strategy.parallelism)
            for strategy in strategies
        ]
        if all(refusals):
            raise TaskError(str(refusals[0]))

    @property
    def evaluates(self) -> bool:
        return self._user.eval_fn is not None or self._user.loss is not None

    @property
    def splits(self) -> bool:
        """A ``train_fn`` of the user's keeps local variables, so that it cannot be continued elsewhere."""
        return self._user.train_fn is None

    def train(self, job: UnitJob) -> UnitResult:
        with begun(self._section, self._user, job, self._observe) as unit:
            row, validation, done = self._trained(unit, job)
            whole = done == job_batches.unit_batches(job)
            state = unit.state(whole=whole)
            return UnitResult(
                state=state,
                before=unit.untrained,
                samples=job_batches.rows_until(job, done),
                batches=done - job.skip,
                metrics={**unit.progress.epoch.values(), **validation},
                log=[row] if whole else (),
                whole=whole,
                not_finite=unit.not_finite(row, state) if whole else None,
            )

    def ordinary_fit(self, jobs: Sequence[UnitJob], observe: Observe) -> OrdinaryFit:
        """Train all units with one model."""
        rows: list[MetricRow] = []
        metrics = []
        with begun(self._section, self._user, jobs[0], observe) as unit:
            for job in jobs:
                unit.take_up(job)
                row, validation, _ = self._trained(unit, job)
                rows.append(row)
                if job.last:
                    metrics.append({**unit.progress.epoch.values(), **validation})
        return OrdinaryFit(rows, metrics)

    def _trained(self, unit: FunctionUnit, job: UnitJob) -> tuple[MetricRow, dict[str, float], int]:
        """Train one unit: the row that it logs, its validation metrics, and how many batches of its partition
        are trained."""
        metrics, done = unit.train()
        unit.progress.step += done - job.skip
        validation = {}
        if done == job_batches.unit_batches(job):
            validation = unit.end(metrics)
            unit.show("after")
        row = {"step": unit.progress.step, "epoch": job.unit.epoch, **metrics, **validation}
        return row, validation, done

    def evaluate(self, job: UnitJob) -> UnitResult:
        if not self.evaluates or job.state is None:
            raise TaskError(f"{job.unit}: to evaluate, a task needs `loss` or `eval_fn`, and a trained state")
        with begun(self._section, self._user, job, self._observe) as unit:
            metrics = unit.validate([job.partition])
        return evaluated(job, metrics)

    def measure_test(self, job: UnitJob) -> ModelValues:
        if not self.evaluates or job.state is None:
            raise TaskError("a test set is measured by `loss` or `eval_fn`: give the task one of them")
        with begun(self._section, self._user, job, self._observe) as unit:
            metrics = unit.validate([job.partition])
            rows = unit.validate_rows(job.partition)
        return ModelValues(
            {named_as_test(name): value for name, value in metrics.items()},
            {named_as_test(name): values for name, values in rows.items()},
        )

    def export(self, hparams: HParams, state: TaskState, seed: int, epochs: int, batches: int) -> Exported:
        del seed
        taken = self._user.model_arguments(hparams, {"epochs": epochs, "steps": epochs * batches})
        module, _, name = self._section.model_fn.partition(":")
        load = _LOAD.format(module=module, name=name, arguments=taken)
        return Exported(state["model"], load, not_carried=list(not_carried(state)))


def not_carried(state: TaskState) -> Iterator[str]:
    """The export has the weights alone."""
    yield "the optimizer's state"
    if state["scheduler"] is not None:
        yield "the state of the learning-rate scheduler"
    yield GENERATORS


_LOAD = """\
from safetensors.torch import load_file
from {module} import {name}

made = {name}(**{arguments})
model = made[0] if isinstance(made, tuple) else made
model.load_state_dict(load_file("MODEL"))
"""
