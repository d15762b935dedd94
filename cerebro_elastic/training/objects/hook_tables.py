"""The hooks of modules, tensors and optimizers that keep something."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from cerebro_elastic.training._torch_internals import HOOK_TABLES, OPTIMIZER_HOOK_TABLES, hooks_of
from cerebro_elastic.training.objects.value_types import is_users


def hooks_that_keep(
    owners: Iterable[tuple[str, nn.Module | Tensor | Optimizer]],
) -> dict[str, tuple[Any, ...]]:
    """The hooks of the user's that the ``owners``, given by name, have in each of their tables."""
    return {
        f"{name}.{table}".lstrip("."): hooks
        for name, owner in owners
        for table in (OPTIMIZER_HOOK_TABLES if isinstance(owner, Optimizer) else HOOK_TABLES)
        if (hooks := tuple(filter(_keeps, hooks_of(owner, table).values())))
    }


def _keeps(hook: Any) -> bool:
    """Whether a hook is the user's: torch's own are made again with their owners."""
    function = getattr(hook, "__func__", hook)
    function = getattr(function, "func", function)  # of a partial
    return is_users(function) or is_users(type(function))
