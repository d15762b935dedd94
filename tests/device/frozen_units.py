"""Units of models with frozen layers on the accelerator of this process: the state that each leaves, and what
crosses the bus. Prints them as JSON, for the ``TASKS`` that are named."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
import frozen_net
import torch
from frozen_on_ranks import jobs, lightning_task, torch_task
from torch import Tensor, nn

from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.hop.checkpoint import on_device
from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.system import devices
from cerebro_elastic.training.functions import FunctionTask
from cerebro_elastic.training.task import Task
from cerebro_elastic.worker.saving import save


class LookAhead(torch.optim.SGD):
    """Keeps copies of all parameters from before the first step, of frozen ones, too."""

    def __init__(self, params: Iterable[nn.Parameter]) -> None:
        super().__init__(params, lr=0.1)
        self.slow: list[Tensor] = [p.detach().clone() for p in self.param_groups[0]["params"]]

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step(closure)
        for slow, fast in zip(self.slow, self.param_groups[0]["params"], strict=True):
            fast.data.lerp_(slow, 0.1)


def looking_ahead() -> Any:
    net = frozen_net.Net()
    return net, LookAhead(net.parameters())


def writing(model: Any, optimizer: Any, batches: Any, epoch: int) -> dict[str, float]:
    """In the second epoch a frozen layer is written to, past torch's counters."""
    if epoch:
        model.backbone[2].weight.data[0, 0] += 1
    return frozen_net.train(model, optimizer, batches, 0)


def task(**section: str) -> Callable[[], Task]:
    return lambda: FunctionTask(TorchSection(**section), Path(__file__).parent)


TASKS = {
    "torch": torch_task,
    "lightning": lightning_task,
    "writing": task(model_fn="frozen_net:model", train_fn="frozen_units:writing"),
    "looking ahead": task(model_fn="frozen_units:looking_ahead", loss="cross_entropy"),
}


def crossed(device: str) -> tuple[int, int]:
    """Bytes to and from the device so far, as a pretended GPU counts them."""
    stats = torch.cuda.memory_stats() if device.startswith("cuda") else {}
    return stats.get("crossed_bytes.in", 0), stats.get("crossed_bytes.out", 0)


def chain(make: Callable[[], Task], device: str, url: str, *, whole: bool) -> list[dict[str, Any]]:
    """What each unit leaves: the digest, and the bytes in a base and across the bus."""
    units: list[dict[str, Any]] = []
    ref: CheckpointRef | None = None
    for number, job in enumerate(jobs()):
        before = crossed(device)
        state = None if ref is None else checkpoint.load(ref)
        stays = checkpoint.stays_in(state)
        on_device.keep_copies_of(() if whole else stays.values())
        result = make().train(replace(job, state=state, stays=stays, device=device))
        ref = save(result.state, f"{url}/{number}", None, {} if whole else {**result.before, **stays})
        bus = [now - then for now, then in zip(crossed(device), before, strict=True)]
        units.append({"digest": ref.digest, "base": ref.base_bytes, "bus": bus})
    return units


if __name__ == "__main__":
    torch.set_num_threads(1)
    device = devices.device_of(devices.kind_here(), 0)
    devices.use(device)
    with tempfile.TemporaryDirectory() as root:
        found = {
            name: [
                chain(make, device, f"{root}/checkpoints/{name}-{whole}", whole=whole)
                for whole in (False, True)
            ]
            for name, make in TASKS.items()
            if name in sys.argv
        }
    print(json.dumps(found))
