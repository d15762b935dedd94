"""An optimizer's state by parameter name, where Lightning has numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor
from torch.optim import Optimizer

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.parallelism import Parallelism, Parts, Single, check_room
from cerebro_elastic.extending.state import (
    ModelStructure,
    cloned,
    hand_over,
    rebuild,
    share_bases,
    take,
    to_names,
    unshare_bases,
    untrained,
    without_uninitialized,
)
from cerebro_elastic.extending.tasks import Still, TaskState
from cerebro_lightning._lightning_internals import MockOptimizer, averages_weights, callbacks_of

MODEL = "state_dict"
"""In a checkpoint laid out as Lightning's: the key of the module's tensors."""
BESIDE_AVERAGE = "current_model_state"
"""The same where a ``WeightAveraging`` has its average under that key."""
OURS = "cerebro"
"""In a checkpoint laid out as Lightning's: the key of the state that a stock checkpoint does not keep."""


class NamedStateStrategy(SingleDeviceStrategy):
    """Trains on one device, with optimizer states by the names of parameters."""

    marks: frozenset[str] = frozenset()
    """Names of attributes on the module's parts that are not part of the state."""
    stays: Mapping[str, Still] = {}
    """The tensors of the state that lie in a base, by name: the module takes its own as they are, without a
    copy."""
    values: Mapping[str, Any] = {}
    """The tensors of the module in that state, by name."""
    by: Parallelism = Single()
    whole = True
    """Whether this rank has all of the module."""

    def __init__(self, device: torch.device, room: int | None = None) -> None:
        """``room``: the most bytes that a rank may take, if the module's memory is checked before
        training."""
        super().__init__(device)
        self._room = room
        self._built: ModelStructure | None = None

    @property
    def module(self) -> pl.LightningModule:
        """The module; the trainer gives it to the strategy when a fit begins."""
        module = self.lightning_module
        assert module is not None
        return module

    def settings_for(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The user's settings of the trainer, as the trainer takes them with this strategy."""
        return dict(settings)

    def model_to_device(self) -> None:
        share_bases(self.module, self.values, self.stays, MODEL, self.root_device)
        super().model_to_device()

    def teardown(self) -> None:
        if self.lightning_module is not None:
            unshare_bases(self.lightning_module)
        super().teardown()

    def setup_optimizers(self, trainer: pl.Trainer) -> None:
        super().setup_optimizers(trainer)
        if self._room is not None and not isinstance(self.optimizers[0], MockOptimizer):
            parts = Parts(self.module, self.optimizers[0])
            check_room(parts, self.by, self.world_size, self.root_device, self._room)

    def build(self, state: TaskState | None) -> None:
        """Give the module and its optimizers the structure that they had when ``state`` was taken. The
        structure from before counts as the one they are built with."""
        if self._built is None:
            self._built = ModelStructure(self.module, self.real_optimizers())
            if state is not None:
                changes = state[OURS]["structure"]
                named = list(filter(None, state["optimizer_states"]))
                rebuild(self.module, self.real_optimizers(), self._built, changes, named)

    def changes(self, *, allowed: bool) -> dict[str, Any]:
        """The changes of structure that training has made. Raises ``TaskError`` for one that cannot be
        rebuilt, unless it is ``allowed``."""
        assert self._built is not None
        try:
            return self._built.changes(self.module, self.real_optimizers())
        except TaskError:
            if not allowed:
                raise
            return {}

    def real_optimizers(self) -> list[Optimizer]:
        """An empty list if the module has configured no optimizer."""
        return [optimizer for optimizer in self.optimizers if not isinstance(optimizer, MockOptimizer)]

    def lightning_module_state_dict(self) -> dict[str, Any]:
        return dict(without_uninitialized(super().lightning_module_state_dict()))

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        hand_over(self.module, checkpoint["state_dict"], strict=strict, only=self._mapped)

    @property
    def _mapped(self) -> Collection[str]:
        """The names of the module's tensors that lie in a base."""
        return {name.removeprefix(f"{MODEL}/") for name in self.stays if name.startswith(f"{MODEL}/")}

    def untrained(self) -> Mapping[str, Still]:
        """The tensors of the module that get no gradient, as the unit finds them."""
        averages = any(map(averages_weights, callbacks_of(self.module.trainer)))
        return untrained(self.module, None, self.stays, BESIDE_AVERAGE if averages else MODEL)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        return {} if isinstance(optimizer, MockOptimizer) else to_names(optimizer, self.module)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, named in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            if named:
                take(optimizer, self.module, cloned(named))

    def gradients(self) -> dict[str, Tensor]:
        """Existing gradients by parameter name. Every rank calls this."""
        named = self.module.named_parameters()
        return {name: parameter.grad for name, parameter in named if parameter.grad is not None}

    def put_gradients(self, gradients: Mapping[str, Tensor]) -> None:
        """Set the gradients that ``gradients`` has returned."""
        for name, grad in gradients.items():
            self.module.get_parameter(name).grad = grad

    def parameters_in(self, state_dict: Mapping[str, Any]) -> Iterable[tuple[str, Tensor]]:  # noqa: ARG002
        """This rank's part of the parameters by name, as they are after the unit that ``state_dict`` belongs
        to."""
        return self.module.named_parameters()

    def close(self) -> None:
        """Nothing to release."""
