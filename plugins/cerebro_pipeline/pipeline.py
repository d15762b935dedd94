"""The model's blocks dealt over the ranks, and batches sent through in microbatches: for models that do not
fit one rank, over links that are too slow for sharding."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from cerebro_elastic.extending.errors import RecipeError, TaskError
from cerebro_elastic.extending.parallelism import (
    LossOf,
    Make,
    Parallelism,
    Parts,
    Portion,
    Spread,
    collected,
    construct,
    ranks,
    subgroup,
    taken,
)
from cerebro_elastic.extending.state import buffers_of, check_groups, parameters_of, take, to_names
from cerebro_pipeline.gpipe import Pipe
from cerebro_pipeline.stages import split


class Pipeline(Parallelism):
    """GPipe over stages of the model, one a rank.

    ``split``: names of the modules at which the second to last stages begin; by default the model's blocks
    are dealt evenly. ``microbatches``: the largest number of them in a batch; by default 4 a stage, so that
    ranks idle for little of the time (Huang et al. 2019, section 2.3). Each stage holds a weight that is tied
    over stages.
    """

    def __init__(self, *, split: Sequence[str] | None = None, microbatches: int | None = None) -> None:
        if microbatches is not None and microbatches < 1:
            raise RecipeError(f"pipeline: microbatches is {microbatches!r}, expected a number from 1 on")
        self._split = split
        self._microbatches = microbatches
        self._groups: list[dict[str, Any]] = []
        self._first: dict[str, str] = {}
        self._holders: Holders = {}
        self._ties: list[tuple[list[nn.Parameter], Any]] = []
        self._pipe: Pipe | None = None

    def refusal(self, parts: Parts, ranks: int) -> str | None:
        """Whether the model can be cut into as many stages as ranks."""
        if ranks < 2:
            return (
                f"pipeline takes two ranks or more, not {ranks}: take single, or give a unit more ranks "
                "(`node: {ranks: 2}`, or `gang: 2`)"
            )
        if not any(p.requires_grad for p in parts.model.parameters()):
            return "nothing is trainable"
        try:
            split(parts.model, ranks, self._split, training=True)
        except TaskError as refused:
            return str(refused)
        return None

    def spread(self, ranks: int, device: torch.device) -> Spread:  # noqa: ARG002
        """The memory of a stage; a lower bound for the largest."""
        return Spread(1 / ranks, 1 / ranks, 1 / ranks)

    def portion(self, rows: int) -> Portion:
        """The whole batch: the first rank takes the inputs, the last the targets, and its loss counts."""
        rank, size = ranks()
        return Portion(0, rows, float(rank == size - 1))

    def build(self, make: Make, device: torch.device, *, loaded: bool = False) -> Parts:
        """This rank's stage of the model, and the optimizer for its parameters."""
        parts = construct(make, loaded=loaded)
        rank, size = ranks()
        self._groups = to_names(parts.optimizer, parts.model)["param_groups"]
        self._first = _first_names(parts.model)
        trains = split(parts.model, size, self._split, training=True)
        evaluates = split(parts.model, size, self._split, training=False)
        self._holders = holders(parts.model, list(zip(trains, evaluates, strict=True)))
        tied = tied_over(parts.model, self._holders)
        keep(parts, self._holders, rank, device)
        # Every rank takes part in making each group, also a group that it is not in.
        groups = {sharers: subgroup(sharers) for sharers in tied}
        self._ties = [(shared, groups[sharers]) for sharers, shared in tied.items() if rank in sharers]
        self._pipe = Pipe(trains[rank], evaluates[rank], device, self._microbatches or 4 * size)
        return Parts(_Piped(parts.model, self._pipe), parts.optimizer, parts.scheduler)

    def load(
        self, parts: Parts, model: Mapping[str, Any] | None, optimizer: Mapping[str, Any] | None
    ) -> None:
        """Every rank keeps its stage's tensors of the state."""
        plain, rank = _plain(parts), ranks()[0]
        device = next(plain.parameters()).device

        def own(name: str) -> bool:
            return rank in self._holders.get(name, (rank,))

        def slot(path: tuple[Any, ...], full: Tensor) -> Tensor | None:
            return full.clone() if path[0] != "state" or own(path[1]) else None

        state = taken(model, lambda path, full: full if own(path[0]) else None, device)
        values = plain.state_dict()
        values.clear()  # it has the modules' versions: without them normalisation adds a count
        values.update((name, value) for name, value in state.items() if own(name))
        plain.load_state_dict(values)
        named = taken(optimizer, slot, device)
        check_groups([group["params"] for group in self._groups], named["param_groups"])
        ours = {
            "state": {name: slots for name, slots in named["state"].items() if own(name)},
            "param_groups": [
                {**group, "params": [name for name in group["params"] if own(name)]}
                for group in named["param_groups"]
            ],
        }
        take(parts.optimizer, plain, ours)

    def step(
        self,
        parts: Parts,
        x: Any,
        y: Any,
        loss_of: LossOf,
        *,
        share: float = 1.0,  # noqa: ARG002
        clip: float | None = None,
    ) -> Tensor:
        """All ranks train the same batch, each rank its stage."""
        assert self._pipe is not None
        parts.optimizer.zero_grad()
        loss = self._pipe.train(x, y, loss_of)
        for shared, group in self._ties:
            for parameter in shared:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                dist.all_reduce(parameter.grad, group=group)
        if clip is not None:
            clip_grads_with_norm_(_plain(parts).parameters(), clip, self._total_norm(_plain(parts)))
        parts.optimizer.step()
        return loss

    def _total_norm(self, model: nn.Module) -> Tensor:
        """The gradients' norm over all ranks; a tied parameter counts once."""
        rank = ranks()[0]
        gradients = [
            parameter.grad
            for name, parameter in model.named_parameters()
            if parameter.grad is not None and self._holders[name][0] == rank
        ]
        device = next(model.parameters()).device
        square = get_total_norm(gradients).to(device).square()
        dist.all_reduce(square)
        return square.sqrt()

    def export(self, parts: Parts) -> tuple[dict[str, Any], dict[str, Any]]:
        """The neutral state, gathered; empty on all ranks but the first."""
        plain, rank = _plain(parts), ranks()[0]
        named = to_names(parts.optimizer, plain)

        def speaks(name: str) -> bool:
            return self._holders.get(name, (0,))[0] == rank

        state = {key: value for key, value in plain.state_dict().items() if self._first[key] == key}
        mine = {
            "model": {name: value for name, value in state.items() if speaks(name)},
            "state": {name: slots for name, slots in named["state"].items() if speaks(name)},
        }
        per_rank = collected(mine)
        if per_rank is None:
            return {}, {}
        values = {name: value for own in per_rank for name, value in own["model"].items()}
        slots = {name: value for own in per_rank for name, value in own["state"].items()}
        groups = [
            {**live, "params": whole["params"]}
            for live, whole in zip(named["param_groups"], self._groups, strict=True)
        ]
        order = [name for group in self._groups for name in group["params"] if name in slots]
        return (
            {name: values[first] for name, first in self._first.items()},
            {"state": {name: slots[name] for name in order}, "param_groups": groups},
        )

    def close(self) -> None:
        """Release the schedules and their tensors."""
        self._pipe = None
        self._ties = []


class _Piped(nn.Module):
    """The model that all ranks have together; ``module`` is this rank's part of the user's."""

    def __init__(self, module: nn.Module, pipe: Pipe) -> None:
        super().__init__()
        self.module = module
        self._pipe = pipe

    def forward(self, x: Any) -> Tensor:
        if torch.is_grad_enabled():
            raise TaskError(
                "pipeline trains by the ready-made step only, which sends microbatches from stage to stage: "
                "give a `loss` in place of `train_fn`, or take another parallelism"
            )
        return self._pipe.evaluate(x)


def _plain(parts: Parts) -> nn.Module:
    model: nn.Module = parts.model.module  # type: ignore[assignment]
    return model


def _first_names(model: nn.Module) -> dict[str, str]:
    """Each name of the model's state, and the first name of the same tensor."""
    seen: dict[int, str] = {}
    state = model.state_dict(keep_vars=True)
    return {name: seen.setdefault(id(value), name) for name, value in state.items()}


Holders: TypeAlias = Mapping[str, tuple[int, ...]]
"""By name of a tensor in the whole model, tied names included: the ranks that hold it, in order. The first is
the tensor's *home*, which acts for it."""


def holders(model: nn.Module, stages: Sequence[Collection[nn.Module]]) -> dict[str, tuple[int, ...]]:
    """Each tensor of ``model`` is held where the rank's ``stages`` use it, and by rank 0 if none does."""
    used = [{id(tensor) for part in stage for tensor in _tensors(part).values()} for stage in stages]
    return {
        name: tuple(rank for rank, ids in enumerate(used) if id(tensor) in ids) or (0,)
        for name, tensor in _tensors(model).items()
    }


def keep(parts: Parts, holders: Holders, rank: int, device: torch.device) -> None:
    """Release the tensors that ``rank`` does not hold. Those it holds go to ``device`` and stay the same
    objects."""
    for name, module in parts.model.named_modules():
        for table in (parameters_of(module), buffers_of(module)):
            for key, tensor in table.items():
                if tensor is None:
                    continue
                if rank in holders[f"{name}.{key}" if name else key]:
                    tensor.data = tensor.data.to(device)
                else:
                    # Emptied, too: a record of the forward may hold it until the next garbage collection.
                    tensor.data = tensor.data.new_empty(0)
                    table[key] = None
    kept = set(parts.model.parameters())
    for group in parts.optimizer.param_groups:
        group["params"] = [parameter for parameter in group["params"] if parameter in kept]
    for parameter in [parameter for parameter in parts.optimizer.state if parameter not in kept]:
        del parts.optimizer.state[parameter]


def tied_over(model: nn.Module, holders: Holders) -> dict[tuple[int, ...], list[nn.Parameter]]:
    """The trained parameters that several ranks hold, by these ranks, in the model's order."""
    tied: dict[tuple[int, ...], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and len(holders[name]) > 1:
            tied.setdefault(holders[name], []).append(parameter)
    return tied


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
