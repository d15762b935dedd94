"""Lightning on several ranks, in the unit's process group, with any ``parallelism``.

Lightning's own strategies start processes and form groups; this one takes both as they are. The module, whole
as its constructor and ``configure_model`` make it, and its optimizer are given to the parallelism to spread;
gradients, steps and the state that hops go through it. A rank's loss is weighted by its share of the batch's
rows, so it must be a mean over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.utilities import GradClipAlgorithmType
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer
from torchmetrics import Metric

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.parallelism import (
    Parts,
    Portion,
    Sharding,
    Stepwise,
    averaged_gradients,
    collectives,
    ranks,
)
from cerebro_elastic.extending.state import (
    buffers_of,
    modules_of,
    non_persistent_buffers_of,
    parameters_of,
    untrained,
)
from cerebro_elastic.extending.tasks import Still, TaskState
from cerebro_lightning import refusals
from cerebro_lightning._lightning_internals import (
    MockOptimizer,
    after_closure,
    all_gather_if_distributed,
    callbacks_of,
    note_device,
    reduce_if_distributed,
)
from cerebro_lightning.optimizers import MODEL, OURS, NamedStateStrategy

_LATER = ("applied_pre_backward_ref_cnt", "ds_grads_remaining")
"""Attributes that DeepSpeed adds to modules in the middle of a step."""


class DistributedStrategy(NamedStateStrategy):
    """Every rank has the whole module, and the gradients are averaged: ddp.

    ``state`` is the state from which the unit starts; it is loaded later. The caller sets ``now`` for each
    batch: this rank's part of it.
    """

    by: Stepwise

    def __init__(
        self, device: torch.device, name: str, by: Stepwise, state: TaskState | None, room: int | None = None
    ) -> None:
        super().__init__(device, room)
        self.global_rank, self.world_size = ranks()
        self.local_rank = self.global_rank
        self.now = Portion(0, 1, 1.0)
        self._name = name
        self.by = by
        self._state = state
        self.parts: Parts
        self._trained: tuple[Any, ...] = ()

    def portion(self, rows: int) -> Portion:
        """This rank's part of a batch with ``rows`` rows."""
        return self.by.portion(rows)

    def part(self, rows: int) -> slice:
        """This rank's part of a batch, as a slice."""
        portion = self.portion(rows)
        return slice(portion.start, portion.stop)

    def settings_for(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The trainer's settings for several ranks, with the precision that they name. Raises ``TaskError``
        for a setting that cannot be honoured."""
        refusals.refuse_settings(settings, self.by, self._name)
        precision = _Precision(refusals.precision_of(settings, self._name), self)
        rest = {key: value for key, value in settings.items() if key != "precision"}
        # Parameters that are gathered in inference mode could not be trained afterwards.
        return {**rest, "inference_mode": False, "plugins": [precision]}

    def present(self) -> Portion:
        """This rank's part of the present batch."""
        return self.now

    @property
    def is_global_zero(self) -> bool:
        return self.global_rank == 0

    def setup(self, trainer: pl.Trainer) -> None:
        module = self.module
        assert self.accelerator is not None
        self.accelerator.setup(trainer)
        refusals.refuse_callbacks(callbacks_of(trainer), self.by, self._name)
        refusals.refuse_module(module, self.by, self._name)
        self.setup_optimizers(trainer)
        if any(isinstance(optimizer, MockOptimizer) for optimizer in self.optimizers):
            raise refusals.without_optimizer(module)
        self.build(self._state)
        refusals.refuse_lazy(module, self._name)
        self._note_whole(module)
        parts = Parts(Root(module, self.precision_plugin), self.optimizers[0])
        if refusal := self.by.refusal(parts, self.world_size):
            raise TaskError(f"{type(module).__name__} cannot be trained by {self._name}: {refusal}")
        with self._marks_hidden(module):
            self.parts = self.by.build(lambda: parts, self.root_device, loaded=self._loaded)
        self.model = self.parts.model
        _place(module, self.root_device)
        self._trained = _flags(module)

    def _note_whole(self, module: pl.LightningModule) -> None:
        """Called before the module is spread."""

    @property
    def _loaded(self) -> bool:
        """Whether all ranks get a state later, so that their parameters need not agree before."""
        return self._state is not None

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        module, model = self.module, self.model
        assert model is not None
        if not module.automatic_optimization:
            # Its backward passes are inside the step, where no wrapper is ready for them.
            with self.precision_plugin.train_step_context():
                return module.training_step(*args, **kwargs)
        if _flags(module) != self._trained:
            raise TaskError(
                f"{type(module).__name__} has frozen, unfrozen, added or reshaped parameters during the "
                "training, which on several ranks would have no effect until the next unit: train it with "
                "`parallelism: single`"
            )
        return model("training_step", *args, **kwargs)

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        assert self.model is not None
        return self.model("validation_step", *args, **kwargs)

    def backward(
        self, closure_loss: Tensor, optimizer: Optimizer | None, *args: Any, **kwargs: Any
    ) -> Tensor:
        # The mean over ranks of losses that weigh by their rows is the mean over rows.
        return super().backward(closure_loss * (self.now.share * self.world_size), optimizer, *args, **kwargs)

    def reduce(self, tensor: Any, group: Any | None = None, reduce_op: Any = "mean") -> Any:
        return reduce_if_distributed(tensor, group, reduce_op) if isinstance(tensor, Tensor) else tensor

    def all_gather(self, tensor: Tensor, group: Any | None = None, sync_grads: bool = False) -> Tensor:
        return all_gather_if_distributed(tensor, group=group, sync_grads=sync_grads)

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        states_of = [obj]
        if self.world_size > 1:
            torch.distributed.broadcast_object_list(states_of, src)
        return states_of[0]

    def barrier(self, *_: Any, **__: Any) -> None:
        if self.world_size > 1:
            torch.distributed.barrier()

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        return not collectives.any_of(not decision) if all else collectives.any_of(decision)

    def gradients(self) -> dict[str, Tensor]:
        module = self.module
        if not module.automatic_optimization:  # they are averaged only before a step
            averaged_gradients(list(module.parameters()))
        return super().gradients()

    def teardown(self) -> None:
        """Moves nothing: the unit's results are read after this."""

    def close(self) -> None:
        """Release the parallelism's resources."""
        self.by.close()

    @contextmanager
    def _marks_hidden(self, module: pl.LightningModule) -> Iterator[None]:
        """Attributes added to submodules inside the block are not part of their state."""
        before = {name for part in module.modules() for name in vars(part)}
        yield
        after = {name for part in module.modules() for name in vars(part)}
        self.marks = frozenset({*(after - before), *_LATER}) if after - before else frozenset()


class ShardedStrategy(DistributedStrategy):
    """No rank has the whole module or optimizer: the parallelism assembles the state that hops."""

    whole = False

    _whole_buffers: list[tuple[str, torch.Size, torch.dtype]]
    _model_state: Mapping[str, Any]
    _optimizer_state: dict[str, Any]

    _untrained: Mapping[str, Still]

    def setup(self, trainer: pl.Trainer) -> None:
        super().setup(trainer)
        self._whole_buffers = _buffers(self.module)

    def _note_whole(self, module: pl.LightningModule) -> None:
        values = None if self._state is None else self._state[MODEL]
        self._untrained = untrained(module, values, self.stays, MODEL)

    def untrained(self) -> Mapping[str, Still]:
        """As the module was when it was whole."""
        return self._untrained

    @property
    def _loaded(self) -> bool:
        """Hooks may read parameters before the state is loaded, so the parameters must exist."""
        return False

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Each rank's shards, if the next unit may load just these; otherwise only rank 0's value is of
        use."""
        if isinstance(self.by, Sharding) and self.world_size > 1:
            model, self._optimizer_state = self.by.export_shards(self.parts)
        else:
            model, self._optimizer_state = self.by.export(self.parts)
        return model

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:  # noqa: ARG002
        return self._optimizer_state

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:  # noqa: ARG002
        self._model_state = checkpoint["state_dict"]

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        (named,) = checkpoint["optimizer_states"]
        self.by.load(self.parts, self._model_state, named)
        self._model_state = {}

    def changes(self, *, allowed: bool) -> dict[str, Any]:
        """The unit's initial changes: shards change no structure."""
        if not allowed and _buffers(self.module) != self._whole_buffers:
            raise TaskError(
                f"{type(self.module).__name__} has buffers that got another shape or type during "
                f"the training, which {self._name} cannot hand on: choose single or ddp"
            )
        return {} if self._state is None else dict(self._state[OURS]["structure"])

    def gradients(self) -> dict[str, Tensor]:
        return {
            name: grad.full_tensor() if isinstance(grad, DTensor) else grad
            for name, grad in super().gradients().items()
        }

    def parameters_in(self, state_dict: Mapping[str, Any]) -> Iterable[tuple[str, Tensor]]:
        trained = [name for name, p in self.module.named_parameters() if p.requires_grad]
        return [(name, nn.Parameter(_rows(state_dict[name]))) for name in trained if name in state_dict]

    def put_gradients(self, gradients: Mapping[str, Tensor]) -> None:
        parameters = dict(self.module.named_parameters())
        for name, full in gradients.items():
            like = parameters[name]
            if isinstance(like, DTensor):
                like.grad = distribute_tensor(full.to(self.root_device), like.device_mesh, like.placements)
            else:
                like.grad = full


def _rows(value: Tensor) -> Tensor:
    """This rank's part of a tensor that may be divided among ranks."""
    return value.to_local() if isinstance(value, DTensor) else value


def _flags(module: nn.Module) -> tuple[Any, ...]:
    """A parameter that DeepSpeed divides is empty between two steps; it has the shape of the whole one."""
    return tuple((each.requires_grad, getattr(each, "ds_shape", each.shape)) for each in module.parameters())


def _buffers(module: nn.Module) -> list[tuple[str, torch.Size, torch.dtype]]:
    return [(name, buffer.shape, buffer.dtype) for name, buffer in module.named_buffers()]


def _place(module: nn.Module, device: torch.device) -> None:
    """Move the rest, which the parallelism leaves: states of metrics, and the modules' own notes of their
    device."""
    for part in module.modules():
        if isinstance(part, Metric):
            part.to(device)
        note_device(part, device)


class Root(nn.Module):
    """The module that a parallelism wraps in place of a LightningModule.

    ``root("training_step", batch, 0)`` is ``module.training_step(batch, 0)``, in ``precision``.

    It shares the module's parameters, buffers and parts, under the same names, but is another object: a hook
    that a parallelism adds to it runs once a step, and ``self(x)`` inside a step is a plain call.
    """

    def __init__(self, module: pl.LightningModule, precision: Precision) -> None:
        super().__init__()
        self._parameters = parameters_of(module)
        self._buffers = buffers_of(module)
        self._modules = modules_of(module)
        self._non_persistent_buffers_set = non_persistent_buffers_of(module)
        self._before_batch = (module, precision)  # in a tuple, so that the module is not registered as a part

    def forward(self, step: str, *args: Any) -> Any:
        module, precision = self._before_batch
        with precision.forward_context():
            return getattr(module, step)(*args)


class _Precision(Precision):
    """Computes in ``precision``. In Lightning the precision also takes the optimizer's steps: here the
    strategy's parallelism does that, and computes the gradients."""

    def __init__(self, precision: str, strategy: DistributedStrategy) -> None:
        self.precision = precision  # type: ignore[assignment]
        self._strategy = strategy
        self._clip: float | None = None

    @contextmanager
    def forward_context(self) -> Iterator[None]:
        device = self._strategy.root_device.type
        mixed = self.precision == "bf16-mixed"
        with torch.autocast(device, dtype=torch.bfloat16, enabled=mixed, cache_enabled=False):
            yield

    def backward(  # type: ignore[override]
        self, tensor: Tensor, model: pl.LightningModule, optimizer: Any, *args: Any, **kwargs: Any
    ) -> None:
        if model.automatic_optimization:
            self._strategy.by.backward(self._strategy.parts, tensor)
        else:
            super().backward(tensor, model, optimizer, *args, **kwargs)

    def clip_gradients(
        self,
        optimizer: Optimizer,
        clip_val: float = 0.0,
        gradient_clip_algorithm: GradClipAlgorithmType = GradClipAlgorithmType.NORM,
    ) -> None:
        if not self._strategy.module.automatic_optimization:
            averaged_gradients(list(self.main_params(optimizer)))
            super().clip_gradients(optimizer, clip_val, gradient_clip_algorithm)
        elif clip_val > 0 and gradient_clip_algorithm == GradClipAlgorithmType.NORM:
            self._clip = float(clip_val)
        elif clip_val > 0:
            if all(parameter.grad is None for parameter in self.main_params(optimizer)):
                raise TaskError("gradients that the parallelism keeps to itself cannot be clipped by value")
            self.clip_grad_by_value(optimizer, clip_val)

    def optimizer_step(  # type: ignore[override]
        self, optimizer: Any, model: pl.LightningModule, closure: Callable[[], Any], **kwargs: Any
    ) -> Any:
        result = closure()
        if not model.automatic_optimization:
            averaged_gradients(list(self.main_params(optimizer)))
            after_closure(self, model, optimizer)
            optimizer.step(**kwargs)
            return result
        self._clip = None
        after_closure(self, model, optimizer)  # may require clipping
        self._strategy.by.update(self._strategy.parts, self._clip)
        return result
