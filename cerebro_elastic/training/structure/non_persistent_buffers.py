"""Buffers that a state dict leaves out (``persistent=False``): if training changes them, they hop, too."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from cerebro_elastic.torch_internals import buffers_of, non_persistent_buffers_of, version_of


class NonPersistentBuffers:
    """The non-persistent buffers of ``model``, after those ``carried`` from the unit before are put back."""

    def __init__(self, model: nn.Module, carried: Mapping[str, Tensor | None]) -> None:
        self._model = model
        self._carried = carried.keys()
        owners = dict(model.named_modules())
        for name, value in carried.items():
            path, _, leaf = name.rpartition(".")
            buffers = buffers_of(owners[path])
            own = buffers[leaf]
            buffers[leaf] = value if value is None or own is None else value.to(own.device)
        self._before = {name: (buffer, version_of(buffer)) for name, buffer in _hidden(model).items()}

    def changed(self) -> dict[str, Tensor | None]:
        """The buffers that training has written to or replaced, in this unit or before, by name."""
        return {
            name: buffer if buffer is None else buffer.detach()
            for name, buffer in _hidden(self._model).items()
            if name in self._carried or self._is_new(name, buffer)
        }

    def _is_new(self, name: str, buffer: Tensor | None) -> bool:
        before, version = self._before.get(name, (None, -1))
        return buffer is not before or version_of(buffer) != version


def _hidden(model: nn.Module) -> dict[str, Tensor | None]:
    return {
        f"{path}.{name}" if path else name: buffers_of(part)[name]
        for path, part in model.named_modules()
        for name in buffers_of(part).keys() & non_persistent_buffers_of(part)
    }
