"""The digest of a state's tensors: a function of their bytes, wherever these lie.

It is the sha256 of the tensors' own sha256, in file order. So a tensor that lies in a base (``bases.py``)
counts as one in the checkpoint's file does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from cerebro_elastic.checkpoint.tensors import TensorSpec, header
from cerebro_elastic.system.files import Chunk, Content, Sha256


class TensorsDigest(Sha256):
    """Made while a file passes that has the tensors of ``layout``, but for those of which ``elsewhere`` says
    what they hold."""

    def __init__(self, layout: Sequence[TensorSpec], elsewhere: Mapping[str, Content]) -> None:
        super().__init__()
        here = [spec for spec in layout if spec.name not in elsewhere]
        self._header = header(here)
        self._layout = [spec.name for spec in layout if spec.bytes]
        self._elsewhere = elsewhere
        self._here = [spec.name for spec in here if spec.bytes]
        self._left = [spec.bytes for spec in reversed(here) if spec.bytes]
        self._room = len(self._header)
        self._sections = [self._hash]

    def update(self, chunk: Chunk) -> None:
        """Take ``chunk``, which may begin and end anywhere."""
        view = memoryview(chunk)
        while len(view):
            if not self._room:
                self._wait()
                self._hash = hashlib.sha256()
                self._sections.append(self._hash)
                self._room = self._left.pop() if self._left else len(view)
            size = min(self._room, len(view))
            super().update(view[:size])
            self._room -= size
            view = view[size:]

    def content(self) -> Content:
        """The bytes of all tensors, and their digest."""
        self._wait()
        first, *own = (section.hexdigest() for section in self._sections)
        digests = {name: content.sha256 for name, content in self._elsewhere.items()}
        digests |= dict(zip(self._here, own, strict=False))
        sound = first == hashlib.sha256(self._header).hexdigest() and len(own) == len(self._here)
        parts = [digests.get(name, "") for name in self._layout] if sound else [first, *own]
        size = self._bytes - len(self._header) + sum(content.bytes for content in self._elsewhere.values())
        return Content(size, hashlib.sha256("".join(parts).encode()).hexdigest())
