"""Three systems on two nodes, the kill of a node, and what it cost: for ``failures.py``."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import psutil
from batches import Batch, bars, costs
from measuring import HERE, PEER

PARTITIONS = 4
"""Of hopping."""
AGAIN_SECONDS = 1.0
"""Nodes train their parts of a batch within this time; what is trained later is trained again."""
LIMIT_SECONDS = 180.0


@dataclass(frozen=True)
class Plan:
    """What is trained, and what strikes."""

    rows: int
    """That an epoch has."""
    configs: Sequence[Mapping[str, Any]]
    epochs: int
    kill_after: float | None
    """Seconds from the first batch to the kill, if there is one."""
    away: float
    """Seconds from the kill until the node's command is started again."""


class System:
    """Two nodes, ``a`` and ``b``."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        self.spec = json.dumps({"configs": plan.configs, "epochs": plan.epochs})
        (folder / "notes").mkdir()

    def command(self, node: str) -> list[str]:
        """What a node runs."""
        raise NotImplementedError

    order = ("a", "b")
    """In which the nodes are started."""
    ahead = 0.0
    """By so many seconds the first one is started before the other."""
    environment: ClassVar[Mapping[str, str]] = {}

    @contextmanager
    def beside(self) -> Iterator[None]:
        """What runs beside the nodes, and is not struck."""
        yield

    def node(self, name: str) -> str:
        """The node that notes under this name."""
        return name

    def config(self, name: str) -> int:
        """The config that is noted by this name."""
        return int(name)

    def lost(self, batches: Sequence[Batch], _killed: float) -> list[bool]:
        """Of each batch, whether it was trained for nothing: here, because it was trained again later."""
        last = {(batch.config, batch.number): batch.time for batch in batches}
        return [last[batch.config, batch.number] > batch.time + AGAIN_SECONDS for batch in batches]

    def batches(self) -> list[Batch]:
        """All that were trained, in the order of time."""
        found = []
        for file in (self.folder / "notes").glob("*.notes"):
            for line in file.read_text().splitlines():
                at, config, epoch, number, rows = line.split()
                where = self.node(file.stem), self.config(config), f"{epoch}/{number}"
                found.append(Batch(float(at), *where, int(rows)))
        return sorted(found)


class Tasks(System):
    """A process of its own on each node; it takes one config after the other."""

    def command(self, node: str) -> list[str]:
        peer = str(HERE / "peers" / "failing.py")
        return [sys.executable, peer, "tasks", str(self.folder / "notes"), node, self.spec]


class ElasticDDP(System):
    """A torchrun of one process on each node; the group is made anew when a node goes or comes."""

    # Without this a node that has come back waits for ever (pytorch/pytorch#135712).
    environment: ClassVar = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

    def __init__(self, plan: Plan, folder: Path) -> None:
        super().__init__(plan, folder)
        self._port = free_port()

    def command(self, node: str) -> list[str]:
        return [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1"),
            *("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self._port}", "--rdzv-id=failures"),
            # By default the dead are missed after 15 s, and further nodes waited for for 30 s.
            f"--rdzv-conf=is_host={int(node == 'a')},last_call_timeout=2,keep_alive_interval=1",
            *("--max-restarts=100", str(HERE / "peers" / "failing.py"), "ddp"),
            *(str(self.folder / "notes"), node, self.spec),
        ]


class Hopping(System):
    """Two ``cerebro host`` and an etcd. The first node leads."""

    ahead = 3.0

    def __init__(self, plan: Plan, folder: Path) -> None:
        super().__init__(plan, folder)
        self._etcd = f"127.0.0.1:{free_port()}"
        self._survivor = ""
        points = [f"{config['lr']}/{config['width']}" for config in plan.configs]
        self._configs = {point: number for number, point in enumerate(points)}
        grid = {name: sorted({config[name] for config in plan.configs}) for name in plan.configs[0]}
        recipe = {
            "epochs": plan.epochs,
            "replicas": 2,
            "task": {
                "kind": "torch",
                "input_fn": "pictures:noted_input",
                "model_fn": "pictures:model",
                "loss": "cross_entropy",
                "optimizer": "AdamW",
                "metrics": {"accuracy": "accuracy"},
            },
            "data": {"source": "pictures:load", "partitions": PARTITIONS, "batch_size": 64},
            "search": {"space": grid},
            "objective": {"metric": "val_accuracy", "mode": "max"},
        }
        (folder / "recipe.yaml").write_text(json.dumps(recipe))
        (folder / "pictures.py").symlink_to(HERE / "peers" / "pictures.py")

    @contextmanager
    def beside(self) -> Iterator[None]:
        port = self._etcd.rpartition(":")[2]
        command = [*CEREBRO, "etcd", "failures", "--port", port, "--home", str(self.folder)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as etcd:
            try:
                while True:
                    with suppress(OSError), socket.create_connection(("127.0.0.1", int(port))):
                        break
                    time.sleep(0.1)
                yield
            finally:
                kill(etcd)

    def command(self, node: str) -> list[str]:
        del node  # all hosts run the same
        recipe = str(self.folder / "recipe.yaml")
        home = ["--run-id", "failures", "--home", str(self.folder)]
        return [*CEREBRO, "host", recipe, "--hosts", "2", *home, "--etcd", self._etcd]

    def look(self, process: psutil.Process) -> None:
        """Find out by what name node ``a`` goes."""
        for child in process.children(recursive=True):
            with suppress(psutil.Error):
                self._survivor = child.environ().get("CEREBRO_NODE", self._survivor)

    def node(self, name: str) -> str:
        return "a" if name == self._survivor else "b"

    def config(self, name: str) -> int:
        return self._configs[name]

    def lost(self, batches: Sequence[Batch], killed: float) -> list[bool]:
        """What was trained on ``b`` since the last visit there that was committed."""
        from cerebro_elastic import Run

        visits = [
            visit
            for row in Run.open("failures", home=self.folder).result.configs.values()
            for visit in row.visits
        ]
        ends = [v.freed for v in visits if self.node(v.node) == "b" and v.freed < killed]
        since = max(ends, default=0.0)
        return [batch.node == "b" and since <= batch.time <= killed for batch in batches]


class LosesLeader(Hopping):
    """The same, and the node that is killed leads."""

    order = ("b", "a")


CEREBRO = (sys.executable, "-m", "cerebro_elastic.cli")
SYSTEMS = {
    "hopping": Hopping,
    "hopping, leader lost": LosesLeader,
    "processes": Tasks,
    "elastic DDP": ElasticDDP,
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def strike(system: System) -> dict[str, Any]:
    """Run a system to its end, with the kill that its plan says; what that cost."""
    plan, notes = system.plan, system.folder / "notes"
    env = {**os.environ, **PEER, **system.environment, "NOTES": str(notes)}
    began, killed, back = time.time(), 0.0, 0.0

    def start(node: str) -> subprocess.Popen[bytes]:
        with (system.folder / f"{node}.log").open("ab") as log:
            return subprocess.Popen(system.command(node), stdout=log, stderr=log, env=env, cwd=system.folder)

    nodes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        with system.beside():
            for node in system.order:
                nodes[node] = start(node)
                time.sleep(system.ahead)
            wait(lambda: all(_alive(nodes)) and any(f.stat().st_size for f in notes.glob("*.notes")), system)
            if isinstance(system, Hopping):
                system.look(psutil.Process(nodes["a"].pid))
            if plan.kill_after is not None:
                time.sleep(plan.kill_after)
                killed = time.time()
                kill(nodes["b"])
                time.sleep(plan.away)
                back = time.time()
                nodes["b"] = start("b")
            wait(lambda: nodes["a"].poll() is not None, system)
            ended = time.time()
            wait(lambda: nodes["b"].poll() is not None, system)
    finally:
        for process in nodes.values():
            kill(process)
    if nodes["a"].returncode:
        raise SystemExit((system.folder / "a.log").read_text()[-4000:])
    batches = system.batches()
    flags = system.lost(batches, killed) if killed else [False] * len(batches)
    first, rows = batches[0].time, sum(batch.rows for batch in batches)
    taken = {
        "seconds": batches[-1].time - first,
        "whole": ended - began,
        "lost_share": rows / (len(plan.configs) * plan.epochs * plan.rows) - 1,
    }
    taken |= costs(batches, killed, back) if killed else {}
    return {name: round(value, 3) for name, value in taken.items()} | {"bars": bars(batches, flags, first)}


def _alive(nodes: Mapping[str, subprocess.Popen[bytes]]) -> Iterator[bool]:
    for node, process in nodes.items():
        if process.poll() is not None:
            raise SystemExit(f"node {node} ended with {process.returncode} before it trained anything")
        yield True


def wait(until: Any, system: System) -> None:
    deadline = time.time() + LIMIT_SECONDS
    while not until():
        if time.time() > deadline:
            logs = [f"{file.name}:\n{file.read_text()[-2000:]}" for file in system.folder.glob("*.log")]
            raise SystemExit(
                f"{type(system).__name__} did not come on in {LIMIT_SECONDS:g} s\n" + "\n".join(logs)
            )
        time.sleep(0.02)


def kill(process: subprocess.Popen[bytes]) -> None:
    """All of a node at once."""
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(process.pid)
        for one in [root, *root.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                one.kill()
    process.wait()
