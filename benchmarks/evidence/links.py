"""Hopping and others on two hosts, by the rate of the links and the rows of a batch; then on small hosts.

    python benchmarks/evidence/links.py [--size full] [--only links] [--systems hopping DDP]

Hosts are namespaces of this machine on links of a stated rate (``bed.py``): a store with S3, a head for etcd,
Ray's head or the parameter server, and two that train, held to one core each. Eight configs of a perceptron
of 0.5 million parameters train on Fashion-MNIST. Small hosts have less disk and less memory than the data.
Needs root, iproute2, seaweedfs and two cores. (Cerebro, VLDB 2020, sections 3.2 and 6, Figures 7 to 10.)
"""

from __future__ import annotations

import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import bed
import measuring
from bed import PEERS, Bed, Command, Ended
from pages import Pages, bars

RATES = {"no limit": "", "1 Gbit/s": "1gbit", "100 Mbit/s": "100mbit"}
"""By name, as ``tc`` has it."""
BITS = {"1 Gbit/s": 1e9, "100 Mbit/s": 1e8}
BATCHES = (256, 64)
ARCHITECTURE = "perceptron-640"
SPACE: dict[str, list[Any]] = {
    "architecture": [ARCHITECTURE],
    "lr": [1e-3, 6e-4, 3e-4, 1e-4],
    "weight_decay": [1e-4, 1e-6],
}
CONFIGS = 8
EXTENTS = {"full": (40_000, 6_000, 1), "reduced": (2_000, 400, 1)}
"""Rows for training, for validation, and epochs."""
SIZES = {"full": (tuple(RATES), BATCHES), "reduced": (("no limit", "1 Gbit/s"), (64,))}
"""Rates and batches."""
SHARES = {
    ("1 Gbit/s", 256): (2, 1),
    ("1 Gbit/s", 64): (1, 1),
    ("100 Mbit/s", 256): (1, 1),
    ("100 Mbit/s", 64): (1, 4),
}
"""What systems that talk at each step train of the job, by rate and batch: so many of the configs, and one of
so many rows. (All configs take as long.)"""
SMALL_ROWS, SMALL_EPOCHS, SMALL_PARTITIONS = 48_000, 2, 8
SMALL_SPACE = {
    "architecture": ["narrow"],
    "batch_size": [256],
    "lr": [1e-3, 3e-4],
    "weight_decay": [1e-4, 1e-6],
}
DISK_BYTES, MEMORY_BYTES = 400_000_000, 1_000_000_000
"""Of a small host."""
_SECONDS, _SMALL_SECONDS = 900.0, 240.0
"""How long a system may take."""
_ETCD, _RAY, _SERVER = 2379, 6379, 5000


@contextmanager
def etcd(hosts: Bed, _: Path) -> Iterator[None]:
    """The etcd of a run, on the head."""
    serve = ["-m", "cerebro_elastic.cli", "etcd", "recipe", "--listen", hosts.head.address]
    with bed.listening(hosts.on_head([*serve, "--port", str(_ETCD)]), _ETCD):
        yield


@contextmanager
def ray(hosts: Bed, _: Path) -> Iterator[None]:
    """Ray's head, which trains nothing, and what it starts on the others."""
    start = [str(Path(sys.executable).parent / "ray"), "start", "--block"]
    head = ["--head", f"--port={_RAY}", "--num-cpus=0", "--include-dashboard=false"]
    with ExitStack() as stack:
        command = hosts.on_head([*start, *head, f"--node-ip-address={hosts.head.address}"])
        stack.enter_context(bed.listening(command, _RAY))
        for number, host in enumerate(hosts.trainers):
            joined = ["--num-cpus=1", f"--address={hosts.head.address}:{_RAY}"]
            command = hosts.trained(number, [*start, *joined, f"--node-ip-address={host.address}"])
            stack.enter_context(bed.saying(command, "Ray runtime started"))
        yield


def hopping(hosts: Bed, folder: Path) -> list[Command]:
    words = [str(PEERS / "hopping.py"), "torch", str(folder), "--home", "/tmp/home"]
    words += ["--etcd", f"{hosts.head.address}:{_ETCD}"]
    return [hosts.trained(number, words) for number in range(2)]


def ranks(way: str) -> Callable[[Bed, Path], list[Command]]:
    """The ranks of one of the ways of ``data_parallel.py``."""

    def commands(hosts: Bed, folder: Path) -> list[Command]:
        first = f"{hosts.trainers[0].address}:{_SERVER}"
        words = [str(PEERS / "data_parallel.py"), way, str(folder), "--first", first]
        return [hosts.trained(number, [*words, "--rank", str(number)]) for number in range(2)]

    return commands


def parameter_server(hosts: Bed, folder: Path) -> list[Command]:
    words = [str(PEERS / "parameter_server.py"), str(folder), "--serve", f"{hosts.head.address}:{_SERVER}"]
    workers = [hosts.trained(number, [*words, "--work", str(number)]) for number in range(2)]
    return [hosts.on_head(words), *workers]


def tasks(way: str, number_of_hosts: int = 2) -> Callable[[Bed, Path], list[Command]]:
    """The hosts of one of the ways of ``tasks.py``."""
    words = [str(PEERS / "tasks.py"), way, "--hosts", str(number_of_hosts)]
    return lambda hosts, folder: [
        hosts.trained(number, [*words, str(folder), "--number", str(number)])
        for number in range(number_of_hosts)
    ]


def ray_tune(hosts: Bed, folder: Path) -> list[Command]:
    results = f"{bed.BUCKET}/tune?endpoint_override={hosts.store.address}:{bed.S3_PORT}&scheme=http"
    address = f"{hosts.head.address}:{_RAY}"
    words = [str(PEERS / "ray_tune.py"), str(folder)]
    return [hosts.on_head(words, RAY_ADDRESS=address, RESULTS_URL=results)]


@dataclass(frozen=True)
class System:
    """How a system trains the job of a folder."""

    commands: Callable[[Bed, Path], list[Command]]
    """What runs at the same time."""
    services: Callable[[Bed, Path], AbstractContextManager[None]] = lambda *_: nullcontext()
    """What runs before the clock."""
    each_step: bool = False
    """Whether it sends something at each step."""
    held: bool = False
    """Whether each host has all rows before the clock."""


OURS, HAND, ONE = "hopping", "by hand, rows on each host", "by hand, one host"
STREAMED, COPIED = "task-parallel, S3 in each epoch", "task-parallel, rows copied first"
SYSTEMS = {
    OURS: System(hopping, etcd),
    "DDP": System(ranks("ddp"), each_step=True),
    "FSDP": System(ranks("fsdp"), each_step=True),
    "parameter server": System(parameter_server, each_step=True),
    "model averaging": System(ranks("averaging")),
    STREAMED: System(tasks("streamed")),
    COPIED: System(tasks("copied")),
    "Ray Tune": System(ray_tune, ray),
    HAND: System(tasks("held"), held=True),
    ONE: System(tasks("held", 1), held=True),
}
SMALL = {
    OURS: SYSTEMS[OURS],
    "DDP": SYSTEMS["DDP"],
    STREAMED: SYSTEMS[STREAMED],
    COPIED: SYSTEMS[COPIED],
    "by hand, rows read into memory": System(tasks("held")),
    "Ray Tune": SYSTEMS["Ray Tune"],
}
"""The systems that are tried on small hosts."""


def main() -> None:
    parser = measuring.options(__doc__, "links", full_rounds=1, reduced_rounds=1)
    parser.add_argument("--only", choices=["links", "small hosts"], help="default: both at size full")
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS | SMALL), default=list(SYSTEMS | SMALL))
    parser.add_argument("--rates", nargs="+", choices=list(RATES))
    parser.add_argument("--batches", nargs="+", type=int, choices=BATCHES)
    asked = parser.parse_args()
    if reason := bed.why_not():
        raise SystemExit(reason)
    measuring.end_on_signals()
    rates, batches = SIZES[asked.size]
    measuring.BUILD.mkdir(parents=True, exist_ok=True)
    # Hosts have a /tmp of their own.
    with tempfile.TemporaryDirectory(prefix="links-", dir=measuring.BUILD) as temporary:
        if asked.only in (None, "links"):
            grid = Grid(Path(temporary), asked.size, [each for each in SYSTEMS if each in asked.systems])
            measuring.write(asked.to, asked.size, {"job": grid.numbers()})
            for rate in asked.rates or rates:
                found = grid.measured(rate, asked.batches or batches, asked.rounds)
                measuring.write(asked.to, asked.size, found)
        if asked.only == "small hosts" or (asked.only is None and asked.size == "full"):
            measuring.write(
                asked.to, asked.size, {"small hosts": small_hosts(Path(temporary), asked.systems)}
            )


class Grid:
    """The job at a size, for all rates and batches."""

    def __init__(self, folder: Path, size: str, systems: Sequence[str]) -> None:
        sys.path.append(str(PEERS))
        import workloads

        self._folder, self._systems = folder, systems
        self._extent = workloads.Extent(*EXTENTS[size])
        workloads.write(folder / "rows", "fashion", self._extent, SPACE)
        self._rows = folder / "rows" / "partitions"
        self._job = stored_job(folder / "rows")
        model = workloads.WORKLOADS["fashion"].model(ARCHITECTURE)
        self._parameters = sum(parameter.numel() for parameter in model.parameters())

    def numbers(self) -> dict[str, int]:
        """What a ratio of computation to bandwidth is made of, and the bytes of the rows for training."""
        return {
            "parameters": self._parameters,
            "train": self._extent.train,
            "epochs": self._extent.epochs,
            "partitions": len(self._job["partitions"]),
            "train_bytes": sum(file.stat().st_size for file in self._rows.glob("train/*/*")),
        }

    def measured(self, rate: str, batches: Sequence[int], rounds: int) -> dict[str, Any]:
        """At a rate: rounds of all systems and batches by ``SYSTEM, BATCH``; and the speed of the store."""
        cells = [(system, batch) for batch in batches for system in self._systems]
        if rate != "no limit":
            cells = [cell for cell in cells if cell[0] != ONE]
        found: dict[str, list[dict[str, Any]]] = {f"{system}, {batch}": [] for system, batch in cells}
        with Bed(RATES[rate]) as hosts:
            hosts.put(self._rows)
            server = hosts.store_megabits()
            for number in range(rounds):
                for system, batch in random.Random(number).sample(cells, len(cells)):
                    usage = self._cell(hosts, rate, system, batch)
                    found[f"{system}, {batch}"].append(usage)
                    print(f"{rate}, batches of {batch}, {system}: {usage}", flush=True)
        return {rate: found, f"store, {rate}": server}

    def _cell(self, hosts: Bed, rate: str, name: str, batch: int) -> dict[str, Any]:
        system = SYSTEMS[name]
        configs, share = SHARES.get((rate, batch), (CONFIGS, 1)) if system.each_step else (CONFIGS, 1)
        space = SPACE | {"batch_size": [batch]}
        if configs < CONFIGS:
            space |= {"lr": SPACE["lr"][:configs], "weight_decay": SPACE["weight_decay"][:1]}
        job = self._job | {"space": space, "share": share}
        if system.held:
            job["url"] = str(self._rows)
        usage, ended = timed(hosts, system, self._folder, job, _SECONDS)
        for each in ended:
            if each.code:
                raise SystemExit("\n".join([f"{name} failed:", *each.lines]))
        return usage | {"share": CONFIGS * share // configs}


def stored_job(folder: Path) -> dict[str, Any]:
    """The job of a folder, with its rows in the store."""
    from cerebro_elastic.data.manifest import read_manifest

    job: dict[str, Any] = json.loads((folder / "job.json").read_text())
    return job | {"url": bed.DATA, "partitions": read_manifest(str(folder / "partitions")).rows}


def timed(
    hosts: Bed, system: System, folder: Path, job: Mapping[str, Any], seconds: float
) -> tuple[dict[str, Any], list[Ended]]:
    """Run a system on fresh hosts: what it used and said, and how its commands ended."""
    with tempfile.TemporaryDirectory(prefix="job-", dir=folder) as name:
        shared = Path(name)
        recipe = {"checkpoints": f"{bed.BUCKET}/{shared.name}", **job.get("recipe", {})}
        (shared / "job.json").write_text(json.dumps({**job, "recipe": recipe}))
        hosts.reboot()
        with system.services(hosts, shared):
            quiet = measuring.wait_for_quiet()
            before, wall = hosts.link_bytes(), time.time()
            ended = bed.together(system.commands(hosts, shared), seconds)
            usage: dict[str, Any] = {"quiet": quiet, "seconds": time.time() - wall}
            moved = {host: after - before[host] for host, after in hosts.link_bytes().items()}
    said = [json.loads(each.lines[-1]) for each in ended if each.lines and each.lines[-1].startswith("{")]
    if said:
        usage["start_seconds"] = min(each["began"] for each in said) - wall
        usage["accuracy"] = max(each["accuracy"] for each in said)
    usage["host_bytes"] = sum(moved[host] for host in hosts.trainers) / len(hosts.trainers)
    usage["store_bytes"] = moved[hosts.store]
    return usage, ended


def small_hosts(folder: Path, systems: Collection[str]) -> dict[str, Any]:
    """What becomes of each system on hosts with less disk and less memory than the data."""
    sys.path.append(str(PEERS))
    import workloads

    rows = folder / "small"
    extent = workloads.Extent(SMALL_ROWS, SMALL_ROWS // 50, SMALL_EPOCHS)
    workloads.write(rows, "drawn", extent, SMALL_SPACE, {"partitions": SMALL_PARTITIONS})
    job, found = stored_job(rows), {}
    with Bed(RATES["1 Gbit/s"], bed.Small(DISK_BYTES, MEMORY_BYTES, folder)) as hosts:
        hosts.put(rows / "partitions")
        for name in [each for each in SMALL if each in systems]:
            usage, ended = timed(hosts, SMALL[name], folder, job, _SMALL_SECONDS)
            found[name] = usage | {"error": error_of(ended)}
            print(f"small hosts, {name}: {found[name]}", flush=True)
            if found[name]["error"]:
                print(*(line for each in ended for line in each.lines), sep="\n", flush=True)
    size = sum(file.stat().st_size for file in rows.glob("partitions/train/*/*"))
    return {"systems": found, "train_bytes": size, "disk_bytes": DISK_BYTES, "memory_bytes": MEMORY_BYTES}


def error_of(ended: Sequence[Ended]) -> str:
    """What kept commands from their end; nothing if they have come there."""
    if all(each.code == 0 for each in ended):
        return ""
    failed = next((each for each in ended if each.code), None)
    if failed is None:
        return f"has not ended after {_SMALL_SECONDS:.0f} s"
    if failed.code == -signal.SIGKILL:
        return "killed by the kernel: out of memory"
    last = next((line for line in reversed(failed.lines) if "rror" in line), f"exit code {failed.code}")
    return last.partition(". ")[0]


def seconds_of(usage: Mapping[str, Any]) -> float:
    """From the command to its end; of a system that trained a share, what all would take."""
    return float(usage["start_seconds"]) + training_seconds_of(usage)


def training_seconds_of(usage: Mapping[str, Any]) -> float:
    """The same from the first step on."""
    return float(usage["seconds"] - usage["start_seconds"]) * int(usage["share"])


def show(pages: Pages) -> None:
    """For each batch the seconds by rate; the ratios that explain them, speed-ups, and the small hosts."""
    found = pages.read("links")
    rates = [rate for rate in RATES if rate in found]
    batches = [batch for batch in BATCHES if rates and f"{OURS}, {batch}" in found[rates[0]]]
    if rates:
        draw(pages, found, rates, batches)
        cells = [(batch, rate) for batch in batches for rate in rates]
        names = [f"{batch} rows, {rate}" for batch, rate in cells]
        head = ["speed-up over one host", *names]
        pages.fill("over_a_network.md", "speed up", measuring.table(head, speed_ups(found, cells)))
        head = ["Mbit/s of the store", "written", "read"]
        servers = [(rate, found[f"store, {rate}"]) for rate in rates]
        rows = [[rate, f"{each['written']:,.0f}", f"{each['read']:,.0f}"] for rate, each in servers]
        pages.fill("over_a_network.md", "store", measuring.table(head, rows))
        head = ["rows of a batch, link", "a step, ms", "its gradients, ms", "a unit, ms", "its state, ms"]
        rows = [row for batch in batches for row in ratios(found, batch)]
        pages.fill("over_a_network.md", "ratio", measuring.table(head, rows))
    for batch in batches:
        head = [
            "",
            *(f"seconds, {rate}" for rate in rates),
            "best accuracy",
            "MB, a host's link",
            "MB, the store's",
        ]
        rows = [line(found, rates, system, batch) for system in SYSTEMS]
        pages.fill("over_a_network.md", f"batches of {batch}", measuring.table(head, rows))
    if small := found.get("small hosts"):
        pages.fill("over_a_network.md", "small hosts", measuring.table(*small_table(small)))


def draw(pages: Pages, found: Mapping[str, Any], rates: Sequence[str], batches: Sequence[int]) -> None:
    """Seconds of each system: a row of panels for each batch, a column for each rate."""
    number = len(rates) * len(batches)
    with pages.figure("over_a_network", number, (9.0, 2.8 * len(batches)), len(batches)) as panels:
        for at, axes in enumerate(panels):
            batch, rate = batches[at // len(rates)], rates[at % len(rates)]
            seconds = {
                system: [seconds_of(usage) for usage in found[rate][f"{system}, {batch}"]]
                for system in SYSTEMS
                if system != ONE
            }
            bars(axes, seconds, [OURS])
            axes.set(title=f"batches of {batch}, {rate}", xlabel="seconds")
            if at % len(rates):
                axes.set_yticklabels([])


def line(found: Mapping[str, Any], rates: Sequence[str], system: str, batch: int) -> list[str]:
    """A system's line. Accuracy and bytes are those without a limit, where all systems train all."""
    seconds = [seconds_shown(found[rate].get(f"{system}, {batch}", [])) for rate in rates]
    whole = found[rates[0]][f"{system}, {batch}"]
    accuracy = f"{median(measuring.column(whole, 'accuracy')):.3f}"
    moved = [f"{median(measuring.column(whole, f'{end}_bytes')) / 1e6:,.0f}" for end in ("host", "store")]
    return [system, *seconds, accuracy, *moved]


def seconds_shown(rounds: Sequence[Mapping[str, Any]]) -> str:
    """Those of a cell of the table; of a system that trained a share, about."""
    seconds = [seconds_of(usage) for usage in rounds]
    if any(usage["share"] > 1 for usage in rounds):
        return f"about {median(seconds):,.0f}"
    return measuring.spread(seconds) if len(seconds) > 1 else "".join(f"{each:,.1f}" for each in seconds)


Cell = tuple[int, str]
"""Rows of a batch, and a rate."""


def speed_ups(found: Mapping[str, Any], cells: Sequence[Cell]) -> Iterator[list[str]]:
    """Training on one host over that on two, of each system."""
    for system in SYSTEMS:
        if system != ONE:
            seconds = [
                [
                    median(map(training_seconds_of, found[where][f"{each}, {batch}"]))
                    for each, where in ((ONE, "no limit"), (system, rate))
                ]
                for batch, rate in cells
            ]
            yield [system, *(f"{one / two:.2f}" for one, two in seconds)]


def ratios(found: Mapping[str, Any], batch: int) -> Iterator[list[str]]:
    """What computing takes on one core, and moving on a link: of a step, and of a unit."""
    job = found["job"]
    one = median(map(training_seconds_of, found["no limit"][f"{ONE}, {batch}"]))
    rows = CONFIGS * job["epochs"] * job["train"]
    step, unit = 1e3 * one * batch / rows, 1e3 * one * job["train"] / job["partitions"] / rows
    for rate, bits in BITS.items():
        gradients = 1e3 * 32 * job["parameters"] / bits
        yield [
            f"{batch}, {rate}",
            f"{step:,.1f}",
            f"{gradients:,.1f}",
            f"{unit:,.0f}",
            f"{3 * gradients:,.0f}",
        ]


def small_table(small: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """What became of each system."""
    head = ["", "what becomes of it", "seconds", "MB read from the store, by both hosts"]
    rows = []
    for system, usage in small["systems"].items():
        seconds = "" if usage["error"] else f"{usage['seconds']:.1f}"
        ended = f"`{usage['error']}`" if usage["error"] else "trains all"
        rows.append([system, ended, seconds, f"{usage['store_bytes'] / 1e6:,.0f}"])
    return head, rows


if __name__ == "__main__":
    main()
