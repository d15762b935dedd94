"""What it gains that a batch is made once for all configs: pictures that are opened and cropped, a small net.

    python benchmarks/data_once.py [--rows 1600] [--configs 8] [--epochs 3] [--rounds 3] [--times 1]

Each round trains the same configs in turns, in an order that is drawn: by runs that share batches, with
``decode`` and ``augment`` (``split``) or both in one function (``one``); by runs that share none (``none``);
and by plain loops, as many processes as nodes, with a ``DataLoader`` of one worker each (``loader``), or with
all opened rows in memory (``memory``). ``--times`` opens each picture so often. Printed are medians of the
seconds from the first unit's begin to the last one's end (loops: of all epochs), and ratios to ``none``. On
one node runs must have equal digests of all visits. Needs an idle machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PARTITIONS, BATCH, VALID = 4, 32, 0.2
RUNS = ("none", "one", "split")
LOOPS = ("loader", "memory")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("rows", 1600), ("configs", 8), ("epochs", 3), ("rounds", 3), ("times", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--arms", nargs="+", choices=RUNS + LOOPS, default=RUNS + LOOPS)
    options = parser.parse_args()
    os.environ["CEREBRO_BENCHMARK_ROWS"] = str(options.rows)
    os.environ["CEREBRO_BENCHMARK_TIMES"] = str(options.times)
    os.environ["CEREBRO_CHECK"] = "off"
    for nodes in options.nodes:
        compare(nodes, options)


def compare(nodes: int, options: argparse.Namespace) -> None:
    """Print a line for each arm."""
    seconds: dict[str, list[float]] = {arm: [] for arm in options.arms}
    digests: dict[tuple[str, int], Any] = {}
    data = {}
    for number in range(options.rounds):
        for arm in random.sample(list(options.arms), len(options.arms)):
            if arm in LOOPS:
                seconds[arm].append(loops(arm, nodes, options.configs, options.epochs))
                continue
            with tempfile.TemporaryDirectory(prefix="cerebro-data-once-") as home:
                seconds[arm].append(run(arm, nodes, options, Path(home), digests, data))
        print(f"round {number + 1} of {options.rounds} on {nodes}", flush=True)
    if len(set(map(str, digests.values()))) > 1:
        raise SystemExit("the runs differ in the digests of their visits")
    for arm, times in seconds.items():
        median = statistics.median(times)
        ratio = f"{median / statistics.median(seconds['none']):6.2f}" if "none" in seconds else ""
        print(
            f"{nodes} node{'s' if nodes > 1 else ' '}  {arm:7s} {median:7.1f} s {ratio}  {data.get(arm, '')}"
        )


def run(
    arm: str,
    nodes: int,
    options: argparse.Namespace,
    home: Path,
    digests: dict[tuple[str, int], Any],
    data: dict[str, str],
) -> float:
    import cerebro_elastic

    functions: dict[str, Any] = {"decode": {"image": "data_once_task:opened_and_cropped"}}
    if arm == "split":
        functions = {
            "decode": {"image": "data_once_task:opened"},
            "augment": {"image": "data_once_task:cropped"},
        }
    recipe = {
        "name": arm,
        "epochs": options.epochs,
        "nodes": nodes,
        "task": {"kind": "torch", "model_fn": "data_once_task:make", "loss": "cross_entropy"},
        "data": {
            "source": "data_once_task:load",
            "partitions": PARTITIONS,
            "valid": VALID,
            "batch_size": BATCH,
            "workers": 1,
            **functions,
        },
        "search": {"space": {"lr": rates(options.configs)}},
        "objective": {"metric": "val_loss", "mode": "min"},
        **({"node": {"batch_cache_bytes": 0}} if arm == "none" else {}),
    }
    result = cerebro_elastic.run(cerebro_elastic.load_recipe(recipe, root=HERE), home=home)
    rows = sorted(result.leaderboard, key=lambda row: row.config)
    visits = [visit for row in rows for visit in row.visits]
    # Configs visit partitions in an order that depends on when nodes are free.
    if nodes == 1:
        digests[arm, len(digests)] = [visit.output.digest for visit in visits]
    made, shared = (sum(getattr(v, name) for v in visits) for name in ("batches_made", "batches_shared"))
    data[arm] = f"made {made} batches, shared {shared}"
    return max(visit.ended for visit in visits) - min(visit.started for visit in visits)


def rates(configs: int) -> list[float]:
    return [round(0.1 / 2**number, 6) for number in range(configs)]


def loops(arm: str, processes: int, configs: int, epochs: int) -> float:
    """Seconds of plain loops: each process trains its share of the configs, one after the other."""
    context = multiprocessing.get_context("spawn")
    ready, go = context.Barrier(processes + 1), context.Event()
    shares = [rates(configs)[number::processes] for number in range(processes)]
    workers = [context.Process(target=loop, args=(arm, share, epochs, ready, go)) for share in shares]
    for worker in workers:
        worker.start()
    ready.wait()
    began = time.perf_counter()
    go.set()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise SystemExit(f"a loop of {arm} failed")
    return time.perf_counter() - began


def loop(arm: str, share: Sequence[float], epochs: int, ready: Any, go: Any) -> None:
    import data_once_task
    import torch
    from torch.nn.functional import cross_entropy

    torch.set_num_threads(1)
    columns = data_once_task.load()
    training = round(len(columns["label"]) * (1 - VALID))
    ready.wait()
    go.wait()
    loaders = [
        loader(arm, columns, range(training), True),
        loader(arm, columns, range(training, len(columns["label"])), False),
    ]
    for rate in share:
        model, optimizer = data_once_task.make(rate)
        for _ in range(epochs):
            for x, y in loaders[0]:
                optimizer.zero_grad()
                cross_entropy(model(x), y).backward()
                optimizer.step()
            with torch.no_grad():
                for x, y in loaders[1]:
                    cross_entropy(model(x), y)


def loader(arm: str, columns: Mapping[str, Any], rows: range, training: bool) -> Any:
    from torch.utils.data import DataLoader

    apart: dict[str, Any] = {"num_workers": 1, "persistent_workers": True} if arm == "loader" else {}
    return DataLoader(Rows(columns, rows, training, arm == "memory"), BATCH, shuffle=training, **apart)


class Rows:
    """Rows for a ``DataLoader``; in ``memory`` each is opened once."""

    def __init__(self, columns: Mapping[str, Any], rows: range, training: bool, memory: bool) -> None:
        self.images = [columns["image"][row] for row in rows]
        self.labels = [int(columns["label"][row]) for row in rows]
        self.training = training
        self.memory: dict[int, Any] | None = {} if memory else None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        import data_once_task

        if self.memory is None:
            picture = data_once_task.opened(self.images[row])
        elif row not in self.memory:
            picture = self.memory[row] = data_once_task.opened(self.images[row])
        else:
            picture = self.memory[row]
        return data_once_task.cropped(picture, self.training), self.labels[row]


if __name__ == "__main__":
    main()
