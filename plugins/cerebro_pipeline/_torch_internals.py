"""Private names of torch that this plugin uses. Tested with torch 2.13, 2.14 and 2.15.

``tests/training/parallel/test_torch_internals.py`` names the ones that an upgrade of torch takes away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree


def tensors_of(batch: Any) -> list[Tensor]:
    """The tensors of nested lists, tuples and dicts, in their order."""
    return [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)]


def map_tensors(function: Callable[[Tensor], Tensor], batch: Any) -> Any:
    """A copy of nested lists, tuples and dicts with ``function`` of each tensor in its place."""
    return pytree.tree_map_only(Tensor, function, batch)
