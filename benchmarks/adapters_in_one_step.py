"""What is gained if a rank trains several adapters in one step.

    python benchmarks/adapters_in_one_step.py

K adapters of LoRA (rank 8, all attention projections) lie on one frozen GPT. *Alone*, a rank trains one
adapter after the other on a batch. *Together*, it stacks the batch K times: each frozen layer is one product
over the rows of all adapters, each pair of adapter matrices a product per adapter. From the first adapted
layer on the rows differ, so no work is saved: larger products and fewer calls are all that can be gained.

Printed for each size, sequence length and batch size, in milliseconds per row and adapter (forward, backward
and step of AdamW; the modes in turns, the median of several turns):

- one rank of one thread, alone and together;
- two ranks of one thread, each with half of the adapters: alone is what a host of two cores does today;
- one rank of two threads, alone and together;
- the gain of one thread, and of two: today's two ranks against the better way to train together.

Then for each shape: are the gradients of an adapter the same bits whatever else shares its step? ("others":
the same K with other neighbours; "place": another place among them; "K=4": with three others or alone.)
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel

RANK, VOCABULARY = 8, 384
SIZES = {"recipe": (96, 3, 4), "small": (256, 4, 4), "medium": (512, 8, 8)}
"""Width, layers, heads: that of recipes/lora_sweep.yaml, and two larger ones."""


class Shape(NamedTuple):
    size: str
    length: int
    batch: int


class Adapted(nn.Module):
    """A frozen projection, and an adapter for each of ``adapters`` equal shares of the rows."""

    def __init__(self, base: nn.Module, adapters: int) -> None:
        super().__init__()
        self.base = base
        inner, outer = base.weight.shape
        self.down = nn.Parameter(torch.zeros(adapters, inner, RANK))
        self.up = nn.Parameter(torch.zeros(adapters, RANK, outer))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(len(self.down), -1, x.shape[-1])
        output: torch.Tensor = self.base(x)
        return output + (rows @ self.down @ self.up).view_as(output)


class Adapters(nn.Module):
    """A frozen GPT with the adapters of ``numbers``; an adapter's first values depend on its number alone."""

    def __init__(self, size: str, length: int, numbers: list[int]) -> None:
        super().__init__()
        width, layers, heads = SIZES[size]
        torch.manual_seed(0)
        config = GPT2Config(
            n_embd=width, n_layer=layers, n_head=heads, n_positions=length, vocab_size=VOCABULARY,
            resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False, bos_token_id=None, eos_token_id=None,
        )  # fmt: skip
        self.gpt = GPT2LMHeadModel(config).requires_grad_(False)
        self.adapters = len(numbers)
        for block in self.gpt.transformer.h:
            block.attn.c_attn = Adapted(block.attn.c_attn, self.adapters)
            block.attn.c_proj = Adapted(block.attn.c_proj, self.adapters)
        trained = [p for p in self.parameters() if p.requires_grad]
        for place, number in enumerate(numbers):
            generator = torch.Generator().manual_seed(number)
            for p in trained:
                p.data[place] = torch.randn(p.shape[1:], generator=generator) * 0.02
        self.optimizer = torch.optim.AdamW(trained, lr=1e-3)

    def gradients(self, batch: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        logits = (
            self.gpt(batch.repeat(self.adapters, 1)).logits[:, :-1].reshape(self.adapters, -1, VOCABULARY)
        )
        target = batch[:, 1:].reshape(-1)
        losses = [functional.cross_entropy(logits[k], target) for k in range(self.adapters)]
        torch.stack(losses).sum().backward()

    def step(self, batch: torch.Tensor) -> None:
        self.gradients(batch)
        self.optimizer.step()


def rows(shape: Shape) -> torch.Tensor:
    return torch.randint(VOCABULARY, (shape.batch, shape.length), generator=torch.Generator().manual_seed(1))


def rank(threads: int, pipe: Connection) -> None:
    """A process that trains what it is sent: (shape, adapters, together, steps), and answers."""
    torch.set_num_threads(threads)
    made: dict[Any, list[Adapters]] = {}
    while (job := pipe.recv()) is not None:
        shape, adapters, together, steps = job
        if (shape[:2], adapters, together) not in made:
            numbers = list(range(adapters))
            groups = [numbers] if together else [[number] for number in numbers]
            made = {key: value for key, value in made.items() if key[0] == shape[:2]}
            made[shape[:2], adapters, together] = [Adapters(*shape[:2], group) for group in groups]
        batch = rows(shape)
        for _ in range(steps):
            for model in made[shape[:2], adapters, together]:
                model.step(batch)
        pipe.send(None)


class Ranks:
    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes = []
        for threads in (1, 1, 2):
            mine, other = context.Pipe()
            context.Process(target=rank, args=(threads, other), daemon=True).start()
            self.pipes.append(mine)

    def seconds(self, ranks: list[int], shape: Shape, adapters: int, together: bool, steps: int) -> float:
        began = time.perf_counter()
        for number in ranks:
            self.pipes[number].send((shape, adapters // len(ranks), together, steps))
        for number in ranks:
            self.pipes[number].recv()
        return time.perf_counter() - began

    def measure(self, shape: Shape, adapters: int, turns: int, least: float) -> list[float]:
        """Milliseconds per row and adapter: one rank alone and together, two ranks, two threads."""
        modes = [(ranks, together) for ranks in ([0], [0, 1], [2]) for together in (False, True)]
        taken: list[list[float]] = [[] for _ in modes]
        for ranks, together in modes:
            self.seconds(ranks, shape, adapters, together, 2)
        steps = max(1, int(least / self.seconds([0], shape, adapters, False, 1)) + 1)
        for _ in range(turns):
            for seconds, (ranks, together) in zip(taken, modes, strict=True):
                seconds.append(self.seconds(ranks, shape, adapters, together, steps))
        return [1000 * statistics.median(seconds) / (steps * shape.batch * adapters) for seconds in taken]

    def end(self) -> None:
        for pipe in self.pipes:
            pipe.send(None)


def of_adapter(shape: Shape, numbers: list[int], place: int) -> list[torch.Tensor]:
    model = Adapters(*shape[:2], numbers)
    model.gradients(rows(shape))
    return [p.grad[place].clone() for p in model.parameters() if p.grad is not None]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> str:
    if all(torch.equal(a, b) for a, b in zip(one, other, strict=True)):
        return "equal"
    most = max(float((a - b).abs().max() / a.abs().max()) for a, b in zip(one, other, strict=True))
    return f"{most:.0e}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--lengths", nargs="+", type=int, default=[32, 128, 512])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--adapters", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--turns", type=int, default=3, help="0: compare bits only")
    parser.add_argument("--tokens", type=int, default=2048, help="the largest batch, in tokens")
    parser.add_argument("--least", type=float, default=0.2, help="seconds of a turn, at least")
    options = parser.parse_args()
    shapes = [
        Shape(size, length, batch)
        for size in options.sizes
        for length in options.lengths
        for batch in options.batches
        if length * batch <= options.tokens
    ]
    print(f"torch {torch.__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    if options.turns:
        print_times(shapes, options)
    print_equality(shapes, options.adapters)


def print_times(shapes: list[Shape], options: argparse.Namespace) -> None:
    print(f"{'':27}|{'one thread':^17}|{'two ranks':^17}|{'two threads':^17}|     gain")
    head = " ".join(f"{word:>8}" for _ in range(3) for word in ("alone", "together"))
    print(f"{'size':8} length batch  K {head}  1 core 2 cores")
    ranks = Ranks()
    for shape in shapes:
        for adapters in options.adapters:
            taken = ranks.measure(shape, adapters, options.turns, options.least)
            one, two = taken[0] / taken[1], taken[2] / min(taken[3], taken[5])
            times = " ".join(f"{milliseconds:8.3f}" for milliseconds in taken)
            line = (
                f"{shape.size:8} {shape.length:6} {shape.batch:5} {adapters:2} {times}  {one:6.2f} {two:7.2f}"
            )
            print(line, flush=True)
    ranks.end()


def print_equality(shapes: list[Shape], counts: list[int]) -> None:
    print("\nGradients of an adapter against those alone (the largest difference, of the largest gradient)")
    heads = " ".join(f"{head:>7}" for head in ("others", "place", *(f"K={k}" for k in counts)))
    print(f"{'size':8} length batch threads {heads}")
    most = max(counts)
    others = list(range(100, 100 + most - 1))
    for shape in shapes:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            among = of_adapter(shape, list(range(most)), 0)
            alone = of_adapter(shape, [0], 0)
            found = [
                same(among, of_adapter(shape, [0, *others], 0)),
                same(among, of_adapter(shape, [*others, 0], most - 1)),
                *(same(alone, of_adapter(shape, list(range(k)), 0)) for k in counts),
            ]
            words = " ".join(f"{word:>7}" for word in found)
            print(f"{shape.size:8} {shape.length:6} {shape.batch:5} {threads:7} {words}", flush=True)


if __name__ == "__main__":
    main()
