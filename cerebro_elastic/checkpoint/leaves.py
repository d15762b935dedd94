"""The arrays and tensors of a state, by name; and what is said of a value that cannot be stored."""

from __future__ import annotations

from typing import Any, NoReturn, TypeAlias

from cerebro_elastic.checkpoint.tensors import Leaf
from cerebro_elastic.errors import CheckpointError

Json: TypeAlias = Any
Path: TypeAlias = tuple[Any, ...]
"""Where a value is in a state: keys and indices."""


class Leaves:
    """Collects the arrays and tensors of one walk over a state."""

    def __init__(self) -> None:
        self.by_name: dict[str, Leaf] = {}
        self.tied: dict[Any, Json] = {}
        """The JSON of what was stored already, by what identifies it: it is not stored twice."""

    def add(self, leaf: Leaf, path: Path) -> str:
        """Store a leaf. Returns its name."""
        name = "/".join(map(str, path)) or "state"
        while name in self.by_name or name == "__metadata__":  # the format's reserved name
            name += "~"
        self.by_name[name] = leaf
        return name


def is_divided(leaf: Any) -> bool:
    """Whether it is a ``DTensor``, whose module takes long to import, so that only its users do."""
    return hasattr(leaf, "placements")


def refuse(path: Path, what: str, hint: str) -> NoReturn:
    """Raise ``CheckpointError`` for what cannot be stored."""
    raise CheckpointError(
        f"{in_words(path)} is {what}, which a checkpoint cannot hold: {hint}; it takes dict, list, tuple, "
        "set, str, bytes, numbers, bool, None, dense tensors and numeric numpy arrays"
    )


def in_words(path: Path) -> str:
    """The path as an expression of Python."""
    return "state" + "".join(f"[{key!r}]" for key in path)
