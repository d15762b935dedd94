"""Which module of a model is its frozen prefix, whether it can be one, and what it is: by digests that are
equal as long as it makes the same features. And trees of tensors, as it takes and returns them."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from cerebro_elastic.checkpoint.bases import bytes_of, sha256_of
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.data.reading.row_sums import Sums, row_sums
from cerebro_elastic.data.user_state import generator_states
from cerebro_elastic.errors import TaskError, did_you_mean
from cerebro_elastic.system.devices import generator_state
from cerebro_elastic.system.torch_internals import buffers_of, normalizes, version_of
from cerebro_elastic.training._torch_internals import CALL_HOOK_TABLES, hooks_of
from cerebro_elastic.training.parallel.base import WHOLE

Tree: TypeAlias = Any
"""A tensor, or tuples, lists and dicts of tensors."""
Path: TypeAlias = tuple[Any, ...]
"""Where in a tree a tensor is."""

_DROPOUTS = (
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout,
)  # fmt: skip
_DIFFERENCE = {torch.float64: 1e-6, torch.float32: 1e-3}
"""By how much, relative to the largest, the features of a row may depend on the number of rows beside it."""
_DIFFERENCE_OF_OTHERS = 3e-2


def named(path: str) -> str:
    """What messages call the prefix."""
    return f"task.frozen_prefix {path!r}"


def part_of(model: nn.Module, path: str) -> nn.Module:
    """The module of this name. Raises ``TaskError`` if there is none."""
    with suppress(AttributeError):
        if path:  # else it would be the model itself
            return model.get_submodule(path)
    names = [name for name, _ in model.named_modules() if name.count(".") <= path.count(".") and name]
    raise TaskError(f"{named(path)}: {type(model).__name__} has no such module; {did_you_mean(path, names)}")


def refuse_chance(path: str, prefix: nn.Module) -> None:
    """Raise ``TaskError`` if a module of the prefix depends on chance or on the batch, or has a hook."""
    for inner, part in prefix.named_modules():
        shown = f"{named(path)}: {inner or 'it'} ({type(part).__name__})"
        if any(hooks_of(part, table) for table in CALL_HOOK_TABLES):
            raise TaskError(
                f"{shown} has a hook, which would not run where features are kept: put it on a module behind "
                "the prefix"
            )
        rate = part.p if isinstance(part, _DROPOUTS) else getattr(part, "dropout", 0)
        drops = part.training and isinstance(rate, float | int) and rate > 0
        if drops or (part.training and normalizes(part) and part.track_running_stats):
            what = "drops at random" if drops else "computes across the rows of a batch"
            raise TaskError(
                f"{shown} is in training mode, and {what}: keep the prefix in eval mode, as by `def train("
                "self, mode=True): super().train(mode); self.encoder.eval(); return self` in the model"
            )


def refusal_of(path: str | None, strategy: Strategy) -> str | None:
    """Why ``strategy`` cannot train a model with this frozen prefix, if it has one; ``None`` if it can."""
    if path is None or strategy.parallelism in WHOLE:
        return None
    return (
        f"{named(path)} under {strategy.parallelism}, which divides the prefix's tensors: "
        f"choose {' or '.join(WHOLE)}, or remove frozen_prefix"
    )


def tensors(prefix: nn.Module) -> Iterator[Tensor]:
    for part in prefix.modules():
        yield from part.parameters(recurse=False)
        yield from (buffer for buffer in buffers_of(part).values() if buffer is not None)


def digests(prefix: nn.Module) -> tuple[str, ...]:
    """Those of its parameters and buffers."""
    return tuple(_digest(tensor) for tensor in tensors(prefix))


def _digest(tensor: Tensor) -> str:
    content = bytes_of(tensor.detach().cpu().contiguous())
    return f"{tensor.dtype}{list(tensor.shape)}{sha256_of(content)}"


def stamp(prefix: nn.Module) -> object:
    """It stays equal while nobody writes to the prefix's tensors, but through ``data``."""
    return [(id(tensor), tensor.data_ptr(), version_of(tensor)) for tensor in tensors(prefix)]


def modes(prefix: nn.Module) -> tuple[bool, ...]:
    """Which of its modules are in training mode."""
    return tuple(part.training for part in prefix.modules())


def form(path: str, prefix: nn.Module) -> str:
    """A digest of what the prefix is besides its parameters and buffers: the names of its classes, its
    attributes and modes. (No config may change a variable of the user's files, and features are kept with the
    environment that the config has set.) Raises ``TaskError`` if it cannot be pickled."""
    content = io.BytesIO()
    try:
        _Pickler(content, prefix).dump(prefix)
    except Exception as exc:  # whatever the user's class does
        raise TaskError(
            f"{named(path)} has something that cannot be pickled, so its features have no name ({exc}): "
            "define its classes and functions at the top level of a file, and keep no lambda in it"
        ) from exc
    return hashlib.sha256(content.getvalue()).hexdigest()


class _Pickler(pickle.Pickler):
    """Writes equal values as equal bytes, whether they are one object or several, and code by its name.
    Parameters and buffers are digested elsewhere."""

    def __init__(self, file: io.BytesIO, prefix: nn.Module) -> None:
        super().__init__(file, protocol=5)
        self.fast = True
        self._numbers = {id(tensor): number for number, tensor in enumerate(tensors(prefix))}

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, nn.Module) and is_parametrized(value):  # which torch does not pickle
            # Tables of hooks have numbers that the process counts, and none runs in a call.
            content = {name: item for name, item in vars(value).items() if "hooks" not in name}
            return str, (str(type(value)),), content
        if not isinstance(value, Tensor):
            return NotImplemented
        number = self._numbers.get(id(value))
        return str, (_digest(value) if number is None else number,)


def state(path: str, prefix: nn.Module) -> object:
    """What computing features must leave as it is: generators, the prefix, and what the user's files keep."""
    devices = {tensor.device for tensor in tensors(prefix) if tensor.device.type not in ("cpu", "meta")}
    of_devices = [generator_state(str(device)).numpy().tobytes() for device in devices]
    return of_devices, generator_states(), form(path, prefix), digests(prefix)


def close(one: Tensor, other: Tensor) -> bool:
    """Whether the features of the same rows are equal up to rounding."""
    if one.shape != other.shape:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    largest = max(one.abs().max().item(), 1e-30) if one.numel() else 1.0
    allowed = _DIFFERENCE.get(one.dtype, _DIFFERENCE_OF_OTHERS) * largest
    return torch.allclose(one.double(), other.double(), rtol=0.0, atol=allowed, equal_nan=True)


def sums(tensor: Tensor) -> Sums:
    """A sum for each row."""
    rows = tensor.detach().cpu().contiguous().reshape(len(tensor), -1)
    return row_sums(rows.view(torch.uint8).numpy()) if rows.numel() else np.zeros(len(tensor), np.uint64)


def is_same(leaf: Tensor, value: Tensor) -> bool:
    """Whether the value has the leaf's numbers, row by row."""
    if value is leaf:
        return True
    if value.ndim == 0 or len(value) != len(leaf) or value.numel() != leaf.numel():
        return False
    expected = leaf.to(value.device, value.dtype).contiguous().reshape(-1).view(torch.uint8)
    return torch.equal(expected, value.detach().contiguous().reshape(-1).view(torch.uint8))


def leaves(tree: Any, kind: Any = Tensor, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The leaves of a ``kind``, and where they are."""
    if isinstance(tree, kind):
        yield path, tree
    elif isinstance(tree, Mapping):
        for key, item in tree.items():
            yield from leaves(item, kind, (*path, key))
    elif isinstance(tree, list | tuple):
        for at, item in enumerate(tree):
            yield from leaves(item, kind, (*path, at))


def leaves_of(tree: Any, kind: Any = Tensor) -> Iterator[Any]:
    return (leaf for _, leaf in leaves(tree, kind))


def leaf(tree: Any, path: Path) -> Tensor:
    """The tensor at a path of a tree."""
    for key in path:
        tree = tree[key]
    tensor: Tensor = tree
    return tensor


def mapped(tree: Any, act: Callable[[Any], Any]) -> Any:
    """The tree with what ``act`` makes of each leaf."""
    if isinstance(tree, Mapping):
        make: Any = type(tree)
        return make({key: mapped(item, act) for key, item in tree.items()})
    if isinstance(tree, list | tuple):
        items = [mapped(item, act) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    return act(tree)
