"""Buffers that no state dict has (``persistent=False``), of a plain model: what training writes to them hops,
too."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn


class HiddenBuffers:
    """Those of ``model`` as they are now, but for what a unit before has ``carried``, by name."""

    def __init__(self, model: nn.Module, carried: Mapping[str, Tensor | None]) -> None:
        self._model = model
        self._carried = carried.keys()
        owners = dict(model.named_modules())
        for name, value in carried.items():
            path, _, leaf = name.rpartition(".")
            own = owners[path]._buffers[leaf]
            owners[path]._buffers[leaf] = value if value is None or own is None else value.to(own.device)
        self._before = {name: (buffer, _version(buffer)) for name, buffer in _hidden(model).items()}

    def changed(self) -> dict[str, Tensor | None]:
        """Those that training has written to or replaced, in this unit or before."""
        return {
            name: buffer if buffer is None else buffer.detach()
            for name, buffer in _hidden(self._model).items()
            if name in self._carried or self._is_new(name, buffer)
        }

    def _is_new(self, name: str, buffer: Tensor | None) -> bool:
        before, version = self._before.get(name, (None, -1))
        return buffer is not before or _version(buffer) != version


def _hidden(model: nn.Module) -> dict[str, Tensor | None]:
    return {
        f"{path}.{name}" if path else name: part._buffers[name]
        for path, part in model.named_modules()
        for name in part._buffers.keys() & part._non_persistent_buffers_set
    }


def _version(buffer: Tensor | None) -> int:
    return 0 if buffer is None else buffer._version
