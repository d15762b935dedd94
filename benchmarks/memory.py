"""Memory of ranks over many units of alternating parallelisms: flat, or not.

    python benchmarks/memory.py --units 300

Two rank processes train units of a small model, each by the next parallelism, from the state that the one
before has left. Printed are the megabytes that both have in memory, together, after every tenth of the units.
What is left is what `CEREBRO_GROWTH` bounds in a run, by ranks that start themselves anew.
"""

from __future__ import annotations

import argparse
from typing import Any

from cerebro_elastic.training.parallel.rank_pool import Ranks
from cerebro_elastic.worker.resources import bytes_in_use
from support.hops import unit

KINDS: dict[str, tuple[str, dict[str, Any], int]] = {
    "single": ("single", {}, 1),
    "ddp": ("ddp", {}, 2),
    "fsdp": ("fsdp", {}, 2),
    "zero-1": ("deepspeed", {"stage": 1}, 2),
    "zero-2": ("deepspeed", {"stage": 2}, 2),
    "zero-3": ("deepspeed", {"stage": 3}, 2),
}
CPU = "cpu"


def sizes(ranks: Ranks) -> float:
    """Megabytes of both ranks."""
    return sum(ranks.alone(rank, bytes_in_use, CPU) for rank in range(2)) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=300)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    asked = parser.parse_args()
    state: bytes | None = None
    with Ranks(2) as ranks:
        for number in range(asked.units + 2 * len(asked.kinds)):
            done = number - 2 * len(asked.kinds)  # each kind twice before it counts: imports, caches
            if done == 0:
                first = sizes(ranks)
                print(f"{'units':>6} {'MB':>8} {'growth':>8}")
            if done >= 0 and done % max(1, asked.units // 10) == 0:
                print(f"{done:>6} {sizes(ranks):>8.0f} {sizes(ranks) - first:>8.1f}", flush=True)
            name, options, size = KINDS[asked.kinds[number % len(asked.kinds)]]
            state, *_ = ranks.together(unit, name, options, "adamw", state, [number], members=range(size))
        print(f"{asked.units:>6} {sizes(ranks):>8.0f} {sizes(ranks) - first:>8.1f}")


if __name__ == "__main__":
    main()
