"""Plain PyTorch by the paper's three functions (section 4.1): the task ``torch``.

The recipe names them as ``module:name``. Each gets what it asks for *by the name of the parameter*:

``model_fn(<hyper-parameters>, epochs, steps)``
    makes the model, the pair ``(model, optimizer)`` or the triple ``(model, optimizer, scheduler)``,
    from hyper-parameters alone. With a model alone, ``task.optimizer`` names a class of
    ``torch.optim``, which gets the hyper-parameters that it accepts (``lr``, ``weight_decay``, ...).
    ``epochs`` is the budget of epochs, ``steps`` the number of batches in all of them.
``input_fn(batch, <hyper-parameters>)``
    (optional) turns a batch of the loader into the ``(x, y)`` that the ready-made step needs, or
    into whatever ``train_fn`` takes.
``train_fn(model, optimizer, batches, scheduler, epoch, device, <hyper-parameters>)``
    (optional) does one pass over ``batches`` and returns metrics by name, or nothing. With
    ``step_scheduler: step`` it steps the scheduler itself; else that is done once an epoch.
    A unit that has to stop before its end is then given up: ``batches`` raises ``Stopped``, which is no
    ``Exception``. The ready-made step stops between two batches, and continues elsewhere.
``eval_fn(model, batches, epoch, device, <hyper-parameters>)``
    (optional) the same for validation, without gradients.

Without ``train_fn`` the ready-made step minimises ``loss``. Metrics of training are named
``train_...``, those of validation ``val_...``; each is the mean over rows.

On several ranks the ready-made step and validation divide each batch among them. ``train_fn`` gets its rank's
rows of each batch; ddp and fsdp average the gradients. ``eval_fn`` gets all rows on every rank. The metrics
that both return are averaged over the ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.errors import TaskError
from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.system.torch_internals import MODULE_ATTRIBUTES, made_by_compiler
from cerebro_elastic.training import job_batches
from cerebro_elastic.training.equality import is_plain, value_differences, values_equal
from cerebro_elastic.training.function_unit import FunctionUnit, begun, training_budget
from cerebro_elastic.training.generators import rng
from cerebro_elastic.training.metrics import not_finite
from cerebro_elastic.training.parallel.base import Parts, make_parallelism
from cerebro_elastic.training.parallel.optimizer_state import to_names
from cerebro_elastic.training.passes import check_per_row, refused_by
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
    """The task ``torch``; the module's docstring has the signatures of its functions."""

    def __init__(self, section: TorchSection, root: Path) -> None:
        self._section = section
        self._root = root
        self._user = UserFunctions(section, root)

    def check(self, hparams: HParams) -> None:
        self._user.takers.check(hparams)

    def takes(self, name: str) -> bool:
        return self._user.takers.takes(name)

    def refusal(self, hparams: HParams, strategy: Strategy) -> str | None:
        """Checked with a model without values; ``None`` if ``model_fn`` cannot make one."""
        parallelism = make_parallelism(strategy.parallelism, strategy.options)
        try:
            with self._user.files.borrowed(), torch.device("meta"):
                parts = self._user.make_parts(hparams, {"epochs": 1, "steps": 100})
        except Exception:  # whatever the user's code needs values for
            return None
        return parallelism.refusal(parts, strategy.ranks)

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
        with begun(self._section, self._user, job) as unit:
            row, validation, done = self._trained(unit, job)
            whole = done == job_batches.unit_batches(job)
            state = unit.state(whole=whole)
            return UnitResult(
                state=state,
                samples=job_batches.rows_until(job, done),
                batches=done - job.skip,
                metrics={**unit.progress.epoch.values(), **validation},
                log=[row] if whole else (),
                whole=whole,
                not_finite=unit.not_finite(row, state) if whole else None,
            )

    def length_readers(self, jobs: Sequence[UnitJob], rows: Sequence[int], epochs: int) -> Sequence[str]:
        """``model_fn`` makes the same for either number of epochs, or takes neither ``epochs`` nor
        ``steps``."""
        names = self._user.takes_length
        if not names:
            return ()
        before = replace(jobs[0], rows=tuple(rows))
        short, long = (self._made(job) for job in (before, replace(before, epochs=epochs)))
        taken = " and ".join(names)
        return [
            f"{self._section.model_fn} takes {taken}: {text}" for text in _length_differences(short, long)
        ]

    def _made(self, job: UnitJob) -> Parts:
        rng.seed_all(job.seed)
        with self._user.files.borrowed():
            return self._user.make_parts(job.hparams, training_budget(job))

    @contextmanager
    def observed(self, observe: Observe) -> Iterator[None]:
        """``observe`` is called before each batch is trained, and at the end of each unit."""
        plain, self._user = self._user, ObservedFunctions(self._section, self._root, observe)
        try:
            yield
        finally:
            self._user = plain

    def ordinary_fit(self, jobs: Sequence[UnitJob], observe: Observe) -> OrdinaryFit:
        """Train all units with one model."""
        rows: list[MetricRow] = []
        metrics = []
        with self.observed(observe), begun(self._section, self._user, jobs[0]) as unit:
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
            batches=job_batches.unit_batches(job),
            metrics=metrics,
            not_finite=not_finite(metrics),
        )

    def export(self, hparams: HParams, state: TaskState, seed: int, epochs: int, batches: int) -> Exported:
        del seed
        taken = self._user.model_arguments(hparams, {"epochs": epochs, "steps": epochs * batches})
        module, _, name = self._section.model_fn.partition(":")
        load = _LOAD.format(module=module, name=name, arguments=taken)
        return Exported(state["model"], load, not_carried=list(_not_carried(state)))


class ObservedFunctions(UserFunctions):
    """The functions, calling ``observe`` before each batch and at the end of each unit, for ``cerebro
    check``."""

    def __init__(self, section: TorchSection, root: Path, observe: Observe) -> None:
        super().__init__(section, root)
        self._observe = observe
        self._parts: Parts | None = None

    def make_parts(self, hparams: HParams, context: Mapping[str, Any]) -> Parts:
        self._parts = super().make_parts(hparams, context)
        return self._parts

    def prepared(self, batches: Iterable[Any], hparams: HParams) -> Iterator[Any]:
        return super().prepared(self._shown(batches), hparams)

    def _shown(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            self._show("before")
            yield batch

    def at_end(self) -> None:
        self._show("after")

    def _show(self, when: str) -> None:
        assert self._parts is not None
        self._observe(when, _observed_values(self._parts))


def _observed_values(parts: Parts) -> dict[str, Any]:
    model = parts.model
    return {
        "weight": dict(model.named_parameters()),
        "buffer": dict(model.named_buffers()),
        "optimizer": to_names(parts.optimizer, model),
        "scheduler": parts.scheduler.state_dict() if parts.scheduler is not None else {},
        "generator": rng.capture(),
        "attribute": {
            f"{path}.{name}".lstrip("."): value
            for path, module in model.named_modules()
            for name, value in vars(module).items()
            if name not in MODULE_ATTRIBUTES and not made_by_compiler(name)
        },
    }


def _not_carried(state: TaskState) -> Iterator[str]:
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


def _length_differences(short: Parts, long: Parts) -> Iterator[str]:
    """What of model, optimizer and scheduler is not the same, in words. What cannot be compared counts as
    different."""
    owner = type(long.scheduler).__name__
    yield from value_differences(
        owner, _scheduler_values(short.scheduler), _scheduler_values(long.scheduler), _same_value
    )
    for at, (before, after) in enumerate(
        zip(short.optimizer.param_groups, long.optimizer.param_groups, strict=True)
    ):
        yield from value_differences(f"parameter group {at}", _options(before), _options(after), _same_value)
    yield from value_differences("model", _model_values(short.model), _model_values(long.model), _same_value)


def _scheduler_values(scheduler: Any) -> dict[str, Any]:
    """A scheduler's attributes, and functions that it may compute with."""
    hidden = ("optimizer", "last_epoch")
    attributes = vars(scheduler) if scheduler is not None else {}
    return {name: v for name, v in attributes.items() if name not in hidden and not name.startswith("_")}


def _options(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "params"}


def _model_values(model: nn.Module) -> dict[str, Any]:
    values: dict[str, Any] = dict(model.state_dict())
    for path, module in model.named_modules():
        own = ((name, value) for name, value in vars(module).items() if not name.startswith("_"))
        values |= {f"{path}.{name}".lstrip("."): value for name, value in own if is_plain(value)}
    return values


def _same_value(one: Any, other: Any) -> bool:
    """A function that closes over something may do so over the number of epochs."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same_value, one, other))
    return values_equal(one, other) and not getattr(one, "__closure__", None)
