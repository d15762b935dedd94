"""The objects that a walk over a graph has met, and where."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class ObjectIndex:
    """The objects met so far."""

    paths: dict[int, str] = field(default_factory=dict)
    """The path of each object that has an identity, by its id."""
    objects: dict[str, Any] = field(default_factory=dict)
    """The objects by path. They are kept, so that no id is used again."""
    opaque: dict[str, Any] = field(default_factory=dict)
    """Fingerprints of the objects that cannot be carried, by path."""
    buffers: dict[str, tuple[Any, int]] = field(default_factory=dict)
    """The buffers that a state dict leaves out, by path, with the number of writes to each."""

    def size(self) -> int:
        return len(self.objects)

    def since(self, size: int) -> ObjectIndex:
        """All but the first ``size`` objects."""
        objects = dict(list(self.objects.items())[size:])
        paths = {id(value): path for path, value in objects.items() if self.paths.get(id(value)) == path}
        return ObjectIndex(paths, objects)

    def meet(self, value: Any, path: str) -> None:
        """Add one object, unless it was met elsewhere."""
        if id(value) not in self.paths:
            self.paths[id(value)] = path
            self.objects[path] = value

    def add(self, other: ObjectIndex) -> None:
        """Add the objects that another walk has met."""
        self.paths.update(other.paths)
        self.objects.update(other.objects)

    def forget(self, size: int) -> None:
        """Forget all but the first ``size`` objects."""
        for path in list(self.objects)[size:]:
            value = self.objects.pop(path)
            if self.paths.get(id(value)) == path:
                del self.paths[id(value)]
            self.opaque.pop(path, None)
