"""The paths of one GPU: bf16, fused optimizers, sharding on one rank, and running out of memory.

    python benchmarks/gpu.py [--width 768] [--depth 12] [--rows 64] [--steps 20]

The GPT of recipes/tiny_gpt.py trains by each path from the same seed. Printed are the median time of a step,
the highest number of bytes that torch had allocated, the last loss, and that the state went through a hop
bit for bit: exported, saved, loaded into fresh parts, exported again. At last a batch is doubled until the
GPU has no room for it: that has to be told as out of memory, and the next unit has to train as the first did.

Without a GPU it does on the CPU what can be done there, with a small model, and tells what it skipped.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cerebro_elastic import checkpoint
from cerebro_elastic.core.model.attempts import Attempt, FailureKind
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.training.parallel import group
from cerebro_elastic.training.parallel.base import Parallelism, Parts, make_parallelism
from cerebro_elastic.worker.failure import failure_of
from support.same import assert_same

sys.path.insert(0, str(Path(__file__).parents[1] / "recipes"))
import tiny_gpt

AUTOCAST = {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}}
PATHS: Mapping[str, tuple[str, dict[str, Any], bool]] = {
    "single, float32": ("single", {}, False),
    "single, fused AdamW": ("single", {}, True),
    "fsdp on one rank, float32": ("fsdp", {}, False),
    "fsdp on one rank, bfloat16": ("fsdp", {"precision": "bfloat16"}, False),
    "fsdp on one rank, bfloat16, fused AdamW": ("fsdp", {"precision": "bfloat16"}, True),
    "fsdp on one rank, offload": ("fsdp", {"offload": True}, False),
    "deepspeed stage 2 on one rank, bfloat16": ("deepspeed", {"stage": 2, "config": AUTOCAST}, False),
}
"""A parallelism, its options, and whether the optimizer is fused."""
GPU_ONLY = {
    "single, fused AdamW": "on a CPU torch's fused optimizers are wrong for some strides",
    "fsdp on one rank, bfloat16, fused AdamW": "on a CPU torch's fused optimizers are wrong for some strides",
    "fsdp on one rank, offload": "it has no effect on a CPU",
}


class UnitRunner:
    """Units of a model of this size on this device."""

    def __init__(self, device: torch.device, width: int, depth: int, rows: int) -> None:
        self.device = device
        self._width, self._depth, self.rows = width, depth, rows
        self._text = torch.from_numpy(tiny_gpt.load()["text"])

    def make(self, fused: bool) -> Parts:
        model = tiny_gpt.Gpt(self._width, self._depth)
        # The choice is made when the parameters are where they are trained: fused takes them on a GPU only.
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for each in optimizer.param_groups:
            each["fused"] = fused or None
        return Parts(model, optimizer)

    @contextmanager
    def unit(self, path: str) -> Iterator[tuple[Parallelism, Parts]]:
        """Fresh parts, in a group of one rank if the path needs one."""
        name, options, fused = PATHS[path]
        torch.manual_seed(0)
        with group.formed(group.listen("127.0.0.1"), 0, 1, self.device):
            parallelism = make_parallelism(name, options)
            try:
                yield parallelism, parallelism.build(lambda: self.make(fused), self.device)
            finally:
                parallelism.close()

    def step(self, parallelism: Parallelism, parts: Parts, number: int, rows: int | None = None) -> float:
        """Step ``number``; its loss."""
        generator = torch.Generator().manual_seed(number)
        chosen = torch.randint(len(self._text), (rows or self.rows,), generator=generator)
        x, y = (part.to(self.device) for part in tiny_gpt.to_input(self._text[chosen]))
        loss: Tensor = parallelism.step(parts, x, y, tiny_gpt.loss, clip=1.0)
        return float(loss)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def trained(bench: UnitRunner, path: str, steps: int) -> tuple[float, float]:
    """Print a line; seconds a step, and the last loss."""
    cuda = bench.device.type == "cuda"
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(bench.device)
    seconds, loss = [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        with bench.unit(path) as (parallelism, parts):
            for number in range(steps):
                began = time.perf_counter()
                loss = bench.step(parallelism, parts, number)
                bench.wait()
                seconds.append(time.perf_counter() - began)
            left = named(parallelism, parts)
            ref = checkpoint.save(left, f"{folder}/state")
            del parts
        with bench.unit(path) as (parallelism, parts):
            state = checkpoint.load(ref)
            parallelism.load(parts, state["model"], state["optimizer"])
            arrived = checkpoint.save(named(parallelism, parts), f"{folder}/arrived")
            del parts
        assert_same(checkpoint.load(arrived), checkpoint.load(ref), path)
    group.sweep()
    middle = statistics.median(seconds[1:])
    peak = f"{torch.cuda.max_memory_allocated(bench.device) / 1e6:.0f}" if cuda else "-"
    print(f"| {path} | {1e3 * middle:.1f} | {peak} | {loss:.3f} | bit for bit |", flush=True)
    return middle, loss


def named(parallelism: Parallelism, parts: Parts) -> dict[str, Any]:
    model, optimizer = parallelism.export(parts)
    return {"model": dict(model), "optimizer": optimizer}


def out_of_memory(bench: UnitRunner, path: str, loss: float, steps: int) -> None:
    """Run out of memory in one unit, and train the next as if nothing had been."""
    rows = bench.rows
    try:
        with bench.unit(path) as (parallelism, parts):
            while True:
                rows *= 2
                bench.step(parallelism, parts, 0, rows)
    except RuntimeError as error:
        failure = failure_of(Attempt(Unit("c", 0, 0), "node", 0, 0), "node", error)
        assert failure.kind is FailureKind.OUT_OF_MEMORY, failure
        del error
    group.sweep()
    print(f"\nout of memory with {rows} rows a batch, told as {failure.kind.value}; then:")
    again = trained(bench, path, steps)[1]
    assert again == loss, f"{again} and {loss}: the unit after is another"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cuda = torch.cuda.is_available()
    parser.add_argument("--width", type=int, default=768 if cuda else 64, help="a multiple of 16")
    parser.add_argument("--depth", type=int, default=12 if cuda else 2)
    parser.add_argument("--rows", type=int, default=64 if cuda else 16, help="of a batch")
    parser.add_argument("--steps", type=int, default=20 if cuda else 5)
    options = parser.parse_args()
    device = torch.device("cuda:0" if cuda else "cpu")
    bench = UnitRunner(device, options.width, options.depth, options.rows)
    parameters = sum(p.numel() for p in bench.make(False).model.parameters())
    print(f"{torch.cuda.get_device_name(device) if cuda else 'CPU'}, torch {torch.__version__}, ", end="")
    print(f"{parameters / 1e6:.1f} M parameters, {options.rows} rows of {tiny_gpt.LENGTH} bytes a batch\n")
    print("| path | ms a step | MB at most | last loss | hop |\n|---|---|---|---|---|")
    losses = {path: trained(bench, path, options.steps)[1] for path in PATHS if cuda or path not in GPU_ONLY}
    if cuda:
        path = "single, float32"
        out_of_memory(bench, path, losses[path], options.steps)
        return
    for path, why in GPU_ONLY.items():
        print(f"skipped {path}: {why}")
    print("skipped memory and running out of it: there is no GPU")


if __name__ == "__main__":
    main()
