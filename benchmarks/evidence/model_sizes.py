"""Which share of a unit is its hop, by the size of the model?

    python benchmarks/evidence/model_sizes.py [--size full] [--rounds 3]

Perceptrons of several widths are trained on Fashion-MNIST in one run on two nodes. A unit's hop is to load
its config's state (weights and both moments of Adam) and to save it; both are in the visit log. Saves that go
on behind the next unit are counted beside it. (Cerebro, VLDB 2020, section 6.2: overheads of hops.)
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import fmean, median
from typing import Any

import measuring
from end_to_end import PEERS
from pages import OURS, Pages

WIDTHS = (32, 128, 512, 2048)


def main() -> None:
    asked = measuring.options(__doc__, "model_sizes").parse_args()
    sys.path.append(str(PEERS))
    import workloads

    space = {
        "architecture": [f"perceptron-{width}" for width in WIDTHS],
        "batch_size": [128],
        "lr": [1e-3],
        "weight_decay": [1e-4, 1e-6],
    }
    rounds, usages = [], []
    with tempfile.TemporaryDirectory(prefix="evidence-") as temporary:
        folder = Path(temporary)
        extent = workloads.FASHION.extents[asked.size]
        workloads.write(folder, "fashion", extent, space)
        rows = extent.train // workloads.PARTITIONS
        command = [sys.executable, str(PEERS / "hopping.py"), "torch", str(folder), "--home", temporary]
        for _ in range(asked.rounds):
            usages.append(measuring.measure(measuring.Arm("hopping", command)))
            rounds.append(units(folder))
    measuring.write(asked.to, asked.size, {"rows of a unit": rows, "units": rounds, "usage": usages})


def units(home: Path) -> dict[str, dict[str, float]]:
    """By architecture: the mean seconds of the units behind each config's first, and the state's bytes."""
    import cerebro_elastic

    found: dict[str, Any] = {}
    for config in cerebro_elastic.Run.open("recipe", home=home).result.leaderboard:
        found.setdefault(config.hparams["architecture"], []).extend(config.visits[1:])
    return {
        architecture: {
            "training_seconds": fmean(visit.seconds for visit in visits),
            "hop_seconds": fmean(visit.hop_seconds for visit in visits),
            "save_seconds": fmean(visit.save_seconds for visit in visits),
            "state_bytes": float(visits[0].output.bytes),
        }
        for architecture, visits in sorted(found.items())
    }


def show(pages: Pages) -> None:
    """The hop's share by the bytes of the state."""
    found = pages.read("model_sizes")
    rounds = found["units"]
    names = [f"perceptron-{width}" for width in WIDTHS]

    def of(name: str, key: str) -> list[float]:
        return [each[name][key] for each in rounds]

    def shares(name: str) -> list[float]:
        hops, training = of(name, "hop_seconds"), of(name, "training_seconds")
        return [100 * hop / (hop + trained) for hop, trained in zip(hops, training, strict=True)]

    sizes = [median(of(name, "state_bytes")) / 1e6 for name in names]
    with pages.figure("model_sizes", size=(5.0, 3.0)) as (axes,):
        axes.plot(sizes, [median(shares(name)) for name in names], marker="o", color=OURS)
        axes.set(xscale="log", xlabel="MB of a config's state", ylabel="hop, % of the unit")
        axes.set_ylim(bottom=0)
    rows = [
        [
            f"{size:.1f}",
            *(
                measuring.spread(of(name, key), 1e-3, 0)
                for key in ("training_seconds", "hop_seconds", "save_seconds")
            ),
            measuring.spread(shares(name)),
        ]
        for name, size in zip(names, sizes, strict=True)
    ]
    head = [
        "MB of a config's state",
        "training, ms",
        "hop, ms",
        "save behind the next unit, ms",
        "hop, % of the unit",
    ]
    pages.fill("drill_down.md", "model sizes", measuring.table(head, rows))


if __name__ == "__main__":
    main()
