"""The functions of a ``torch`` recipe: imported, checked against hyper-parameters, called by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.errors import TaskError, did_you_mean
from cerebro_elastic.hop.user_globals import UserGlobals
from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.registry import import_object, is_reference
from cerebro_elastic.system import arguments
from cerebro_elastic.training.hparams import BUDGET, Taker, Takers
from cerebro_elastic.training.parallel.base import Parts
from cerebro_elastic.training.parallel.construct import optimizers_on
from cerebro_elastic.training.passes import BatchMean, accuracy

FOR_PASS = frozenset({"model", "optimizer", "scheduler", "batches", "epoch", "device"})
"""The parameters that ``train_fn`` and ``eval_fn`` may have besides hyper-parameters."""

_RETURNS = (
    "expected a model, (model, optimizer) or (model, optimizer, scheduler): an optimizer is a "
    "torch.optim.Optimizer, and a scheduler has step, state_dict and load_state_dict"
)
_MEASURES: Mapping[str, BatchMean] = {"accuracy": accuracy}


class UserFunctions:
    """The functions that the recipe's section names.

    Raises:
        TaskError: One cannot be imported.
    """

    def __init__(self, section: TorchSection, root: Path) -> None:
        self._section = section
        self._root = root
        self._model_fn = self._function("model_fn", section.model_fn)
        self._input_fn = section.input_fn and self._function("input_fn", section.input_fn)
        self.train_fn = section.train_fn and self._function("train_fn", section.train_fn)
        self.eval_fn = section.eval_fn and self._function("eval_fn", section.eval_fn)
        self._optimizer = section.optimizer and _named(
            "optimizer", section.optimizer, _optimizers(), "let model_fn return (model, optimizer)"
        )
        self.loss = self._chosen("loss", section.loss, _losses()) if section.loss is not None else None
        of_passes = FOR_PASS if self.train_fn or self.eval_fn else frozenset()
        self.takers = Takers(self._functions(), section.args, BUDGET | of_passes)
        roles = (self._model_fn, self._input_fn, self.train_fn, self.eval_fn, self.loss)
        self.files = UserGlobals([role for role in roles if role], root)
        self.measures = {
            name: self._chosen(f"metrics.{name}", ref, _MEASURES) for name, ref in section.metrics.items()
        }

    def make_parts(
        self,
        hparams: HParams,
        context: Mapping[str, Any],
        device: torch.device | None = None,
        *,
        loaded: bool = False,
    ) -> Parts:
        """Model, optimizer and scheduler of a config, as ``model_fn`` makes them. An optimizer that it
        makes gets parameters that are on ``device``, if that is given (``optimizers_on``)."""
        name = self._section.model_fn
        with nullcontext() if device is None else optimizers_on(device, loaded=loaded):
            returned = self._model_fn(**self.model_arguments(hparams, context))
        model, *rest = returned if isinstance(returned, tuple) else (returned,)
        optimizer, scheduler = (*rest, None, None)[:2]
        right = (
            isinstance(model, nn.Module)
            and isinstance(optimizer, Optimizer | None)
            and (scheduler is None or is_scheduler(scheduler))
        )
        if not right or len(rest) > 2:
            raise TaskError(f"{name} returned {_described(returned)}: {_RETURNS}")
        if optimizer is not None and self._optimizer:
            raise TaskError(f"{name} returns an optimizer, and task.optimizer names another: keep one")
        if optimizer is None and not self._optimizer:
            raise TaskError(
                f"{name} returns a model alone: name a class of torch.optim in task.optimizer, or return "
                "(model, optimizer)"
            )
        return Parts(model, optimizer or self._make_optimizer(model, hparams), scheduler)

    def model_arguments(self, hparams: HParams, context: Mapping[str, Any]) -> dict[str, Any]:
        return arguments.select(self._model_fn, {**self._all(hparams), **context})

    def prepared(self, batches: Iterable[Any], hparams: HParams) -> Iterator[Any]:
        """Apply ``input_fn``, if any, to batches of the loader."""
        function = self._input_fn
        chosen = arguments.select(function, self._all(hparams)) if function else {}
        for batch in batches:
            yield function(batch, **chosen) if function else batch

    def call(
        self, function: Callable[..., Any], hparams: HParams, context: Mapping[str, Any]
    ) -> dict[str, float]:
        """Call a ``train_fn`` or ``eval_fn``; returns its metrics by name."""
        values = {**self._all(hparams), **context}
        metrics = function(**arguments.select(function, values))
        if metrics is None:
            return {}
        if not isinstance(metrics, Mapping):
            raise TaskError(
                f"{function.__name__} returned {_described(metrics)}: expected metrics by name, or nothing"
            )
        return {name: float(value) for name, value in metrics.items()}

    def _make_optimizer(self, model: nn.Module, hparams: HParams) -> Optimizer:
        assert self._optimizer
        values = self._all(hparams)
        optimizer: Optimizer = self._optimizer(
            model.parameters(), **arguments.select(self._optimizer, values)
        )
        return optimizer

    def _all(self, hparams: HParams) -> dict[str, Any]:
        return arguments.combined(self._section.args, hparams)

    def _functions(self) -> dict[str, Taker]:
        """The functions by role."""
        takers: dict[str, Taker] = {"model_fn": (self._model_fn, BUDGET)}
        if self._optimizer:
            takers["optimizer"] = (self._optimizer, frozenset({"params"}))
        if self._input_fn:
            takers["input_fn"] = (self._input_fn, frozenset({arguments.first(self._input_fn)}))
        if self.train_fn:
            takers["train_fn"] = (self.train_fn, FOR_PASS)
        if self.eval_fn:
            takers["eval_fn"] = (self.eval_fn, FOR_PASS)
        return takers

    def _function(self, role: str, reference: str) -> Callable[..., Any]:
        imported = import_object(reference, self._root)
        if not callable(imported):
            raise TaskError(f"task.{role}: {reference} is {_described(imported)}, expected a function")
        function: Callable[..., Any] = imported
        return function

    def _chosen(self, role: str, name: str, choices: Mapping[str, BatchMean]) -> BatchMean:
        if is_reference(name):
            return self._function(role, name)
        return _named(role, name, choices, "give 'module:name'")


def is_scheduler(value: Any) -> bool:
    """Whether it steps, and its state hops: torch's own do, and those of timm."""
    return all(callable(getattr(value, name, None)) for name in ("step", "state_dict", "load_state_dict"))


def step_scheduler(scheduler: Any, *, of_epoch: int | None = None, of_step: int | None = None) -> None:
    """Step it after an epoch or a step. A scheduler of timm is given their number."""
    if isinstance(scheduler, LRScheduler):
        scheduler.step()
    elif of_step is None:
        scheduler.step(of_epoch) if "epoch" in arguments.required(scheduler.step) else scheduler.step()
    elif hasattr(scheduler, "step_update"):
        scheduler.step_update(of_step)
    else:
        scheduler.step()


def _named(
    role: str, name: str, choices: Mapping[str, Callable[..., Any]], otherwise: str
) -> Callable[..., Any]:
    if name not in choices:
        raise TaskError(f"task.{role} is {name!r}; {did_you_mean(name, choices)}; or {otherwise}")
    return choices[name]


def _optimizers() -> dict[str, type[Optimizer]]:
    named = vars(torch.optim).items()
    return {name: kind for name, kind in named if isinstance(kind, type) and kind is not Optimizer}


def _losses() -> dict[str, BatchMean]:
    named = ((name, value) for name, value in vars(nn.functional).items() if not name.startswith("_"))
    return {n: value for n, value in named if "loss" in n or "entropy" in n or n == "kl_div"}


def _described(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(type(item).__name__ for item in value)})"
    return f"a {type(value).__name__}"
