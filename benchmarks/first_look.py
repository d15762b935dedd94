"""How soon the live page shows a run of many configs, at the first look after the server's start.

    python benchmarks/first_look.py [--configs 1000] [--epochs 4] [--rounds 3]

Writes the record of a run on two nodes with four partitions, starts `cerebro ui` on it, and opens its page in
Chromium (Debian's chromium-headless-shell). Printed are the seconds until the page has a row and takes a key,
and until it has read all; and the memory of the server. Needs the extra `ui`, playwright, and no other work
on the machine.
"""

from __future__ import annotations

import argparse
import itertools
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
from playwright.sync_api import Browser, sync_playwright

from cerebro_elastic.core.model.attempts import Attempt, Visit
from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import (
    ConfigCreated,
    Event,
    NodeJoined,
    RunOpened,
    UnitAssigned,
    UnitCommitted,
)
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.core.model.units import CheckpointRef, Unit
from cerebro_elastic.store.ledger.journal import Journal

RUN, PARTITIONS = "many", 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--configs", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if chromium is None:
        sys.exit("no browser: apt-get install chromium-headless-shell")
    with tempfile.TemporaryDirectory(prefix="cerebro-look-") as home, sync_playwright() as playwright:
        events = write_record(Path(home), options.configs, options.epochs)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        looks = [first_look(home, browser, options.configs) for _ in range(options.rounds)]
        browser.close()
    first, whole, memory = (statistics.median(values) for values in zip(*looks, strict=True))
    print(
        f"{options.configs} configs, {events} events: rows that take a key after {first:.1f} s, all is read"
    )
    print(f"after {whole:.1f} s; the server has {memory / 1e6:.0f} MB")


def write_record(home: Path, configs: int, epochs: int) -> int:
    """Write the run's folder. Returns the number of its events."""
    folder = home / RUN
    folder.mkdir()
    plan = Plan(RUN, PARTITIONS, epochs)
    (folder / "spec.json").write_text(encode(Spec(plan, {}, "", "", "", str(home), {}, "", "0")))
    record = list(history(plan, configs))
    Journal(folder / "history.jsonl").append(record)
    return len(record)


def history(plan: Plan, configs: int) -> Iterator[Event]:
    """The events of a run that has trained all of its units, two at a time."""
    revisions = itertools.count(1)
    yield RunOpened(next(revisions), plan)
    nodes = []
    for name in ("node-0", "node-1"):
        joined = NodeJoined(next(revisions), Node(name, "host"))
        nodes.append(replace(joined.node, registration=joined.revision))
        yield joined
    created = [
        ConfigCreated(next(revisions), Config(f"c{i:04}", {"lr": (i + 1) / configs, "width": 2 ** (i % 5)}))
        for i in range(configs)
    ]
    yield from created
    heads: dict[str, tuple[int, CheckpointRef | None]] = {
        event.config.id: (event.revision, None) for event in created
    }
    for epoch, k in itertools.product(range(plan.epochs), range(PARTITIONS)):
        for number, (config, (revision, head)) in enumerate(heads.items()):
            node, unit = nodes[number % 2], Unit(config, epoch, k)
            token = next(revisions)
            yield UnitAssigned(token, Attempt(unit, node.name, node.registration, revision, head))
            output = CheckpointRef(f"/checkpoints/{config}/{token}", f"{token:064x}", 1_000_000)
            metrics = {"val_loss": 1 / (1 + epoch) + number / configs}
            visit = Visit(unit, k, node.name, token, head, output, 1000, 10, 1.0, 0.1, 1e9 + token, metrics)
            committed = UnitCommitted(next(revisions), visit)
            yield committed
            heads[config] = committed.revision, output


def first_look(home: str, browser: Browser, configs: int) -> tuple[float, float, float]:
    """Seconds until the page has rows and takes a key, seconds until it has read all, and the server's memory
    in bytes."""
    with served(home) as (address, server):
        page = browser.new_page()
        began = time.perf_counter()
        page.goto(address.replace("/?", f"/run/{RUN}?"))
        row = page.locator("#board tr[data-config]").first
        row.wait_for()
        row.press("ArrowDown")
        first = time.perf_counter() - began
        page.get_by_text(re.compile(rf"^{configs}/{configs}$")).wait_for()
        whole = time.perf_counter() - began
        page.close()
        return first, whole, psutil.Process(server.pid).memory_info().rss


@contextmanager
def served(home: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The server's address with the token, and its process."""
    command = [sys.executable, "-m", "cerebro_elastic.cli", "ui", "--home", home, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            line = next(line for line in server.stdout if "http" in line)
            yield line.split()[-1], server
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
