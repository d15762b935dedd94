"""Where the time of a run goes, from the command to its end: start, units, and what lies between them.

    python benchmarks/unit_cost.py [--recipe recipes/digits.yaml] [--rounds 3]

Its peers are measured in the same minutes: the import of Lightning and scikit-learn in a fresh process, and
one plain ``Trainer.fit`` of the recipe's module with its validation (of a task ``torch``: a loop by hand),
over batches of the same shapes, alone and in as many processes as the run has nodes. Printed are medians over
the rounds. Needs a recipe whose ``source`` is a function, and no other work on the machine.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from plain_peers import plain_seconds_per_unit
from run_processes import family, kind_of

import cerebro_elastic

REPO = Path(__file__).parents[1]
START = {
    r"^reading ": "the command's own start",
    r"^starting etcd": "its imports, the recipe",
    r"^checking ": "etcd, beside the imports",
    r"^starting \d+ node": "imports and preflight",
    r"^first unit": "nodes and ranks",
}
"""Lines that the run prints, and what it does before each."""
LOOK_SECONDS = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", type=Path, default=REPO / "recipes" / "digits.yaml")
    parser.add_argument("--nodes", type=int, help="nodes of the run, instead of the recipe's")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plain", type=int, metavar="EPOCHS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plain:
        print(1e3 * plain_seconds_per_unit(options.recipe, options.plain))
        return
    recipe = cerebro_elastic.load_recipe(options.recipe)
    rounds = [measure(options.recipe, options.nodes or recipe.nodes.min) for _ in range(options.rounds)]
    batches = f"{rounds[0]['batches of a unit']:g} batches"
    report = {name: statistics.median(figures[name] for figures in rounds) for name in rounds[0]}
    imported, plain = report["import of the libraries, s"], report["plain fit, nodes busy, ms per unit"]
    node = report["a node's time per unit, ms"]
    for name, value in report.items():
        print(f"{name:55s} {value:9.1f}")
    print(f"\ncommand to first unit, in imports: {report['command to first unit, s'] / imported:.2f}")
    print(f"a unit beyond its {batches} in a plain fit: {node - plain:.0f} ms, ratio {node / plain:.2f}")
    cpu = sum(value for name, value in report.items() if name.startswith("CPU of "))
    print(f"CPU of all processes per unit beyond the plain fit: {cpu - plain:.0f} ms")


def measure(recipe: Path, nodes: int) -> dict[str, float]:
    """One round: peers and run, one after the other."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import lightning, sklearn"], check=True, capture_output=True)
    figures = {"import of the libraries, s": time.perf_counter() - began}
    figures["plain fit, alone, ms per unit"] = plain_fits(recipe, 1)
    figures["plain fit, nodes busy, ms per unit"] = plain_fits(recipe, nodes)
    with tempfile.TemporaryDirectory(prefix="cerebro-unit-cost-") as folder:
        return figures | run(recipe, nodes, Path(folder))


def plain_fits(recipe: Path, processes: int) -> float:
    """Milliseconds that as many batches as a unit has take in plain fits side by side."""
    command = [sys.executable, __file__, "--recipe", str(recipe), "--plain", "30"]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for _ in range(processes)
    ]
    return statistics.mean(float(process.communicate()[0].split()[-1]) for process in started)


def run(recipe: Path, nodes: int, folder: Path) -> dict[str, float]:
    """A run of the recipe as a user starts it."""
    command = [sys.executable, "-m", "cerebro_elastic.cli", "run", str(recipe)]
    command += ["--nodes", str(nodes), "--home", str(folder)]
    began, out = time.time(), folder / "out"
    with out.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        printed, looks = follow(process, out, began)
    if process.returncode:
        raise SystemExit(out.read_text())
    ended = time.time()
    (home,) = (path.parent for path in folder.glob("*/history.jsonl"))
    return {
        **start_phases(printed),
        "command to first unit, s": printed["^first unit"],
        "whole command, s": ended - began,
        **unit_times(home),
        **unit_cpu(looks),
    }


Look = tuple[int, dict[str, float]]
"""How many units were committed, and the CPU seconds by kind of process until then."""


def follow(process: Any, out: Path, began: float) -> tuple[dict[str, float], list[Look]]:
    """When each kind of line was printed, in seconds from ``began``; and looks at the run, in order."""
    printed: dict[str, float] = {}
    cpu: dict[int, tuple[str, float]] = {}
    looks: list[Look] = []
    while process.poll() is None:
        text = out.read_text()
        for start in START:
            if start not in printed and re.search(start, text, re.MULTILINE):
                printed[start] = time.time() - began
        for member in family(process.pid):
            try:
                times = member.cpu_times()
                kind = kind_of(member, process.pid)
                if kind == "others" and member.pid in cpu:  # it ends, and has no command any more
                    kind = cpu[member.pid][0]
                cpu[member.pid] = (kind, times.user + times.system)
            except psutil.Error:
                continue
        by_kind: dict[str, float] = defaultdict(float)
        for kind, seconds in cpu.values():
            by_kind[kind] += seconds
        logs = out.parent.glob("*/logs/node-*.log")
        looks.append((sum(log.read_text().count('"event": "committed"') for log in logs), dict(by_kind)))
        time.sleep(LOOK_SECONDS)
    return printed, looks


def unit_cpu(looks: Sequence[Look]) -> dict[str, float]:
    """CPU milliseconds per unit in the middle half of the run, by kind of process: without start and end."""
    most = looks[-1][0]
    middle = [look for look in looks if most / 4 <= look[0] <= 3 * most / 4]
    (first, before), (last, behind) = middle[0], middle[-1]
    return {
        f"CPU of {kind} per unit, ms": 1e3 * (behind.get(kind, 0) - before.get(kind, 0)) / (last - first)
        for kind in ("ranks", "leader", "etcd", "agents", "imports", "others")
    }


def start_phases(printed: Mapping[str, float]) -> dict[str, float]:
    """Seconds of each phase of the start."""
    phases, before = {}, 0.0
    for line, phase in START.items():
        phases[f"start: {phase}, s"] = printed[line] - before
        before = printed[line]
    return phases


def unit_times(home: Path) -> dict[str, float]:
    """What the nodes' logs and the history say about units."""
    spans: list[float] = []
    committed: list[dict[str, Any]] = []
    for log in home.glob("logs/node-*.log"):
        events = [json.loads(line) for line in log.read_text().splitlines()]
        begun = [event["time"] for event in events if event["event"] == "began"]
        ended = [event for event in events if event["event"] == "committed"]
        spans.append((ended[-1]["time"] - begun[1]) / (len(begun) - 1))
        committed += ended[1:]
    lines = [json.loads(line) for line in (home / "history.jsonl").read_text().splitlines()]
    visits = [line["visit"] for line in lines if line["kind"] == "UnitCommitted"]
    gaps = [gap for node in {visit["node"] for visit in visits} for gap in gaps_of(visits, node)]
    return {
        "batches of a unit": statistics.median(visit["batches"] for visit in visits),
        "units": len(visits),
        "a node's time per unit, ms": 1e3 * statistics.mean(spans),
        "  training (with validation), ms": 1e3 * statistics.mean(e["seconds"] for e in committed),
        "  loading and saving, ms": 1e3 * statistics.mean(e["hop_seconds"] for e in committed),
        "  saving behind the next unit, ms": 1e3
        * statistics.mean(e.get("save_seconds", 0) for e in committed),
        "  end of a unit to the node's next, ms": 1e3 * statistics.median(gaps),
        "events per unit": len(lines) / len(visits),
    }


def gaps_of(visits: Sequence[Mapping[str, Any]], node: str) -> list[float]:
    """Seconds from each moment at which a node could take its next unit to that unit's begin."""
    own = sorted((visit for visit in visits if visit["node"] == node), key=lambda visit: visit["started"])
    parts = ("started", "fetch_seconds", "hop_seconds", "seconds")
    freed = [sum(visit.get(part, 0.0) for part in parts) for visit in own]
    return [visit["started"] - at for at, visit in zip(freed, own[1:], strict=False)]


if __name__ == "__main__":
    main()
