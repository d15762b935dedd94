"""Which modules of a model are sharded as units of their own: its blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torch import nn

from cerebro_elastic.errors import TaskError, did_you_mean


def blocks(model: nn.Module, classes: Sequence[str] | None) -> dict[str, nn.Module]:
    """The modules to shard by themselves, by name, outermost first; the rest goes with the model itself.

    By default the repeated entries of each ``ModuleList`` or ``Sequential``, such as the layers of a
    transformer; otherwise the modules of the ``classes`` named. Raises ``TaskError`` for a class that the
    model does not have, and for a module that cannot be sharded by itself.
    """
    if classes is None:
        candidates, owners = repeated(model), _owners(model)
        return {name: block for name, block in candidates.items() if not _shared(owners, block)}
    chosen = {
        name: module for name, module in model.named_modules() if name and type(module).__name__ in classes
    }
    _check(model, classes, chosen)
    return chosen


def repeated(model: nn.Module) -> dict[str, nn.Module]:
    """The repeated entries of each ``ModuleList`` or ``Sequential``, by name: the model's blocks."""
    repeats: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        if any(name.startswith(f"{outer}.") for outer in repeats):
            continue
        if isinstance(module, nn.ModuleList | nn.Sequential):
            entries = {key: child for key, child in module.named_children() if _parameters(child)}
            kinds = Counter(type(child) for child in entries.values())
            prefix = f"{name}." if name else ""
            repeats |= {f"{prefix}{key}": child for key, child in entries.items() if kinds[type(child)] > 1}
    return {name: block for name, block in repeats.items() if _callable(block)}


def _check(model: nn.Module, classes: Sequence[str], chosen: dict[str, nn.Module]) -> None:
    present = {type(module).__name__ for name, module in model.named_modules() if name}
    for kind in classes:
        if kind not in present:
            raise TaskError(
                f"wrap: {type(model).__name__} has no module of class {kind!r}; {did_you_mean(kind, present)}"
            )
    owners = _owners(model)
    for name, module in chosen.items():
        if not _callable(module):
            raise TaskError(
                f"wrap: {name} is a {type(module).__name__}, which is never called, so it cannot be sharded "
                "by itself: name the class of its entries"
            )
        if shared := _shared(owners, module):
            raise TaskError(
                f"wrap: {name} shares {', '.join(shared)} with a module outside of it, so it cannot be "
                "sharded by itself: name a class that holds both, or leave it out"
            )


def _callable(module: nn.Module) -> bool:
    return not isinstance(module, nn.ModuleList | nn.ModuleDict)


def _parameters(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())


def _owners(model: nn.Module) -> Counter[nn.Parameter]:
    """How many modules have each parameter as their own."""
    return Counter(p for module in model.modules() for p in module.parameters(recurse=False))


def _shared(owners: Counter[nn.Parameter], block: nn.Module) -> list[str]:
    """The names of the block's parameters that modules outside of it have too."""
    inside = _owners(block)
    return sorted(name for name, p in block.named_parameters() if inside[p] < owners[p])
