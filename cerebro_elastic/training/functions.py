"""Plain PyTorch by the paper's three functions (section 4.1): the task ``torch``.

All are found by ``module:name`` and get what they ask for *by the name of the parameter*:

``model_fn(<hyper-parameters>, epochs, steps)``
    makes the model, the pair ``(model, optimizer)`` or the triple ``(model, optimizer, scheduler)``,
    from hyper-parameters alone. With a model alone, ``task.optimizer`` names a class of
    ``torch.optim``, which gets the hyper-parameters that it knows (``lr``, ``weight_decay``, ...).
    ``epochs`` is the budget of epochs, ``steps`` the number of batches in all of them.
``input_fn(batch, <hyper-parameters>)``
    (optional) turns a batch of the loader into the ``(x, y)`` that the ready-made step needs, or
    into whatever ``train_fn`` takes.
``train_fn(model, optimizer, batches, scheduler, epoch, device, <hyper-parameters>)``
    (optional) does one pass over ``batches`` and returns metrics by name, or nothing. With
    ``step_scheduler: step`` it steps the scheduler itself; else that is done once an epoch.
    A unit that has to stop before its end is then given up: an exception (``Stopped``, no ``Exception``)
    comes out of ``batches``. The ready-made step stops between two batches, and goes on elsewhere.
``eval_fn(model, batches, epoch, device, <hyper-parameters>)``
    (optional) the same for validation, without gradients.

Without ``train_fn`` the ready-made step minimises ``loss``. Metrics of training are named
``train_...``, those of validation ``val_...``; each is the mean over rows.

On several ranks the ready-made step and validation divide each batch among them. ``train_fn`` gets a rank's
rows of each batch, under ddp and fsdp, whose averages it does not see; ``eval_fn`` all rows on every rank.
What they return is averaged over the ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.errors import TaskError
from cerebro_elastic.parallel import choose
from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.training import feed
from cerebro_elastic.training.finite import not_finite
from cerebro_elastic.training.function_unit import FunctionUnit, begun
from cerebro_elastic.training.observed_functions import ObservedFunctions
from cerebro_elastic.training.task import (
    GENERATORS,
    Exported,
    MetricRow,
    Observe,
    OrdinaryFit,
    TaskState,
    UnitJob,
    UnitResult,
)
from cerebro_elastic.training.user_functions import UserFunctions


class FunctionTask:
    """Trains what the section's functions make; see the module for what each gets and returns."""

    def __init__(self, section: TorchSection, root: Path) -> None:
        self._section = section
        self._root = root
        self._user = UserFunctions(section, root)

    def check(self, hparams: HParams) -> None:
        self._user.check(hparams)

    def refusal(self, hparams: HParams, strategy: Strategy) -> str | None:
        """Seen by a model without values, and nothing if ``model_fn`` cannot make one."""
        parallelism = choose.make(strategy.parallelism, strategy.options)
        try:
            with self._user.files.borrowed(), torch.device("meta"):
                parts = self._user.make_parts(hparams, {"epochs": 1, "steps": 100})
        except Exception:  # whatever the user's code needs values for
            return None
        return parallelism.refusal(parts, strategy.ranks)

    @property
    def evaluates(self) -> bool:
        return self._user.eval_fn is not None or self._user.loss is not None

    @property
    def splits(self) -> bool:
        """A pass of the user's own keeps what nobody else knows, so that it cannot be taken up elsewhere."""
        return self._user.train_fn is None

    def train(self, job: UnitJob) -> UnitResult:
        with begun(self._section, self._user, job) as unit:
            row, validation, done = self._trained(unit, job)
            whole = done == feed.unit_batches(job)
            state = unit.state(whole=whole)
            return UnitResult(
                state=state,
                samples=feed.rows_until(job, done),
                batches=done - job.skip,
                metrics={**unit.progress.means(), **validation},
                log=[row] if whole else (),
                whole=whole,
                not_finite=unit.not_finite(row, state) if whole else None,
            )

    @contextmanager
    def observed(self, observe: Observe) -> Iterator[None]:
        """Each batch is shown before it is trained, and each unit when it is over."""
        plain, self._user = self._user, ObservedFunctions(self._section, self._root, observe)
        try:
            yield
        finally:
            self._user = plain

    def ordinary_fit(self, jobs: Sequence[UnitJob], observe: Observe) -> OrdinaryFit:
        """One model that trains all units, and is never taken apart."""
        rows: list[MetricRow] = []
        metrics = []
        with self.observed(observe), begun(self._section, self._user, jobs[0]) as unit:
            for job in jobs:
                unit.take_up(job)
                row, validation, _ = self._trained(unit, job)
                rows.append(row)
                if job.last:
                    metrics.append({**unit.progress.means(), **validation})
        return OrdinaryFit(rows, metrics)

    def _trained(self, unit: FunctionUnit, job: UnitJob) -> tuple[MetricRow, dict[str, float], int]:
        """The row that the unit logs, what its validation found, and how many batches of its partition are
        trained."""
        metrics, done = unit.train()
        unit.progress.step += done - job.skip
        validation = {}
        if done == feed.unit_batches(job):
            validation = unit.end(metrics)
            self._user.at_end()
        row = {"step": unit.progress.step, "epoch": job.unit.epoch, **metrics, **validation}
        return row, validation, done

    def evaluate(self, job: UnitJob) -> UnitResult:
        if not self.evaluates or job.state is None:
            raise TaskError(f"{job.unit}: to evaluate, a task needs `loss` or `eval_fn`, and a trained state")
        with begun(self._section, self._user, job) as unit:
            metrics = unit.validate([job.partition])
        return UnitResult(
            state=job.state,
            samples=job.partition.rows,
            batches=feed.unit_batches(job),
            metrics=metrics,
            not_finite=not_finite(metrics),
        )

    def export(self, hparams: HParams, state: TaskState, seed: int, epochs: int, batches: int) -> Exported:
        del seed
        taken = self._user.model_arguments(hparams, {"epochs": epochs, "steps": epochs * batches})
        module, _, name = self._section.model_fn.partition(":")
        load = _LOAD.format(module=module, name=name, arguments=taken)
        return Exported(state["model"], load, not_carried=list(_not_carried(state)))


def _not_carried(state: TaskState) -> Iterator[str]:
    """Weights alone are exported."""
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
