"""The task adapter for LightningModules (entry point ``lightning`` of ``cerebro.tasks``)."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch

from cerebro_elastic.extending.errors import TaskError, did_you_mean
from cerebro_elastic.extending.parallelism import make_parallelism
from cerebro_elastic.extending.recipes import import_object
from cerebro_elastic.extending.state import UserFiles, is_users
from cerebro_elastic.extending.tasks import (
    Exported,
    HParams,
    Observe,
    OrdinaryFit,
    Phase,
    Strategy,
    TaskState,
    UnitJob,
    UnitResult,
    job_batches,
)
from cerebro_lightning import refusals
from cerebro_lightning.batches import Batches
from cerebro_lightning.data_module import attached, data_module
from cerebro_lightning.distributed import DistributedStrategy, ShardedStrategy
from cerebro_lightning.export import how_to_load, stock_checkpoint
from cerebro_lightning.inherit import with_own_attributes
from cerebro_lightning.length import acts_at_end, readers
from cerebro_lightning.observed import observed
from cerebro_lightning.optimizers import NamedStateStrategy
from cerebro_lightning.ordinary_fit import ordinary_fit
from cerebro_lightning.process import unit_process
from cerebro_lightning.rows import RowLogger
from cerebro_lightning.section import LightningSection
from cerebro_lightning.subepoch import OURS, SubEpoch, load_state, make_trainer
from cerebro_lightning.trainer_settings import check_trainer_settings, make_callbacks, refuse_callbacks


class LightningTask:
    """Trains the ``LightningModule`` that ``section`` names, looked for in the folder ``root`` first.

    Hyper-parameters and ``section.args`` reach the constructor by name. ``batch_size`` also sets the
    size of batches, and reaches the constructor only if it takes it. Raises ``TaskError`` if the
    module, a callback or the trainer's settings cannot be used.
    """

    def __init__(self, section: LightningSection, root: Path) -> None:
        self._section = section
        self._root = root
        self._class = _module_class(section.module, root)
        self._files = UserFiles(root, [base.__module__ for base in self._class.__mro__ if is_users(base)])
        check_trainer_settings(section.trainer)

    def check(self, hparams: HParams) -> None:
        job_batches.check_batch_size(hparams)
        _check_arguments(self._class, self._section.args, hparams)
        callbacks = make_callbacks(self._section.callbacks, self._root)
        with unit_process(torch.device("cpu")):
            try:
                strategy = NamedStateStrategy(torch.device("cpu"))
                make_trainer(self._section.trainer, callbacks, RowLogger(0), strategy, epochs=1)
            except Exception as exc:
                raise TaskError(
                    f"L.Trainer does not take task.trainer {dict(self._section.trainer)} with task.callbacks "
                    f"{list(self._section.callbacks)}: {exc}"
                ) from exc

        self._check_own_callbacks(hparams)

    def takes(self, name: str) -> bool:
        module: type = self._class
        parameters = _parameters(module)
        return name == "batch_size" or name in parameters or _takes_any(parameters)

    def _check_own_callbacks(self, hparams: HParams) -> None:
        """Check the callbacks of ``configure_callbacks``, on a module without values; if none can be built,
        there is nothing to check."""
        if self._class.configure_callbacks is pl.LightningModule.configure_callbacks:
            return
        with self._files.borrowed(), unit_process(torch.device("cpu")), torch.device("meta"):
            try:
                own = self._build(hparams, seed=0).configure_callbacks()
            except Exception:  # whatever the user's code needs
                return
        refuse_callbacks(own if isinstance(own, Sequence) else [own])

    def refusal(self, hparams: HParams, strategy: Strategy) -> str | None:
        """Checks the settings, the callbacks, and a module without values, unless its constructor needs
        values."""
        name, settings = strategy.parallelism, self._section.trainer
        if name == "single":
            return None
        try:
            by = refusals.stepwise(make_parallelism(name, strategy.options), name)
            refusals.refuse_settings(settings, by, name)
            refusals.precision_of(settings, name)
            refusals.refuse_callbacks(make_callbacks(self._section.callbacks, self._root), by, name)
            with self._files.borrowed():
                refusals.refuse_unmade(lambda: self._build(hparams, seed=0), by, name, strategy.ranks)
        except TaskError as refused:
            return str(refused)
        return None

    def train(self, job: UnitJob) -> UnitResult:
        end = job_batches.unit_batches(job)
        logger = RowLogger(job.unit.epoch)
        strategy = _strategy(job)
        with self._files.borrowed(), unit_process(strategy.root_device), closing(strategy):
            module = self._build(job.hparams, job.seed)
            callbacks = make_callbacks(self._section.callbacks, self._root)
            unit = SubEpoch(
                module,
                make_trainer(self._section.trainer, callbacks, logger, strategy, job.epochs),
                files=self._files,
                state=self._state(job, module),
                batches=end - job.skip,
                first=not job.visited and not job.skip,
                last=job.last and job.unit.phase is not Phase.PROFILE,
                resumes=job.skip > 0,
                inherits=job.inherits is not None,
                seed=job_batches.rank_seed(job),
            )
            batches = Batches(job, strategy)
            training = batches.training()
            with attached(data_module(job), training, batches.validation(module)) as loaders:
                unit.fit(loaders, training.opened)
        assert unit.state is not None
        done = end if unit.stopped_after is None else unit.stopped_after
        return UnitResult(
            state=unit.state,
            samples=job_batches.rows_until(job, done),
            batches=done - job.skip,
            metrics=unit.metrics,
            log=logger.rows,
            done=unit.stopped_early,
            whole=done == end,
            not_finite=unit.not_finite,
        )

    def observed(self, observe: Observe) -> AbstractContextManager[None]:
        return observed(observe)

    def ordinary_fit(self, jobs: Sequence[UnitJob], observe: Observe) -> OrdinaryFit:
        first = jobs[0]
        with self._files.borrowed(), unit_process(torch.device(first.device)):
            module = self._build(first.hparams, first.seed)
            callbacks = make_callbacks(self._section.callbacks, self._root)
            return ordinary_fit(module, self._section.trainer, callbacks, jobs, observe)

    def length_readers(self, jobs: Sequence[UnitJob], rows: Sequence[int], epochs: int) -> Sequence[str]:
        """Finds them by what the config's code reads in the first epoch, on a few rows, and by what the hooks
        do at its end."""
        del rows
        state, before = None, jobs[0].epochs
        noted: dict[str, None] = {}
        for job in jobs:
            with readers(before, epochs) as of_unit:  # a unit undoes the settings of libraries at its end
                state = self.train(replace(job, state=state)).state
            noted.update(dict.fromkeys(of_unit))
        with self._files.borrowed(), unit_process(torch.device("cpu")):
            module = self._build(jobs[0].hparams, jobs[0].seed)
            callbacks = make_callbacks(self._section.callbacks, self._root)
            if type(module).configure_callbacks is not pl.LightningModule.configure_callbacks:
                own = module.configure_callbacks()
                callbacks = [*callbacks, *(own if isinstance(own, Sequence) else [own])]
            return [*noted, *acts_at_end(module, callbacks, before)]

    def evaluate(self, job: UnitJob) -> UnitResult:
        raise TaskError(
            f"{job.unit}: a LightningModule is validated at the end of an epoch, where Lightning does it, so "
            "that schedulers and callbacks that watch a metric stay exact: remove `evaluate` from the recipe"
        )

    @property
    def evaluates(self) -> bool:
        return False

    @property
    def splits(self) -> bool:
        return True

    def load_module(self, hparams: HParams, state: TaskState, seed: int) -> pl.LightningModule:
        """The module of a config as it was when a unit left ``state``, on the CPU."""
        with self._files.borrowed(), unit_process(torch.device("cpu")):
            return load_state(self._build(hparams, seed), state)

    def export(self, hparams: HParams, state: TaskState, seed: int, epochs: int, batches: int) -> Exported:
        arguments = _arguments(self._class, self._section.args, hparams)
        strategy = NamedStateStrategy(torch.device("cpu"))
        with self._files.borrowed(), unit_process(strategy.root_device):
            callbacks = make_callbacks(self._section.callbacks, self._root)
            trainer = make_trainer(self._section.trainer, callbacks, RowLogger(0), strategy, epochs)
            module = self._build(hparams, seed)
            checkpoint, lost = stock_checkpoint(module, trainer, self._files, state, batches, arguments)
        return Exported(checkpoint["state_dict"], how_to_load(self._section.module), checkpoint, lost)

    def _state(self, job: UnitJob, module: pl.LightningModule) -> TaskState | None:
        """The state that the unit begins with."""
        if job.state is None or job.inherits is None:
            return job.state
        return with_own_attributes(job.state, OURS, self._build(job.inherits, job.seed), module)

    def _build(self, hparams: HParams, seed: int) -> pl.LightningModule:
        """The module as a script makes it: seed everything, then call the constructor."""
        pl.seed_everything(seed, verbose=False)
        return self._class(**_arguments(self._class, self._section.args, hparams))


def _module_class(reference: str, root: Path) -> type[pl.LightningModule]:
    value = import_object(reference, root)
    if not (isinstance(value, type) and issubclass(value, pl.LightningModule)):
        raise TaskError(
            f"task.module: {reference} is {value!r}, expected a class derived from lightning.LightningModule "
            "(that of the package `pytorch_lightning` is another class: import it from `lightning`)"
        )
    for method in ("training_step", "configure_optimizers"):
        if getattr(value, method) is getattr(pl.LightningModule, method):
            raise TaskError(f"task.module: {reference} has no {method}: a module that trains defines it")
    if "dataloader_iter" in inspect.signature(value.training_step).parameters:
        raise TaskError(
            f"task.module: {reference}.training_step takes dataloader_iter and so fetches batches by itself, "
            "which a sub-epoch cannot count: take batch and batch_idx"
        )
    return value


def _check_arguments(module: type, fixed: Mapping[str, Any], hparams: HParams) -> None:
    parameters = _parameters(module)
    accepted = [name for name, parameter in parameters.items() if parameter.kind not in _VARIADIC]
    if twice := sorted(fixed.keys() & hparams.keys()):
        raise TaskError(f"{', '.join(twice)}: both in task.args and searched; remove it from one of them")
    if not _takes_any(parameters):
        for name in [*fixed, *(hparams.keys() - {"batch_size"})]:
            if name not in accepted:
                near = did_you_mean(name, accepted)
                raise TaskError(f"{module.__name__} takes no hyper-parameter {name!r}; {near}")
    missing = [
        name
        for name in accepted
        if parameters[name].default is inspect.Parameter.empty and name not in {*fixed, *hparams}
    ]
    if missing:
        raise TaskError(
            f"{module.__name__} needs {', '.join(missing)}: search over it, or give it in task.args "
            f"(its parameters: {', '.join(accepted)})"
        )


def _arguments(module: type, fixed: Mapping[str, Any], hparams: HParams) -> dict[str, Any]:
    arguments = copy.deepcopy({**fixed, **hparams})  # the module may change its own; configs share ``fixed``
    if "batch_size" not in _parameters(module):
        arguments.pop("batch_size", None)
    return arguments


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@lru_cache(maxsize=16)
def _parameters(module: type) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(module).parameters


def _takes_any(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())


def _strategy(job: UnitJob) -> NamedStateStrategy:
    device, name = torch.device(job.device), job.strategy.parallelism
    if name == "single":
        return NamedStateStrategy(device, job.memory_limit_bytes)
    kind = DistributedStrategy if name == "ddp" else ShardedStrategy
    by = refusals.stepwise(make_parallelism(name, job.strategy.options), name)
    return kind(device, name, by, job.state, job.memory_limit_bytes)
