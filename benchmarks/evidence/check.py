"""Has anything become slower? A few figures are measured again, as ratios, and compared with the record.

    python benchmarks/evidence/check.py [--rounds 3]

A ratio of two systems that take turns on one machine holds on others, too, where they have as many cores. A
ratio is worse if its smallest round is above the largest one that is recorded, by more than a tenth. Then
the exit code is 1. Simulated ratios are the same on all machines, and compared likewise.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import bed
import links
import measuring

MARGIN = 1.1
RECORD = measuring.RESULTS["full"]
OURS, PEER, PARALLEL = "hopping", "torch.multiprocessing by hand", "DDP"
Values = Mapping[str, Any]


def of_systems(column: str, peer: str) -> Callable[[Values], list[float]]:
    """Hopping's number over a peer's, round by round, on Fashion-MNIST."""

    def ratios(found: Values) -> list[float]:
        ours, theirs = (measuring.column(found["fashion"][system], column) for system in (OURS, peer))
        return [one / other for one, other in zip(ours, theirs, strict=True)]

    return ratios


def over_links(peer: str) -> Callable[[Values], list[float]]:
    """Hopping's seconds of training over a peer's, on links of 1 Gbit/s with batches of 64."""

    def ratios(found: Values) -> list[float]:
        ours, theirs = (
            map(links.training_seconds_of, found["1 Gbit/s"][f"{system}, 64"])
            for system in (links.OURS, peer)
        )
        return [one / other for one, other in zip(ours, theirs, strict=True)]

    return ratios


def hop_share(architecture: str) -> Callable[[Values], list[float]]:
    """A hop's seconds over those of its unit's training."""
    return lambda found: [
        units[architecture]["hop_seconds"] / units[architecture]["training_seconds"]
        for units in found["units"]
    ]


def longest_schedules(found: Values) -> list[float]:
    """By seed: the largest makespan of ``auto`` over its bound, of all settings."""
    settings = [setting["auto"] for setting in found["one GPU for each unit"].values()]
    return [max(ratio for ratio, _ in seed) for seed in zip(*settings, strict=True)]


def with_straggler(found: Values) -> list[float]:
    """The mean makespan of ``auto`` over its bound, with two homes for each partition."""
    return [fmean(found["simulated"]["auto, 2"]["straggler"])]


def longest_small_schedule(found: Values) -> list[float]:
    """The largest makespan of ``auto`` over the shortest."""
    return [max(ratio for policies in found["small schedules"].values() for ratio in policies["auto"])]


RATIOS: Mapping[str, tuple[str, Callable[[Values], list[float]]]] = {
    "seconds of training, hopping over by hand": ("end_to_end", of_systems("training_seconds", PEER)),
    "seconds until training begins, hopping over by hand": ("end_to_end", of_systems("start_seconds", PEER)),
    "memory, hopping over by hand": ("end_to_end", of_systems("memory_bytes", PEER)),
    "CPU seconds, hopping over by hand": ("end_to_end", of_systems("cpu_seconds", PEER)),
    "seconds of training, hopping over DDP": ("end_to_end", of_systems("training_seconds", PARALLEL)),
    "hop over training, small state": ("model_sizes", hop_share("perceptron-128")),
    "hop over training, large state": ("model_sizes", hop_share("perceptron-2048")),
    "seconds of training over links, hopping over by hand": ("links", over_links(links.HAND)),
    "seconds of training over links, hopping over DDP": ("links", over_links(PARALLEL)),
    "makespan over its bound, simulated": ("scheduling", longest_schedules),
    "makespan over its bound, with a straggler, simulated": ("stragglers", with_straggler),
    "makespan over the shortest, simulated": ("plan_quality", longest_small_schedule),
}
"""By name: whose results it is made of, and how. All are better when smaller."""
EXPERIMENTS = {
    "end_to_end": ["--only", "fashion", "--systems", OURS, PEER, PARALLEL],
    "model_sizes": [],
    "links": [
        *("--only", "links", "--rates", "1 Gbit/s", "--batches", "64"),
        *("--systems", links.OURS, links.HAND, PARALLEL),
    ],
    "scheduling": ["--only", "shops"],
    "stragglers": ["--only", "simulated", "--seeds", "2"],
    "plan_quality": ["--only", "schedules"],
}
"""Whose parts are run again, and by which options."""


def measured_again(experiment: str, rounds: int) -> Values:
    """Run a part of an experiment at the size that is recorded."""
    with tempfile.TemporaryDirectory(prefix="evidence-") as folder:
        to = Path(folder) / f"{experiment}.json"
        script = str(measuring.HERE / f"{experiment}.py")
        options = ["--size", "full", "--rounds", str(rounds), "--to", str(to)]
        subprocess.run([sys.executable, script, *options, *EXPERIMENTS[experiment]], check=True)
        return measuring.read(to)


def is_worse(now: Sequence[float], recorded: Sequence[float]) -> bool:
    """Whether the new ratios lie beyond the noise of the recorded ones."""
    return min(now) > MARGIN * max(recorded)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    skipped = {"links": reason} if (reason := bed.why_not()) else {}
    again = {each: measured_again(each, rounds) for each in EXPERIMENTS if each not in skipped}
    worse = 0
    for name, (experiment, ratios) in RATIOS.items():
        if experiment in skipped:
            print(f"SKIPPED: {name}: {skipped[experiment]}")
            continue
        now, recorded = ratios(again[experiment]), ratios(measuring.read(RECORD / f"{experiment}.json"))
        verdict = "WORSE" if is_worse(now, recorded) else "as recorded"
        worse += verdict == "WORSE"
        shown = f"{measuring.spread(now, digits=2)}, recorded {measuring.spread(recorded, digits=2)}"
        print(f"{verdict}: {name}: {shown}")
    if worse:
        raise SystemExit(f"{worse} of {len(RATIOS)} ratios are worse than recorded, beyond their noise")


if __name__ == "__main__":
    main()
