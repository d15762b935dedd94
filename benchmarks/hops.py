"""What a hop costs: the time for which ranks do not train between two units, over a copy of the state.

    python benchmarks/hops.py [--sizes 1e6 25e6 100e6] [--kinds single ddp ...] [--rounds 5] [--folder DIR]

Two processes do units of a chain of linear layers with AdamW, as a node's ranks do: form a group, build the
parts, load the state, train a step, gather the new state, save it, take everything apart. "blocked" is the
sum of group, build, load, gather and teardown: what neither another thread nor the storage does. "floor" is
the time that copying the bytes of a rank's state takes, into memory that is in use already, measured in the
same processes between the hops; "ratio" is blocked over floor. "read" is behind the unit before if the
controller could tell what comes next; "write" is until the checkpoint survives a power cut and others can
read it. Medians over the rounds, in milliseconds, of the slower rank.

"fsdp" hops between units of the same layout, so that each rank keeps its shards; "fsdp gathered" is what it
costs when all of the state is brought together for whoever comes next.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.hop.checkpoint import Part
from cerebro_elastic.training.parallel import collectives, group
from cerebro_elastic.training.parallel.base import Parallelism, Parts, Sharding, make_parallelism
from cerebro_elastic.training.parallel.rank_pool import Ranks

KINDS: Mapping[str, tuple[str, dict[str, Any], int]] = {
    "single": ("single", {}, 1),
    "ddp": ("ddp", {}, 2),
    "fsdp": ("fsdp", {}, 2),
    "fsdp gathered": ("fsdp", {}, 2),
    "zero-1": ("deepspeed", {"stage": 1}, 2),
    "zero-2": ("deepspeed", {"stage": 2}, 2),
    "zero-3": ("deepspeed", {"stage": 3}, 2),
    "pipeline": ("pipeline", {}, 2),
}
BLOCKING = ("group", "build", "load", "gather", "teardown")
BEHIND = ("read", "write")
CPU = torch.device("cpu")
HOST = "127.0.0.1"
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 31)}
"""As torchrun's agents set it for the ranks."""


@dataclass
class Stopwatch:
    """Seconds by what they were spent on."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - began


_meeting: list[Any] = []


def listen() -> int:
    """Rank 0's port."""
    _meeting[:] = [group.listen(HOST)]
    port: int = _meeting[0].port
    return port


def unit(
    kind: str, parameters: float, ref: CheckpointRef | None, url: str, port: int, rank: int
) -> tuple[dict[str, float], CheckpointRef | None]:
    """One unit on one rank, from ``ref`` to a state at ``url``: seconds, and on rank 0 what was saved."""
    name, options, size = KINDS[kind]
    parallelism, watch = make_parallelism(name, options), Stopwatch()
    part = Part(rank, size) if kind == "fsdp" else None
    with watch("read"):
        state = checkpoint.load(ref, part) if ref else None
    with ExitStack() as formed:
        if size > 1:
            with watch("group"):
                store = _meeting.pop() if rank == 0 else group.connect(HOST, port)
                formed.enter_context(group.formed(store, rank, size, CPU))
        with watch("build"):
            parts = parallelism.build(lambda: make(parameters), CPU, loaded=state is not None)
        if state is not None:
            with watch("load"):
                parallelism.load(parts, state["model"], state["optimizer"])
        train(parallelism, parts, width_and_layers(parameters)[0])
        with watch("gather"):
            sharded = part is not None and isinstance(parallelism, Sharding)
            exported = parallelism.export_shards(parts) if sharded else parallelism.export(parts)
        with watch("write"):
            saved = save(dict(zip(("model", "optimizer"), exported, strict=True)), url, part, rank)
        with watch("teardown"):
            del parts, state, exported
            parallelism.close()
            formed.close()
            if size > 1:
                group.sweep()
    return watch.seconds, saved


def width_and_layers(parameters: float) -> tuple[int, int]:
    width = 256 if parameters < 2e6 else 1024 if parameters < 50e6 else 2048
    return width, max(2, round(parameters / (width * width + width)))


def make(parameters: float) -> Parts:
    """A chain of linear layers with so many parameters."""
    width, layers = width_and_layers(parameters)
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=1e-4))


def train(parallelism: Parallelism, parts: Parts, width: int) -> None:
    """One step, on a batch of four rows."""
    portion = parallelism.portion(4)
    x = torch.ones(4, width)[portion.start : portion.stop]
    parallelism.step(parts, x, x, nn.functional.mse_loss, share=portion.share)


def save(state: Mapping[str, Any], url: str, part: Part | None, rank: int) -> CheckpointRef | None:
    """As a unit does it."""
    if part is None:
        return checkpoint.save(state, url) if rank == 0 else None
    written = collectives.gathered(checkpoint.save_part(state, url, part))
    return checkpoint.complete(written, url) if rank == 0 else None


def copying(size: int) -> float:
    """Seconds for copying so many bytes into memory that is in use already: the best of three."""
    source, target = torch.ones(size, dtype=torch.uint8), torch.ones(size, dtype=torch.uint8)
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        target.copy_(source)
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def together(ranks: Ranks, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """What ``function(*args, rank)`` returns on each of the ranks, which do it at the same time."""
    for rank in range(size):
        ranks.ask(rank, function, *args, *([rank] if function is unit else []))
    return [ranks.answer(rank) for rank in range(size)]


def measure(ranks: Ranks, kind: str, parameters: float, rounds: int, folder: str) -> None:
    """Print one line."""
    size = KINDS[kind][2]
    ref, seen, floors = None, [], []
    for number in range(rounds + 1):
        port = ranks.alone(0, listen) if size > 1 else 0
        url = f"{folder}/{kind.replace(' ', '-')}-{number}"
        answers = together(ranks, size, unit, kind, parameters, ref, url, port)
        if ref is not None:
            checkpoint.remove(ref)
            seen.append([times for times, _ in answers])
        ref = answers[0][1]
        assert ref is not None
        own = ref.bytes // (size if kind == "fsdp" else 1)
        floors.append(max(together(ranks, size, copying, own)))
    checkpoint.remove(ref)
    middle = {what: statistics.median(slower(each, what) for each in seen) for what in (*BLOCKING, *BEHIND)}
    blocked = statistics.median(slower(each, *BLOCKING) for each in seen)
    floor = statistics.median(floors)
    columns = [*(middle[what] for what in BLOCKING), blocked, floor]
    print(
        f"{parameters / 1e6:5.0f} M  {kind:14s}{own / 1e6:8.0f} MB"
        + "".join(f"{1e3 * each:10.1f}" for each in columns)
        + f"{blocked / floor:8.2f}"
        + "".join(f"{1e3 * middle[what]:10.0f}" for what in BEHIND),
        flush=True,
    )


def slower(ranks: Sequence[Mapping[str, float]], *what: str) -> float:
    """The seconds of the slower rank for all of this together: who is behind, others wait for."""
    return max(sum(times.get(each, 0.0) for each in what) for times in ranks)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e6, 25e6, 100e6], help="parameters")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="where checkpoints are written; a temporary folder by default")
    options = parser.parse_args()
    os.environ.update(MALLOC)
    print(" " * 7 + f"{'':16s}{'state':>9s}", *(f"{each:>10s}" for each in BLOCKING), sep="", end="")
    print(*(f"{each:>10s}" for each in ("blocked", "floor")), f"{'ratio':>8s}", sep="", end="")
    print(*(f"{each:>10s}" for each in BEHIND), sep="")
    with tempfile.TemporaryDirectory(prefix="cerebro-hops-", dir=options.folder) as folder, Ranks(2) as ranks:
        for parameters in options.sizes:
            for kind in options.kinds:
                measure(ranks, kind, parameters, options.rounds, folder)


if __name__ == "__main__":
    main()
