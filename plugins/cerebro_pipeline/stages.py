"""A model cut into stages, each with a contiguous part of the model's ``forward``.

``torch.fx`` records the forward, down to the model's blocks and the modules beside them, which it does not
open. The record is cut before the blocks at which stages begin. A value that a later stage needs is passed
through the stages between; values such as sizes of the batch are computed in each stage that needs them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from torch import Tensor, fx, nn

from cerebro_elastic.extending.errors import TaskError, did_you_mean
from cerebro_elastic.extending.parallelism import repeated
from cerebro_elastic.extending.state import buffers_of

BATCH = "batch"
"""The keyword by which a stage takes the batch, if it does."""
_MODEL = "model."


def split(model: nn.Module, count: int, begin: Sequence[str] | None, *, training: bool) -> list[nn.Module]:
    """``count`` stages that share ``model``'s modules. Each takes the tuple that the previous stage returns;
    the last one returns the model's output.

    The second to last stages begin at the modules named in ``begin``; by default the model's blocks
    (``wrapping.repeated``) are dealt evenly. ``training`` is the mode in which ``forward`` is recorded.
    Raises ``TaskError`` if the model cannot be cut there.
    """
    named = begin is not None
    starts = list(begin) if begin is not None else list(repeated(model))
    if named and len(starts) != count - 1:
        raise TaskError(
            f"split: {', '.join(starts) or 'nothing'} begins {len(starts)} stages, and with {count} ranks "
            f"{count - 1} begin after the first: name as many modules"
        )
    root = _Root(model)
    nodes = _recorded(root, starts, training=training)
    called = _first_calls(nodes)
    if not named:
        starts = _dealt([name for name in called if name in starts], count)
    for name in starts:
        if name not in called:
            raise TaskError(f"split: forward calls no module {name!r}; {did_you_mean(name, called)}")
    places = [0, *sorted(called[name] for name in starts), len(nodes)]
    return _Cut(root, nodes, places).stages()


def takes_batch(stage: nn.Module) -> bool:
    assert isinstance(stage, fx.GraphModule)
    return any(node.op == "placeholder" and node.target == BATCH for node in stage.graph.nodes)


class _Root(nn.Module):
    """The model, called as a parallelism calls it: with the batch alone, all else at its default."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Any) -> Any:
        return self.model(batch)


class _Tracer(fx.Tracer):
    """Records the operations inside the ``opened`` modules, and the calls of all others."""

    proxy_buffer_attributes = True

    def __init__(self, opened: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self._opened = opened

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002
        return module_qualified_name not in self._opened


def _recorded(root: _Root, starts: Sequence[str], *, training: bool) -> list[fx.Node]:
    """The operations of ``forward``, in order."""
    opened = {name: module for name, module in root.named_modules() if _holds(name, starts)}
    try:
        with _untouched(list(opened.values()), training=training):
            graph = _Tracer(opened).trace(root)
    except TaskError:
        raise
    except Exception as exc:  # any error of the user's forward on a proxy
        reason = str(exc).strip().partition("\n")[0] or type(exc).__name__
        raise TaskError(
            f"{type(root.model).__name__}.forward cannot be recorded by torch.fx ({reason}): put what "
            "depends on values into a separate module, or make the model an nn.Sequential"
        ) from exc
    return list(graph.nodes)


def _holds(name: str, starts: Sequence[str]) -> bool:
    return name in ("", "model") or any(f"{_MODEL}{start}".startswith(f"{name}.") for start in starts)


@contextmanager
def _untouched(modules: Sequence[nn.Module], *, training: bool) -> Iterator[None]:
    """Inside the block the modules themselves, not their submodules, are in the mode; assignments to them are
    undone.

    Raises ``TaskError`` if one was made: a record would assign once, and ``forward`` does at every batch.
    """
    before = [(module, dict(vars(module)), dict(buffers_of(module))) for module in modules]
    assigned = set()
    try:
        for module in modules:
            module.training = training
        yield
    finally:
        for module, attributes, buffers in before:
            own_buffers = buffers_of(module)
            for was, now in ((attributes | {"training": training}, vars(module)), (buffers, own_buffers)):
                assigned |= {name for name in now if name not in was or now[name] is not was[name]}
            vars(module).clear()
            vars(module).update(attributes)
            own_buffers.update(buffers)
    if assigned:
        raise TaskError(
            f"forward assigns {', '.join(sorted(assigned))}, which no record of it can do: change buffers in "
            "place (self.calls.add_(1)), or in a separate module"
        )


def _first_calls(nodes: Sequence[fx.Node]) -> dict[str, int]:
    """The first call of each module, by its name in the model."""
    calls: dict[str, int] = {}
    for place, node in enumerate(nodes):
        if node.op == "call_module":
            calls.setdefault(str(node.target).removeprefix(_MODEL), place)
    return calls


def _dealt(blocks: Sequence[str], count: int) -> list[str]:
    """The blocks at which stages begin, except the first stage; earlier stages get the odd blocks, as the
    layers after the blocks mostly cost more than those before."""
    if len(blocks) < count:
        raise TaskError(
            f"the model has {len(blocks)} blocks in a row, too few for {count} stages: it needs a ModuleList "
            "or Sequential of blocks of one class; or name the modules at which stages begin with `split`"
        )
    return [blocks[-(-len(blocks) * stage // count)] for stage in range(1, count)]


class _Cut:
    """The record ``nodes`` of ``root``'s forward, cut at ``places``: from 0, its beginning, to its length."""

    def __init__(self, root: nn.Module, nodes: Sequence[fx.Node], places: Sequence[int]) -> None:
        self._root = root
        self._nodes = nodes
        self._count = len(places) - 1
        self._stage_of = {
            node: stage for stage, (start, stop) in enumerate(pairwise(places)) for node in nodes[start:stop]
        }
        self._free: set[fx.Node] = set()
        for node in nodes:
            if node.op == "placeholder" or (_is_free(node) and self._free.issuperset(node.all_input_nodes)):
                self._free.add(node)

    def stages(self) -> list[nn.Module]:
        crossing = [self._crossing(stage) for stage in range(self._count + 1)]
        return [self._stage(number, *given) for number, given in enumerate(pairwise(crossing))]

    def _crossing(self, stage: int) -> list[fx.Node]:
        """The values that a stage gets from the previous one."""
        return [
            node
            for node in self._nodes
            if node not in self._free
            and self._stage_of[node] < stage
            and any(self._stage_of[user] >= stage for user in node.users)
        ]

    def _stage(self, number: int, received: Sequence[fx.Node], given: Sequence[fx.Node]) -> nn.Module:
        graph = fx.Graph()
        known = {node: graph.placeholder(f"received_{place}") for place, node in enumerate(received)}
        own = [node for node in self._nodes if self._stage_of[node] == number and node not in self._free]
        if any(not self._free.isdisjoint(node.all_input_nodes) for node in own):
            known[self._nodes[0]] = graph.placeholder(BATCH)

        def copied(node: fx.Node) -> fx.Node:
            if node not in known:
                known[node] = graph.node_copy(node, copied)
            return known[node]

        for node in own:
            copied(node)
        if number < self._count - 1:
            graph.output(tuple(graph.call_function(_handed_on, (known[node],)) for node in given))
        return fx.GraphModule(self._root, graph)


def _is_free(node: fx.Node) -> bool:
    """Whether a stage may recompute a value instead of receiving it, provided that it may do so with its
    inputs."""
    if node.op == "call_method":
        return node.target in ("size", "dim")
    return node.op == "call_function" and node.target in _ARITHMETIC


_ARITHMETIC = (
    *(getattr, operator.getitem),
    *(operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod),
)


def _handed_on(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise TaskError(
            f"pipeline: a stage has to hand on {value!r}, and only tensors travel: compute it in the module "
            "that uses it, or begin stages elsewhere with `split`"
        )
    return value.contiguous()
