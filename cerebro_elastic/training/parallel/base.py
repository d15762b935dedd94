"""Parallelism: how a unit uses the ranks that it has.

A parallelism is found by name (``make_parallelism``; entry-point group ``cerebro.parallel``) and made for
each unit, from the recipe's options. If the unit has several ranks, each of them makes its own, inside
``group.formed``, and every rank calls every method in the same order.

Its input and output are *neutral*: full tensors on the CPU by the names of the model's parameters, so that
the next unit may have another parallelism or another number of ranks.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, get_type_hints, runtime_checkable

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from cerebro_elastic import registry
from cerebro_elastic.errors import RecipeError, TaskError, did_you_mean
from cerebro_elastic.system import arguments


@dataclass(frozen=True)
class Parts:
    """The parts of a training. ``model`` is the callable one: it may wrap the user's."""

    model: nn.Module
    optimizer: Optimizer
    scheduler: Any = None
    """One of torch, or another with a ``step`` and a state that hops."""


@dataclass(frozen=True)
class Portion:
    """A rank's part of a global batch: the rows ``start <= row < stop``, and its weight in the mean.

    A batch with fewer rows than ranks leaves some without: they get row 0 with ``share`` 0, since every rank
    has to take part in every step.
    """

    start: int
    stop: int
    share: float


@dataclass(frozen=True)
class Spread:
    """The part of a model's parameters, gradients and optimizer slots that each rank holds."""

    parameters: float = 1.0
    gradients: float = 1.0
    slots: float = 1.0


Make: TypeAlias = Callable[[], Parts]
"""Makes the parts on the CPU, from hyper-parameters alone: the same on every rank."""

LossOf: TypeAlias = Callable[[Any, Any], Tensor]
"""``(model(x), y)`` to the mean over the rows of ``x``."""


class Parallelism(Protocol):
    """One unit's way of training on one or more ranks. Implementations derive from it."""

    def prepare(self, device: torch.device) -> None:  # noqa: ARG002
        """Do the imports of the first unit on ``device``, if they take seconds and memory."""
        return

    def spread(self, ranks: int, device: torch.device) -> Spread:  # noqa: ARG002
        """The share of a model in the ``device`` memory of each of ``ranks`` ranks; by default all."""
        return Spread()

    def refusal(self, parts: Parts, ranks: int) -> str | None:
        """Why these parts, as ``make`` makes them, cannot be trained on ``ranks`` ranks; ``None`` if they
        can.

        Needs no group: it is called before anything is started.
        """

    def portion(self, rows: int) -> Portion:
        """This rank's part of a global batch of ``rows`` rows (at least one)."""

    def build(self, make: Make, device: torch.device, *, loaded: bool = False) -> Parts:
        """The parts, spread over the ranks' devices; a scheduler keeps its optimizer.

        If ``loaded``, a state will be loaded before anything else: the initial values of parameters, which
        would be overwritten, are then not computed.
        """

    def load(
        self, parts: Parts, model: Mapping[str, Any] | None, optimizer: Mapping[str, Any] | None
    ) -> None:
        """Take the neutral state that ``export`` gave. It is given away: training may continue in its
        tensors.

        Each rank may hold the state, or only rank 0, the others giving ``None``; it is sent only in the
        latter case. Raises ``CheckpointError`` if the optimizer's groups are others.
        """

    def step(
        self, parts: Parts, x: Any, y: Any, loss_of: LossOf, *, share: float = 1.0, clip: float | None = None
    ) -> Tensor:
        """Gradient of the loss, its total norm over all ranks clipped to ``clip``, one step of the optimizer.

        ``x`` and ``y`` are this rank's ``portion`` of the batch and ``share`` that portion's. Returns this
        rank's addend (detached) to the mean over the global batch: the sum over all ranks is the loss.
        """

    def export(self, parts: Parts) -> tuple[dict[str, Any], dict[str, Any]]:
        """The neutral state, of use to nobody but rank 0 (others may get it too, or empty dicts).

        The model's ``state_dict``, and the optimizer's by name (``optimizer_state.NamedState``). On the CPU
        the tensors may be the live ones: write them before training anything else.
        """

    def close(self) -> None:
        """Release the unit's resources. The process group is not the parallelism's: ``group.formed``."""


@runtime_checkable
class Stepwise(Parallelism, Protocol):
    """A parallelism whose ``step`` can be divided, for tasks with their own training loop: these call
    ``parts.model`` themselves, and weigh the loss by the portion's ``share``."""

    accumulates: bool
    """Whether ``backward`` may be called several times before ``update``, the gradients adding up."""

    def backward(self, parts: Parts, loss: Tensor) -> None:
        """Accumulate the gradient of ``loss``, averaged over the ranks."""

    def update(self, parts: Parts, clip: float | None) -> None:
        """Clip the gradient's total norm over all ranks to ``clip``, and let the optimizer take its step."""


@runtime_checkable
class Sharding(Protocol):
    """A parallelism that can hand over its shards as they are, without gathering them.

    They are cut by rows, as ``torch.chunk`` cuts them. So rank ``i`` of the next unit of as many ranks may
    load the export of rank ``i``; the whole tensor is its shards together (``checkpoint``). Its ``load``
    takes a rank's rows in place of a full tensor.
    """

    def export_shards(self, parts: Parts) -> tuple[dict[str, Any], dict[str, Any]]:
        """As ``export``, on every rank: a ``DTensor`` with its rows for each tensor that is sharded and
        trained. One that gets no gradient is whole, as it lies in a base."""


WHOLE = ("single", "ddp")
"""The parallelisms in which a rank has the model as the user has made it."""
GROUP = "cerebro.parallel"


def make_parallelism(name: str, options: Mapping[str, Any] | None = None) -> Parallelism:
    """The parallelism ``name`` with a recipe's options, which are the keyword arguments of its factory.

    Raises ``CerebroError`` for an unknown name, ``MissingExtra`` if a package is not installed, and
    ``RecipeError`` for unknown or wrong options.
    """
    factory = registry.load(GROUP, name)
    known = arguments.accepted(factory)
    for option in options or {}:
        if known is not None and option not in known:
            raise RecipeError(f"{name} has no option {option!r}; {did_you_mean(option, known)}")
    _check_kinds(name, factory, options or {})
    parallelism: Parallelism = factory(**(options or {}))
    return parallelism


def _check_kinds(name: str, factory: Any, options: Mapping[str, Any]) -> None:
    """That the options are of the kinds that the factory's annotations, if it has any, say."""
    try:
        kinds = factory.__init__ if isinstance(factory, type) else factory  # type: ignore[misc]
        hints = get_type_hints(kinds)
    except NameError:  # of something that is there for type checkers alone
        return
    for option in options.keys() & hints.keys():
        try:
            TypeAdapter(hints[option]).validate_python(options[option], strict=True)
        except ValidationError as exc:
            rule = exc.errors()[0]["msg"].replace("Input should", "it should")
            raise RecipeError(f"{name}: {option} is {options[option]!r}: {rule}") from exc


_PROBE = 8


def check_room(parts: Parts, parallelism: Parallelism, ranks: int, device: torch.device, room: int) -> None:
    """Raise ``TaskError`` if a rank lacks ``room``, in bytes, for its part of ``parts``.

    It holds parameters, a gradient for each that is trained, and the optimizer's slots: for Adam in float32
    the 16 bytes a parameter of the ZeRO paper (Rajbhandari et al. 2020, section 3.1, less the copy that mixed
    precision adds). Activations come on top: they are unknown before a batch is trained. So this is a lower
    bound: it shows that a model cannot fit, never that it fits.
    """
    spread = parallelism.spread(ranks, device)
    parameters, gradients, slots = weight(parts)
    needs = parameters * spread.parameters + gradients * spread.gradients + slots * spread.slots
    if needs > room:
        raise TaskError(
            f"a rank holds at least {needs / 1e6:.3g} MB of parameters, gradients and optimizer state, and "
            f"has {room / 1e6:.3g} MB for them: take more ranks, or a parallelism that shards more of it"
        )


def weight(parts: Parts) -> tuple[int, int, int]:
    """Bytes of all parameters, of their gradients, and of the optimizer's slots."""
    everything = [parameter for parameter in parts.model.parameters() if not is_lazy(parameter)]
    trained = sum(p.nbytes for p in everything if p.requires_grad)
    return sum(p.nbytes for p in everything), trained, round(trained * _slots(parts.optimizer))


def _slots(optimizer: Optimizer) -> float:
    """Bytes of slots for each byte of a parameter, by a step on a parameter of a few elements; 0 if the
    optimizer does not take such a step."""
    probe = nn.Parameter(torch.zeros(_PROBE))
    probe.grad = torch.zeros(_PROBE)
    twin = copy.copy(optimizer)
    twin.state = defaultdict(dict)
    group = {**optimizer.param_groups[0], "params": [probe]}
    if "capturable" in group:  # on a CPU it cannot be
        group["capturable"] = False
    twin.param_groups = [group]
    try:
        type(optimizer).step(twin)
    except Exception:  # the user's optimizer may need anything
        return 0.0
    slots = [value for value in twin.state[probe].values() if isinstance(value, torch.Tensor)]
    return sum(slot.nbytes for slot in slots if slot.numel() == _PROBE) / probe.nbytes
