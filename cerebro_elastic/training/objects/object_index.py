"""What a walk over a graph of objects has come across, and where."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class ObjectIndex:
    """``paths`` by the ids of objects that have an identity, ``objects`` by path (which keeps them, so that
    no id is used again), ``opaque`` by path: what cannot be carried, with a fingerprint."""

    paths: dict[int, str] = field(default_factory=dict)
    objects: dict[str, Any] = field(default_factory=dict)
    opaque: dict[str, Any] = field(default_factory=dict)

    def size(self) -> int:
        return len(self.objects)

    def forget(self, size: int) -> None:
        """What was come across since there were so many."""
        for path in list(self.objects)[size:]:
            value = self.objects.pop(path)
            if self.paths.get(id(value)) == path:
                del self.paths[id(value)]
            self.opaque.pop(path, None)
