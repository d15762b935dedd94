"""Training imports torch's compiler only where something compiles. Each test has a process of its own, since
this one may have imported it."""

from __future__ import annotations

import subprocess
import sys

import pytest

TRAINS = """
import sys
from cerebro_elastic.hop import _torch_internals
import torch

model = torch.nn.Linear(3, 1)
optimizer = torch.optim.Adam(model.parameters())

def step():
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())

step()
assert not [name for name in sys.modules if name.startswith("torch._dynamo.")]
zeroed = torch.optim.Optimizer.zero_grad.__wrapped__
"""
COMPILER_IS_WHOLE = """
import torch._dynamo.utils
assert torch._dynamo.utils.__spec__.loader.name == "torch._dynamo.utils"
assert sys.modules["torch._dynamo"].utils is torch._dynamo.utils
assert type(sys.modules["torch._dynamo"]) is type(sys)
step()
assert zeroed.__dynamo_disable is not zeroed
"""
USES = {
    "compile": "print(torch.compile(model, backend='eager')(torch.ones(2, 3)).shape)",
    "attribute": "from torch._dynamo import OptimizedModule",
    "disable": "assert torch.compiler.disable(abs)(-1) == torch._dynamo.disable(recursive=False)(abs)(-1)",
    "submodule": "from torch._dynamo.utils import counters; assert torch._dynamo.utils.counters is counters",
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_the_compiler_is_imported_at_its_first_use(use: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{TRAINS}\n{use}\n{COMPILER_IS_WHOLE}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
