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
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from cerebro_elastic.core.values import HParams
from cerebro_elastic.data.partition import Partition
from cerebro_elastic.errors import TaskError
from cerebro_elastic.parallel.base import Parallelism, Parts
from cerebro_elastic.parallel.single import Single
from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.train import feed, rng
from cerebro_elastic.train.finite import not_finite
from cerebro_elastic.train.ready_made import Mean, evaluation_pass, train_pass
from cerebro_elastic.train.task import State, Stopped, UnitJob, UnitResult
from cerebro_elastic.train.user_functions import UserFunctions


@dataclass
class _Progress:
    """A config's counters: steps of all its training; sums over rows of the present epoch's whole units; the
    loss in a unit that is begun."""

    step: int = 0
    rows: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    loss: Mean = field(default_factory=Mean)

    def add(self, metrics: Mapping[str, float], rows: int) -> None:
        """Count a whole unit."""
        self.rows += rows
        for name, value in metrics.items():
            self.sums[name] = self.sums.get(name, 0.0) + value * rows
        self.loss = Mean()

    def means(self) -> dict[str, float]:
        return {name: total / self.rows for name, total in self.sums.items()}


class FunctionTask:
    """Trains what the section's functions make; see the module for what each gets and returns."""

    def __init__(self, section: TorchSection, root: Path) -> None:
        self._section = section
        self._user = UserFunctions(section, root)

    def check(self, hparams: HParams) -> None:
        self._user.check(hparams)

    @property
    def evaluates(self) -> bool:
        return self._user.eval_fn is not None or self._user.loss is not None

    @property
    def splits(self) -> bool:
        """A pass of the user's own keeps what nobody else knows, so that it cannot be taken up elsewhere."""
        return self._user.train_fn is None

    def train(self, job: UnitJob) -> UnitResult:
        device, parallelism = torch.device(job.device), Single()
        with rng.borrowed(device):
            parts, progress = self._set_up(job, parallelism, device)
            unit, done = self._train_pass(job, parts, progress.loss, parallelism, device)
            progress.step += done - job.skip
            whole = done == feed.unit_batches(job)
            validation = self._end_unit(job, parts, progress, unit, device) if whole else {}
            state = _state(parts, parallelism, progress, device)
        row = {"step": progress.step, "epoch": job.unit.epoch, **unit, **validation}
        bad = not_finite(row, parts.model.named_parameters()) if whole else None
        parallelism.close()
        return UnitResult(
            state=state,
            samples=feed.rows_until(job, done),
            batches=done - job.skip,
            metrics={**progress.means(), **validation},
            log=[row] if whole else (),
            whole=whole,
            not_finite=bad,
        )

    def evaluate(self, job: UnitJob) -> UnitResult:
        if not self.evaluates or job.state is None:
            raise TaskError(f"{job.unit}: to evaluate, a task needs `loss` or `eval_fn`, and a trained state")
        device, parallelism = torch.device(job.device), Single()
        with rng.borrowed(device):
            parts, _ = self._set_up(job, parallelism, device)
            metrics = self._validate(job, parts, [job.partition], device)
        parallelism.close()
        return UnitResult(
            state=job.state,
            samples=job.partition.rows,
            batches=feed.unit_batches(job),
            metrics=metrics,
            not_finite=not_finite(metrics),
        )

    def _set_up(
        self, job: UnitJob, parallelism: Parallelism, device: torch.device
    ) -> tuple[Parts, _Progress]:
        """Parts, counters and generators as the unit before left them; fresh ones for the first unit."""
        rng.seed_all(job.seed)
        context = {"epochs": job.epochs, "steps": job.epochs * feed.epoch_batches(job)}
        parts = parallelism.build(
            lambda: self._user.make_parts(job.hparams, context), device, loaded=job.state is not None
        )
        if job.state is None:
            return parts, _Progress()
        _load(parts, parallelism, job.state)
        rng.restore(job.state["rng"], device)
        first = not job.visited
        return parts, _Progress(
            step=job.state["step"],
            rows=0 if first else job.state["rows"],
            sums={} if first else dict(job.state["sums"]),
            loss=Mean(*job.state["begun"]) if job.skip else Mean(),
        )

    def _train_pass(
        self, job: UnitJob, parts: Parts, loss: Mean, parallelism: Parallelism, device: torch.device
    ) -> tuple[dict[str, float], int]:
        """The unit's metrics, and how many of its batches are trained. Raises ``Stopped`` out of a pass of
        the user's."""
        batches = self._prepared(feed.training_batches(job), job.hparams, device)
        done = feed.unit_batches(job)
        if self._user.train_fn:
            parts.model.train()
            stops: list[int] = []
            context = _context(job, parts, _noting(batches, stops), device)
            unit = self._user.call(self._user.train_fn, job.hparams, context)
            if stops:  # and the user's code has caught it
                raise Stopped(stops[0])
            return _prefixed("train_", unit), done
        assert self._user.loss is not None
        try:
            train_pass(
                parts,
                batches,
                islice(feed.batch_rows(job, [job.partition]), job.skip, None),
                self._user.loss,
                loss,
                parallelism=parallelism,
                clip=self._section.clip,
                step_scheduler=self._section.step_scheduler,
            )
        except Stopped as stopped:
            done = stopped.batches
        return {"train_loss": loss.value}, done

    def _end_unit(
        self,
        job: UnitJob,
        parts: Parts,
        progress: _Progress,
        unit: Mapping[str, float],
        device: torch.device,
    ) -> dict[str, float]:
        """What is due when the partition is used up; the validation's metrics."""
        progress.add(unit, job.partition.rows)
        if not job.last:
            return {}
        validation = self._validate(job, parts, job.validation, device)
        self._end_epoch(parts, {**progress.means(), **validation})
        return validation

    def _validate(
        self, job: UnitJob, parts: Parts, partitions: Sequence[Partition], device: torch.device
    ) -> dict[str, float]:
        if not partitions or not self.evaluates:
            return {}
        batches = self._prepared(feed.natural_batches(job, partitions), job.hparams, device)
        if self._user.eval_fn:
            parts.model.eval()
            with torch.no_grad():
                context = _context(job, parts, batches, device)
                return _prefixed("val_", self._user.call(self._user.eval_fn, job.hparams, context))
        assert self._user.loss is not None
        measures = {"loss": self._user.loss, **self._user.measures}
        rows = feed.batch_rows(job, partitions)
        return _prefixed("val_", evaluation_pass(parts.model, batches, rows, measures))

    def _prepared(self, batches: Iterable[Any], hparams: HParams, device: torch.device) -> Iterator[Any]:
        for batch in batches:
            yield _on_device(self._user.prepare(batch, hparams), device)

    def _end_epoch(self, parts: Parts, metrics: Mapping[str, float]) -> None:
        scheduler = parts.scheduler
        if scheduler is None or self._section.step_scheduler == "step":
            return
        if not isinstance(scheduler, ReduceLROnPlateau):
            scheduler.step()
        elif "val_loss" in metrics:
            scheduler.step(metrics["val_loss"])
        else:
            raise TaskError(
                "ReduceLROnPlateau watches val_loss, which there is not at the end of an epoch: set "
                "data.valid and validation: epoch, or take another scheduler"
            )


def _context(job: UnitJob, parts: Parts, batches: Iterator[Any], device: torch.device) -> dict[str, Any]:
    """What a pass of the user's may ask for by name (``user_functions.FOR_PASS``)."""
    return {
        "model": parts.model,
        "optimizer": parts.optimizer,
        "scheduler": parts.scheduler,
        "batches": batches,
        "epoch": job.unit.epoch,
        "device": device,
    }


def _noting(batches: Iterator[Any], stops: list[int]) -> Iterator[Any]:
    """The batches; if ``Stopped`` ends them, ``stops`` knows."""
    try:
        yield from batches
    except Stopped as stopped:
        stops.append(stopped.batches)
        raise


def _state(parts: Parts, parallelism: Parallelism, progress: _Progress, device: torch.device) -> State:
    model, optimizer = parallelism.export(parts)
    return {
        "model": model,
        "optimizer": optimizer,
        "scheduler": parts.scheduler and parts.scheduler.state_dict(),
        "rng": rng.capture(device),
        "step": progress.step,
        "rows": progress.rows,
        "sums": dict(progress.sums),
        "begun": (progress.loss.total, progress.loss.rows) if progress.loss.rows else None,
    }


def _load(parts: Parts, parallelism: Parallelism, state: State) -> None:
    parallelism.load(parts, state["model"], state["optimizer"])
    if parts.scheduler is not None:
        # A copy, for a scheduler keeps the very lists and dicts that it is given.
        parts.scheduler.load_state_dict(copy.deepcopy(state["scheduler"]))


def _prefixed(prefix: str, metrics: Mapping[str, float]) -> dict[str, float]:
    return {f"{prefix}{name}": value for name, value in metrics.items()}


def _on_device(value: Any, device: torch.device) -> Any:
    """A batch with its tensors on ``device``."""
    if device.type == "cpu":
        return value
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: _on_device(item, device) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_on_device(item, device) for item in value)
    return value
