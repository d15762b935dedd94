"""How often does a race drop a config wrongly, and how many validation rows does it save?

    python benchmarks/racing.py

Perceptrons of scikit-learn's digits (16 learning rates or widths, 6 epochs) are trained once, and the losses
of each model on 1,000 rows that it has not seen are noted. These rows are the distribution: what is truly
worse is known. Each trial draws validation rows from them with replacement, and lets the search itself
(``search/race.py``) race: the configs that are left validate one of 10 partitions each, in turns and in a new
order each time, and it decides after each of them.

Printed are, for several numbers of rows:

- ``wrong``: the share of trials in which any config was dropped whose model was not worse than the other's
  (at most delta is promised), also where all configs are made equally good, each with losses of its own;
- ``dropped``: the share of configs dropped in the end, and ``best kept``: of trials, that kept the config
  with the best last epoch (a race does not promise that: it compares models at the same epoch);
- ``rows``: rows read, as a share of what a grid reads, and of what is read if the same test is looked at only
  when all rows of an epoch are read; ``equal``: the share of epochs after which both have kept the same
  configs.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.interfaces import ConfigView, SearchContext
from cerebro_elastic.core.model.row_losses import packed
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.search.race import Race

PARTITIONS, EPOCHS = 10, 6
BOUNDS = {"val_loss": (0.0, 4.0), "val_accuracy": (0.0, 1.0)}
Values = NDArray[np.float64]
"""By config, epoch and row."""


def recorded(spread: str) -> Mapping[str, Values]:
    """The losses and hits of 16 configs after each epoch, on the rows that are held out."""
    from sklearn.datasets import load_digits  # which sets environment variables

    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, held = order[:797], order[797:]
    rates, widths = (
        ((0.5 * 0.6**k for k in range(16)), [32] * 16)
        if spread == "learning rates"
        else ([0.3] * 16, range(24, 40))
    )
    values: dict[str, list[list[Values]]] = {name: [] for name in BOUNDS}
    for rate, width in zip(rates, widths, strict=True):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        own: dict[str, list[Values]] = {name: [] for name in BOUNDS}
        for epoch in range(EPOCHS):
            shuffled = train[torch.randperm(len(train), generator=torch.Generator().manual_seed(epoch))]
            for rows in shuffled.split(32):
                optimizer.zero_grad()
                functional.cross_entropy(model(x[rows]), y[rows]).backward()
                optimizer.step()
            with torch.no_grad():
                output = model(x[held])
                own["val_loss"].append(
                    functional.cross_entropy(output, y[held], reduction="none").double().numpy()
                )
                own["val_accuracy"].append((output.argmax(1) == y[held]).double().numpy())
        for name, of_config in own.items():
            values[name].append(of_config)
    return {name: np.clip(np.array(of_all), *BOUNDS[name]) for name, of_all in values.items()}


def equalized(values: Values) -> Values:
    """The values, moved so that all configs have the same mean in each epoch."""
    return values - values.mean(axis=2, keepdims=True) + values.mean(axis=(0, 2), keepdims=True)


@dataclass
class Outcome:
    wrong: int = 0
    """Drops of a config whose model is not truly worse than the other one's."""
    rows: int = 0
    """Rows read."""
    left: list[frozenset[int]] = field(default_factory=list)
    """The configs that are left after each epoch."""


def race(
    search: Race,
    values: Values,
    bounds: tuple[float, float],
    mode: str,
    size: int,
    seed: int,
    *,
    at_ends: bool = False,
) -> Outcome:
    """One trial. The search decides after each partition, or only ``at_ends`` of epochs."""
    chance = np.random.default_rng(seed)
    configs, epochs, pool = values.shape
    rows = chance.integers(pool, size=size)
    parts = np.array_split(rows, PARTITIONS)
    true, sign = values.mean(axis=2), -1 if mode == "max" else 1
    views = {c: ConfigView(f"c{c:04d}", {}) for c in range(configs)}
    outcome = Outcome()
    for epoch in range(epochs):
        for part in parts:
            live = [c for c, view in views.items() if view.status is Status.LIVE]
            for c in chance.permutation(live).tolist():
                if views[c].status is not Status.LIVE:
                    continue
                outcome.rows += len(part)
                known = views[c].row_losses.get(epoch, ())
                new = packed(values[c, epoch, part].tolist(), bounds, mode)
                views[c] = replace(
                    views[c], row_losses={**views[c].row_losses, epoch: (*known, new)}, measured=epoch
                )
                if not at_ends:
                    outcome.wrong += decide(search, views, epoch, sign * true)
        if at_ends:
            outcome.wrong += decide(search, views, epoch, sign * true)
        outcome.left.append(frozenset(c for c, view in views.items() if view.status is Status.LIVE))
    return outcome


def decide(search: Race, views: dict[int, ConfigView], epoch: int, true: Values) -> int:
    """Stop configs until the search wants no more. Returns how many stops were wrong."""
    wrong, names = 0, {view.config: c for c, view in views.items()}
    while decisions := search.judge(SearchContext(list(views.values()), epochs=EPOCHS)):
        (stop,) = decisions
        other = next(name for name in names if f"than {name}'s" in stop.reason)
        wrong += bool(true[names[stop.config], epoch] <= true[names[other], epoch] + 1e-12)
        views[names[stop.config]] = replace(views[names[stop.config]], status=Status.STOPPED)
    return wrong


def trials(values: Values, metric: str, mode: str, delta: float, size: int, count: int) -> Iterator[str]:
    recipe = load_recipe(
        {
            "epochs": EPOCHS,
            "task": {"kind": "torch", "model_fn": "m:f", "loss": "cross_entropy"},
            "data": {"source": "x.npz"},
            "search": {
                "method": "race",
                "num": len(values),
                "delta": delta,
                "bounds": BOUNDS[metric],
                "space": {"x": {"uniform": [0.0, 1.0]}},
            },
            "objective": {"metric": metric, "mode": mode},
        }
    )
    low, high = BOUNDS[metric]
    run = partial(race, Race(recipe), values, (min(low, values.min()), max(high, values.max())), mode, size)
    raced = [run(seed) for seed in range(count)]
    yield f"{sum(o.wrong > 0 for o in raced) / count:6.3f}"
    means = values[:, -1].mean(axis=1)
    best = int(means.argmax() if mode == "max" else means.argmin())
    yield f"{1 - statistics.mean(len(o.left[-1]) for o in raced) / len(values):8.2f}"
    yield f"{sum(best in o.left[-1] for o in raced) / count:9.3f}"
    at_ends = [run(seed, at_ends=True) for seed in range(count)]
    read = sum(o.rows for o in raced)
    yield f"{read / (count * size * len(values) * EPOCHS):10.2f}"
    yield f"{read / sum(o.rows for o in at_ends):12.2f}"
    pairs = [(a, b) for o, p in zip(raced, at_ends, strict=True) for a, b in zip(o.left, p.left, strict=True)]
    yield f"{sum(a == b for a, b in pairs) / len(pairs):6.2f}"


def two(values: Values) -> Values:
    return equalized(values[:2])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--of-two", type=int, default=1000, help="trials of two configs")
    parser.add_argument("--rows", nargs="+", type=int, default=[200, 1000])
    parser.add_argument("--delta", type=float, default=0.05)
    options = parser.parse_args()
    print(
        f"{'configs':18} {'metric':12} {'rows':>5}  wrong  dropped best kept  rows/grid rows/at ends  equal"
    )
    for name, spread, change, count in (
        ("16 learning rates", "learning rates", None, options.trials),
        ("16 widths", "widths", None, options.trials),
        ("16 equally good", "widths", equalized, options.trials),
        ("2 equally good", "widths", two, options.of_two),
    ):
        for metric, values in recorded(spread).items():
            for size in options.rows:
                given = values if change is None else change(values)
                mode = "max" if metric == "val_accuracy" else "min"
                columns = " ".join(trials(given, metric, mode, options.delta, size, count))
                print(f"{name:18} {metric:12} {size:5} {columns}", flush=True)


if __name__ == "__main__":
    main()
