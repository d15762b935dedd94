"""One unit of the task ``torch``: model, optimizer and scheduler on the unit's ranks, and the progress.

Every rank of the unit makes a ``FunctionUnit`` and calls the same methods in the same order. Rank 0 continues
with the random generators of the config's state. The other ranks begin each unit with their own seeds, so
that a replay by the same strategy draws the same numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.data.reading.batches import whole
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.errors import TaskError
from cerebro_elastic.hop.checkpoint import Still
from cerebro_elastic.hop.generators import rng
from cerebro_elastic.hop.objects.model_graph import graph_of_parts
from cerebro_elastic.hop.objects.tensor_kinds import cloned, own_attributes
from cerebro_elastic.hop.optimizer_state import constructor_options, override_options, to_names
from cerebro_elastic.hop.structure import ModelStructure, rebuild, without_uninitialized
from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.system import process_settings
from cerebro_elastic.training import job_batches
from cerebro_elastic.training.metrics import EpochMeans, not_finite
from cerebro_elastic.training.parallel import collectives
from cerebro_elastic.training.parallel.base import (
    WHOLE,
    Parallelism,
    Parts,
    Sharding,
    check_room,
    make_parallelism,
)
from cerebro_elastic.training.parallel.collectives import ranks
from cerebro_elastic.training.parallel.construct import made, share_bases, untrained
from cerebro_elastic.training.parallel.data_parallel import mapped
from cerebro_elastic.training.passes import (
    BatchMean,
    LossOfBatch,
    Mean,
    check_per_row,
    refused_by,
    unweighted,
    weighted,
)
from cerebro_elastic.training.task import Observe, Stopped, TaskState, UnitJob
from cerebro_elastic.training.test_metrics import measured_alone, row_by_row
from cerebro_elastic.training.user_functions import UserFunctions, step_scheduler

_PLAIN_STEPS = ("single", "ddp", "fsdp")
"""The parallelisms in which ``loss.backward()`` and ``optimizer.step()`` are the whole step."""


@dataclass
class Progress:
    """A config's counters."""

    step: int = 0
    """How many steps the config has trained."""
    epoch: EpochMeans = field(default_factory=EpochMeans)
    """The metrics of the whole units of the present epoch."""
    loss: Mean = field(default_factory=Mean)
    """The loss in the present unit."""


@contextmanager
def begun(
    section: TorchSection, user: UserFunctions, job: UnitJob, observe: Observe | None = None
) -> Iterator[FunctionUnit]:
    """The unit of ``job``, set up. After the block the random generators, the process's settings and the
    user's files are as before."""
    parallelism = make_parallelism(job.strategy.parallelism, job.strategy.options)
    with user.files.borrowed(), process_settings.borrowed(), rng.borrowed(torch.device(job.device)):
        try:
            yield FunctionUnit(section, user, job, parallelism, observe)
        finally:
            parallelism.close()


class FunctionUnit:
    """The unit of ``job``, with model, optimizer, counters and generators as the unit before has left
    them."""

    def __init__(
        self,
        section: TorchSection,
        user: UserFunctions,
        job: UnitJob,
        parallelism: Parallelism,
        observe: Observe | None,
    ) -> None:
        self._observe = observe
        self._section = section
        self._user = user
        self._job = job
        self._device = torch.device(job.device)
        self._parallelism = parallelism
        self._trained: tuple[str, ...] = ()
        self._pending: set[str] = set()
        """The parameters that got gradients since the optimizer's last step."""
        self.untrained: Mapping[str, Still] = {}
        """The tensors of the model that get no gradient, as the unit finds them."""
        self._model: nn.Module
        self._built: ModelStructure
        self._check_passes()
        if job.memory_limit_bytes is not None:
            self._check_memory(job.memory_limit_bytes)
        rng.seed_all(job.seed)
        self._parts = self._parallelism.build(self._make, self._device, loaded=job.state is not None)
        self._options = constructor_options(self._parts.optimizer)
        parts = self._parts
        self._graph = graph_of_parts(self._model, parts.optimizer, parts.scheduler, whole=self._whole)
        self.progress = Progress() if job.state is None else self._taken_up(job.state)
        if job.state is not None:
            self._graph.restore(cloned(job.state["objects"]), self._device)
            self._put_gradients(job.state.get("grads", {}))
        self._settings = process_settings.AsSetUp()
        self._place_generators(job.state)

    def train(self) -> tuple[dict[str, float], int]:
        """Train the unit's batches.

        Returns:
            The unit's metrics, and how many of its batches are trained.

        Raises:
            Stopped: A ``train_fn`` was interrupted.
        """
        job, parts = self._job, self._parts
        done = job_batches.unit_batches(job)
        if self._user.train_fn:
            return self._users_pass(self._user.train_fn), done
        assert self._user.loss is not None
        loss = self.progress.loss
        losses = self._losses(self._user.loss)
        batches = self._prepared(job_batches.training_batches(job, self._portion))
        rows = islice(job_batches.training_rows(job), job.skip, None)
        self._set_mode(training=True)
        try:
            for done_here, (batch, count) in enumerate(zip(batches, rows, strict=True)):
                x, y, loss_of, share = losses(batch, self._parallelism.portion(count).share)
                batch_loss = self._parallelism.step(
                    parts, x, y, loss_of, share=share, clip=self._section.clip
                )
                if parts.scheduler is not None and self._section.step_scheduler == "step":
                    step_scheduler(parts.scheduler, of_step=self.progress.step + done_here + 1)
                loss.add(batch_loss, count)
        except Stopped as stopped:
            done = stopped.batches
        return {"train_loss": loss.value}, done

    def _set_mode(self, *, training: bool) -> None:
        """Of the model, and of an optimizer that has modes, as those of ``schedulefree`` do."""
        self._parts.model.train(training)
        mode = getattr(self._parts.optimizer, "train" if training else "eval", None)
        if callable(mode):
            mode()

    def take_up(self, job: UnitJob) -> None:
        """Continue with the next unit of the config in the same model, as one ordinary fit does."""
        self._job = job
        if not job.visited:
            self.progress = Progress(step=self.progress.step)

    def end(self, unit: Mapping[str, float]) -> dict[str, float]:
        """End a whole unit; with the epoch's last unit validate and step the scheduler. Returns the
        validation metrics."""
        job = self._job
        self.progress.epoch.add(unit, sum(job_batches.training_rows(job)))
        self.progress.loss = Mean()
        if not job.last or job.unit.phase is Phase.PROFILE:
            return {}
        validation = self.validate(job.validation)
        self._end_epoch({**self.progress.epoch.values(), **validation})
        return validation

    def show(self, when: str) -> None:
        """Show an observer the present parts of the training."""
        if self._observe is None:
            return
        model, scheduler = self._model, self._parts.scheduler
        values = {
            "weight": dict(model.named_parameters()),
            "buffer": dict(model.named_buffers()),
            "optimizer": to_names(self._parts.optimizer, model),
            "scheduler": scheduler.state_dict() if scheduler is not None else {},
            "generator": rng.capture(self._device),
            "attribute": {
                f"{path}.{name}".lstrip("."): value
                for path, module in model.named_modules()
                for name, value in own_attributes(module).items()
            },
        }
        self._observe(when, values)

    def validate(self, partitions: Sequence[Partition]) -> dict[str, float]:
        """Metrics over ``partitions`` by name; none if the task has nothing to measure with."""
        if not partitions or (self._user.eval_fn is None and self._user.loss is None):
            return {}
        # Every rank takes all rows of the user's pass: how its metrics add up over portions is unknown.
        part = whole if self._user.eval_fn else self._portion
        batches = self._prepared(job_batches.natural_batches(self._job, partitions, part))
        return self._validated(batches, job_batches.validation_rows(self._job, partitions))

    def validate_rows(self, partition: Partition) -> dict[str, list[float]]:
        """The metrics of each row of ``partition`` alone, by name."""
        batches = self._prepared(job_batches.natural_batches(row_by_row(self._job), [partition]))
        return measured_alone(lambda batch: self._validated(batch, [1]), batches)

    def _validated(self, batches: Iterator[Any], rows: Iterable[int]) -> dict[str, float]:
        user = self._user
        self._set_mode(training=False)
        with torch.no_grad():
            if user.eval_fn:
                metrics = user.call(user.eval_fn, self._job.hparams, self._context(batches))
                return _prefixed("val_", collectives.means(metrics))
            return _prefixed("val_", self._measured(batches, rows))

    def _measured(self, batches: Iterator[Any], rows: Iterable[int]) -> dict[str, float]:
        """The means of the loss and of each measure over all rows. No weights count in measures."""
        measures = self._user.measures
        assert self._user.loss is not None
        losses = self._losses(self._user.loss)
        means = {name: Mean() for name in ("loss", *measures)}
        for batch, count in zip(batches, rows, strict=True):
            share = self._parallelism.portion(count).share
            x, y, loss_of, loss_share = losses(batch, share)
            output = self._parts.model(x)
            weighed = {
                "loss": (loss_of, loss_share),
                **{name: (each, share) for name, each in measures.items()},
            }
            for name, (measure, part) in weighed.items():
                means[name].add(measure(output, y) * part, count)
        return {name: mean.value for name, mean in means.items()}

    def state(self, *, whole: bool) -> TaskState:
        """The config's state. That of rank 0 counts, unless it is divided among the ranks."""
        loss, epoch = self.progress.loss, self.progress.epoch.state()
        model, optimizer = self._exported()
        structure = self._structure()
        objects = self._graph.carry()
        self._settings.check()
        mine = {"rng": rng.capture(self._device), "loss": loss.total}
        _, *others = [mine] if whole else collectives.gathered(mine) or [mine]
        return {
            "model": model,
            "optimizer": optimizer,
            "options": self._options,
            "structure": structure,
            "objects": objects if self._whole else self._carried("objects"),
            "grads": self._gradients(),
            "scheduler": self._parts.scheduler and self._parts.scheduler.state_dict(),
            "rng": mine["rng"],
            "step": self.progress.step,
            "rows": epoch["rows"],
            "sums": epoch["sums"],
            "begun": (loss.total, loss.rows) if loss.rows else None,
            "others": others,
        }

    @property
    def _whole(self) -> bool:
        return self._job.strategy.parallelism in WHOLE

    def _carried(self, key: str) -> Mapping[str, Any]:
        state = self._job.state
        carried: Mapping[str, Any] = {} if state is None else state.get(key, {})
        return carried

    def _gradients(self) -> dict[str, torch.Tensor]:
        """Gradients to which the next batch of a ``train_fn`` adds: those since the optimizer's last step.
        The ready-made step zeroes its own."""
        named = self._model.named_parameters()
        return {name: p.grad.detach() for name, p in named if name in self._pending and p.grad is not None}

    @contextmanager
    def _noting_gradients(self) -> Iterator[None]:
        """Within the block the gradients since the optimizer's last step are recorded."""
        optimizer, hooks = self._parts.optimizer, []
        for name, parameter in self._model.named_parameters() if self._whole else ():
            if parameter.requires_grad:
                note = partial(self._note_gradient, name)
                hooks.append(parameter.register_post_accumulate_grad_hook(note))  # type: ignore[no-untyped-call]
        if hasattr(optimizer, "register_step_post_hook"):  # torch's; behind another one all count
            hooks.append(optimizer.register_step_post_hook(lambda *_: self._pending.clear()))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _note_gradient(self, name: str, _: torch.Tensor) -> None:
        self._pending.add(name)

    def _put_gradients(self, gradients: Mapping[str, torch.Tensor]) -> None:
        for name, parameter in self._model.named_parameters() if gradients else ():
            if name in gradients:
                parameter.grad = gradients[name].to(self._device, copy=True)
                self._pending.add(name)

    def _structure(self) -> Mapping[str, Any]:
        """How training has changed the model's structure."""
        if self._whole:
            return self._built.changes(self._model, [self._parts.optimizer])
        carried = self._carried("structure")
        if isinstance(self._parallelism, Sharding):
            return self._built.refrozen(carried, self._model, [self._parts.optimizer])
        return carried

    def _exported(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The states of model and optimizer. On several ranks shards stay where they are: the next unit may
        need just these."""
        if isinstance(self._parallelism, Sharding) and ranks()[1] > 1:
            return self._parallelism.export_shards(self._parts)
        model, optimizer = self._parallelism.export(self._parts)
        return without_uninitialized(model), optimizer

    def not_finite(self, metrics: Mapping[str, float], state: TaskState) -> str | None:
        """As ``metrics.not_finite``, for the parameters in all ranks' ``state``. The result of rank 0
        counts."""
        model = state["model"]
        own = ((name, nn.Parameter(_local(model[name]))) for name in self._trained if name in model)
        return next((reason for reason in collectives.gathered(not_finite(metrics, own)) if reason), None)

    def _check_passes(self) -> None:
        name = self._job.strategy.parallelism
        if self._user.train_fn and name not in _PLAIN_STEPS:
            raise TaskError(
                f"a train_fn does its own steps, and {name} needs others than loss.backward() and "
                f"optimizer.step(): leave it out for the ready-made step, or choose {', '.join(_PLAIN_STEPS)}"
            )
        if self._job.loss_weights and self._user.loss is not None:
            check_per_row(self._user.loss)
            if refusal := refused_by(self._parallelism, name):
                raise TaskError(refusal)

    def _make(self) -> Parts:
        job = self._job
        moves = self._whole and self._device.type != "cpu"  # others shard it first
        device = self._device if moves else None
        loaded = job.state is not None
        parts = self._user.make_parts(job.hparams, job_batches.budget(job), device, loaded=loaded)
        asked = job.state is None or job.memory_limit_bytes is not None
        if asked and (refusal := self._parallelism.refusal(parts, ranks()[1])):
            raise TaskError(f"{job.unit.config} cannot be trained by {job.strategy}: {refusal}")
        self._model, optimizers = parts.model, [parts.optimizer]
        self._built = ModelStructure(parts.model, optimizers)
        if job.state is not None and (changes := self._carried("structure")):
            rebuild(parts.model, optimizers, self._built, changes, [job.state["optimizer"]])
        self._trained = tuple(name for name, p in parts.model.named_parameters() if p.requires_grad)
        values = None if job.state is None else job.state["model"]
        if values is not None and self._whole:
            share_bases(parts.model, values, job.stays, "model", self._device)
        self.untrained = untrained(parts.model, values, job.stays, "model")
        return parts

    def _check_memory(self, limit_bytes: int) -> None:
        parts = made(self._make, loaded=True)  # its values are of no interest, and may take long to compute
        check_room(parts, self._parallelism, ranks()[1], self._device, limit_bytes)

    def _taken_up(self, state: TaskState) -> Progress:
        parts = self._parts
        self._parallelism.load(parts, state["model"], state["optimizer"])
        if parts.scheduler is not None:
            # A copy, for a scheduler keeps the very lists and dicts that it is given.
            parts.scheduler.load_state_dict(copy.deepcopy(state["scheduler"]))
        if self._job.inherits is not None:
            schedulers = [parts.scheduler] if parts.scheduler is not None else []
            override_options(parts.optimizer, schedulers, state["options"], self._options)
        return Progress(
            step=state["step"],
            epoch=EpochMeans(state if self._job.visited else None),
            loss=self._begun(state) if self._job.skip else Mean(),
        )

    def _begun(self, state: TaskState) -> Mean:
        """This rank's part of the loss in a unit that was stopped and continues here."""
        total, rows = state["begun"]
        rank, size = ranks()
        if rank == 0:
            # Rank 0 takes over the parts of ranks that are no more.
            return Mean(sum((other["loss"] for other in state["others"][size - 1 :]), total), rows)
        others = state["others"][rank - 1 : rank]
        return Mean(others[0]["loss"] if others else 0.0, rows)

    def _place_generators(self, state: TaskState | None) -> None:
        rank, _ = ranks()
        if rank == 0:
            if state is not None:
                rng.restore(state["rng"], self._device)
        elif state is not None and self._job.skip and len(state["others"]) >= rank:
            rng.restore(state["others"][rank - 1]["rng"], self._device)
        else:
            rng.seed_all(job_batches.rank_seed(self._job))

    def _users_pass(self, train_fn: Callable[..., Any]) -> dict[str, float]:
        self._set_mode(training=True)
        stops: list[int] = []
        batches = self._prepared(job_batches.training_batches(self._job, self._even_part))
        context = self._context(_noting(batches, stops))
        with self._noting_gradients():
            unit = self._user.call(train_fn, self._job.hparams, context)
        if stops:  # and the user's code has caught it
            raise Stopped(stops[0])
        return _prefixed("train_", collectives.means(unit))

    def _losses(self, loss: BatchMean) -> LossOfBatch:
        weights = self._job.loss_weights
        return weighted(loss, weights, self._device) if weights else unweighted(loss)

    def _portion(self, rows: int) -> slice:
        portion = self._parallelism.portion(rows)
        return slice(portion.start, portion.stop)

    def _even_part(self, rows: int) -> slice:
        """This rank's rows for a step that averages over ranks without weights: each rank takes all rows of a
        batch that cannot be divided evenly, which gives the same mean."""
        return self._portion(rows) if rows % ranks()[1] == 0 else slice(0, rows)

    def _prepared(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in self._user.prepared(self._shown(batches), self._job.hparams):
            yield self._placed(batch)

    def _placed(self, batch: Any) -> Any:
        """The batch on the unit's device."""
        if self._device.type == "cpu":
            return batch
        # From pinned memory the copy overlaps the host's work.
        behind = self._job.loader.pin_memory
        return mapped(batch, lambda _, tensor: tensor.to(self._device, non_blocking=behind))

    def _shown(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            self.show("before")
            yield batch

    def _context(self, batches: Iterator[Any]) -> dict[str, Any]:
        """The parameters that ``train_fn`` and ``eval_fn`` may name (``user_functions.FOR_PASS``)."""
        return {
            "model": self._parts.model,
            "optimizer": self._parts.optimizer,
            "scheduler": self._parts.scheduler,
            "batches": batches,
            "epoch": self._job.unit.epoch,
            "device": self._device,
        }

    def _end_epoch(self, metrics: Mapping[str, float]) -> None:
        scheduler = self._parts.scheduler
        if scheduler is None or self._section.step_scheduler == "step":
            return
        if not isinstance(scheduler, ReduceLROnPlateau):
            step_scheduler(scheduler, of_epoch=self._job.unit.epoch + 1)
        elif "val_loss" in metrics:
            scheduler.step(metrics["val_loss"])
        else:
            raise TaskError(
                "ReduceLROnPlateau watches val_loss, but no validation runs at an epoch's end: set "
                "data.valid and validation: epoch, or take another scheduler"
            )


def _local(value: torch.Tensor) -> torch.Tensor:
    """This rank's part of a tensor that may be divided among the ranks."""
    local: torch.Tensor = value.to_local() if hasattr(value, "to_local") else value
    return local


def _noting(batches: Iterator[Any], stops: list[int]) -> Iterator[Any]:
    """The batches. If ``Stopped`` ends them, the number of batches is appended to ``stops``."""
    try:
        yield from batches
    except Stopped as stopped:
        stops.append(stopped.batches)
        raise


def _prefixed(prefix: str, metrics: Mapping[str, float]) -> dict[str, float]:
    return {f"{prefix}{name}": value for name, value in metrics.items()}
