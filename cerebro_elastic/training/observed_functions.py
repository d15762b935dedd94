"""The functions of a ``torch`` recipe, with somebody looking on: what ``cerebro check`` compares."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.parallel.base import Parts
from cerebro_elastic.parallel.optimizer_state import to_names
from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.training import rng
from cerebro_elastic.training.task import Observe
from cerebro_elastic.training.user_functions import UserFunctions


class ObservedFunctions(UserFunctions):
    """Shows ``observe`` all of a config before each batch, and at its units' ends."""

    def __init__(self, section: TorchSection, root: Path, observe: Observe) -> None:
        super().__init__(section, root)
        self._observe = observe
        self._parts: Parts | None = None

    def make_parts(self, hparams: HParams, context: Mapping[str, Any]) -> Parts:
        self._parts = super().make_parts(hparams, context)
        return self._parts

    def prepare(self, batch: Any, hparams: HParams) -> Any:
        self._show("before")
        return super().prepare(batch, hparams)

    def at_end(self) -> None:
        self._show("after")

    def _show(self, when: str) -> None:
        assert self._parts is not None
        self._observe(when, _consists_of(self._parts))


def _consists_of(parts: Parts) -> dict[str, Any]:
    model = parts.model
    return {
        "weight": dict(model.named_parameters()),
        "buffer": dict(model.named_buffers()),
        "optimizer": to_names(parts.optimizer, model),
        "scheduler": parts.scheduler.state_dict() if parts.scheduler is not None else {},
        "generator": rng.capture(),
        "attribute": {
            f"{path}.{name}".lstrip("."): value
            for path, module in model.named_modules()
            for name, value in vars(module).items()
            if name not in _MODULE_OWN
        },
    }


_MODULE_OWN = frozenset(vars(nn.Module())) - {"training"}
