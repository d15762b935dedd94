"""What hops, lies in memory and takes time of a state whose base is not trained.

    python benchmarks/frozen.py --layers 48 --ranks 4

A model of ``layers`` frozen matrices of 1024 x 1024 with an adapter of rank 8 for each, trained by Adam.
Printed are, with a base and as a whole:

- the bytes of a hop against those of the adapters with their optimizer's state;
- the seconds of loading and saving, each the best of several, against copying the rest;
- the memory of ``ranks`` processes that each have the state in a model (PSS, less that of as many processes
  without it) against the bases and the rest for each.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.hop.optimizer_state import take, to_names
from cerebro_elastic.training.parallel.construct import hand_over, untrained

WIDTH, RANK, TIMES = 1024, 8, 7


class Adapted(nn.Module):
    """A frozen matrix, and an adapter beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH, bias=False).requires_grad_(False)
        self.down, self.up = nn.Linear(WIDTH, RANK, bias=False), nn.Linear(RANK, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.base(x) + self.up(self.down(x))
        return output


def made(layers: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(*(Adapted() for _ in range(layers)))
    return model, torch.optim.Adam([p for p in model.parameters() if p.requires_grad])


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(4, WIDTH)).square().mean().backward()
    optimizer.step()


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {"model": model.state_dict(), "optimizer": to_names(optimizer, model)}


def best(act: Callable[[], Any]) -> float:
    seconds = []
    for _ in range(TIMES):
        began = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def pss() -> int:
    """Bytes of this process, those that it shares divided by the number of sharers."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) << 10


def rank(layers: int, ref: CheckpointRef | None, pipe: Connection) -> None:
    """A process that has the state in its model, and trains a step."""
    torch.set_num_threads(1)
    model, optimizer = made(layers if ref is not None else 1)
    if ref is not None:
        state = checkpoint.load(ref)
        hand_over(model, state["model"])
        take(optimizer, model, state["optimizer"])
        del state
    step(model, optimizer)
    pipe.send("ready")
    pipe.recv()
    pipe.send(pss())
    pipe.recv()


def together(layers: int, ref: CheckpointRef | None, ranks: int) -> int:
    """The bytes of so many ranks."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for _ in range(ranks):
        ours, theirs = context.Pipe()
        processes.append(context.Process(target=rank, args=(layers, ref, theirs)))
        pipes.append(ours)
        processes[-1].start()
    for pipe in pipes:
        pipe.recv()
    sizes = []
    for pipe in pipes:
        pipe.send("measure")
        sizes.append(pipe.recv())
    for pipe, process in zip(pipes, processes, strict=True):
        pipe.send("end")
        process.join()
    return sum(sizes)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--ranks", type=int, default=4)
    asked = parser.parse_args()
    model, optimizer = made(asked.layers)
    before = untrained(model, None, (), "model")
    step(model, optimizer)
    state = state_of(model, optimizer)
    base = sum(still.content.bytes for still in before.values())
    rest = sum(3 * p.nbytes for p in model.parameters() if p.requires_grad)
    part = torch.empty(rest // 4)
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        urls = iter(f"{folder}/checkpoints/c0/{number}" for number in range(1 << 20))
        shared = checkpoint.stage(state).save(next(urls), before=before)
        whole = checkpoint.save(state, next(urls))
        assert shared.digest == whole.digest
        print(f"a base of {base / 1e6:.1f} MB, adapters and optimizer of {rest / 1e6:.1f} MB")
        hops = [ref.hopping_bytes / rest for ref in (shared, whole)]
        print("bytes of a hop: {:.3f} x the rest; {:.1f} x as a whole".format(*hops))
        copy = best(lambda: part.clone())
        state = checkpoint.load(shared)
        stays = checkpoint.stays_in(state)
        for name, ref, kept in (("with a base", shared, stays), ("as a whole", whole, {})):
            load = best(lambda ref=ref: checkpoint.load(ref))
            save = best(lambda kept=kept: checkpoint.stage(state).save(next(urls), before=kept))
            times = [1e3 * seconds for seconds in (load, save, copy)]
            print(f"{name}: " + "load {:.1f} ms, save {:.1f} ms; copying the rest {:.1f} ms".format(*times))
        state.clear()  # this process would share the base
        alone = together(asked.layers, None, asked.ranks)
        for name, ref, bases in (("with a base", shared, 1), ("as a whole", whole, asked.ranks)):
            took = together(asked.layers, ref, asked.ranks) - alone
            least = bases * base + asked.ranks * rest
            parts = f"{bases} x base + {asked.ranks} x rest"
            print(f"{name}: {asked.ranks} ranks have {took / 1e6:.0f} MB, {took / least:.2f} x ({parts})")


if __name__ == "__main__":
    main()
