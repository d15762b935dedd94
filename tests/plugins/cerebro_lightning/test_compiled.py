"""What ``torch.compile`` puts on modules, functions and tensors is no state: some of it is an ``id``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_harness import Case, job
from lightning_zoo import Net
from torch import Tensor

from cerebro_elastic.hop.checkpoint.tree import flatten
from cerebro_lightning import LightningTask


def compiled(function: Any) -> Any:
    """As by ``torch.compile``, in milliseconds."""
    return torch.compile(function, backend="eager")


def halved(x: Tensor) -> Tensor:
    return x / 2


class Wrapped(Net):
    def __init__(self) -> None:
        super().__init__()
        self.net = compiled(self.net)


class Function(Net):
    def __init__(self) -> None:
        super().__init__()
        self.own = compiled(halved)
        self.held = [compiled(self.net)]
        self.left_out = torch.compiler.disable(halved)


class InSetUp(Net):
    def on_fit_start(self) -> None:
        self.fast = compiled(self.net)


@pytest.mark.parametrize("module", [Wrapped, Function, InSetUp])
def test_no_trace_of_the_compiler_is_in_the_state(module: type) -> None:
    case = Case("Net")
    section = case.section.model_copy(update={"module": f"{Path(__file__).stem}:{module.__name__}"})
    state = LightningTask(section, Path(__file__).parent).train(job(case, 0, 0, None)).state
    assert "dynamo_wrapper_id" not in repr(flatten(state)[0])
    assert "_dynamo_static" not in repr(flatten(state)[0])
