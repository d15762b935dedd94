"""A cluster of hosts as namespaces of this machine: some run ``cerebro host`` as users do, one serves S3, one
or three more an etcd. Its process must run below ``beside_hosts``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import requests
import yaml

import cerebro_elastic
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.system.run_key import RunKey
from support.cluster import TESTS
from support.etcd_cluster import EtcdCluster
from support.faults.inject import FOLDER, FaultFolder
from support.hosts import Host, Hosts
from support.ledger import Ledger
from support.s3_server import BUCKET, PORT
from support.storm_task import PARTITIONS, data

HOME = "/tmp/home/runs"
"""The folder of runs on each host, on its own disk."""

_INIT = ("sh -c mount", "sleep infinity", "ps -eo")
"""What runs on an idle host."""


class HostProcess:
    """``cerebro host`` on one host, at most once at a time; its output goes to ``log``."""

    def __init__(self, host: Host, command: list[str], log: Path, env: Mapping[str, str]) -> None:
        self.host = host
        self.log = log
        self._command, self._env = command, env
        self._popen: subprocess.Popen[bytes] | None = None
        self.starts = 0

    @property
    def alive(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    @property
    def status(self) -> int | None:
        """The exit status, once it has ended."""
        return self._popen.poll() if self._popen else None

    def start(self) -> None:
        """Start it; boot its host before, if that was killed."""
        if not self.host.runs:
            self.host.start()
        with self.log.open("ab") as log:
            self._popen = self.host.popen(
                self._command, self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.starts += 1

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within ``seconds``."""
        if self._popen is not None:
            try:
                self._popen.wait(seconds)
            except subprocess.TimeoutExpired:
                return False
        return True


class HostCluster:
    """The run of a recipe on ``hosts`` hosts. Entering the context starts etcd and S3; its user starts the
    other processes. Leaving the context ends all."""

    def __init__(self, recipe: Mapping[str, Any], folder: Path, *, hosts: int, members: int) -> None:
        self.folder = RunFolder(folder / "storm")
        self._recipe = {
            **recipe,
            "data": {"url": f"s3://{BUCKET}/data", "batch_size": recipe["data"]["batch_size"]},
            "checkpoints": f"s3://{BUCKET}/runs",
        }
        del self._recipe["nodes"]
        self._hosts = hosts
        self.members = members
        self.faults = FaultFolder(self.folder.path / "faults")
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with self._stack as stack:
            self.folder.logs.mkdir(parents=True)
            self.faults.make()
            everybody = stack.enter_context(Hosts(self._hosts + 1 + self.members))
            workers, (self.storage, *stores) = everybody[: self._hosts], everybody[self._hosts :]
            self.infrastructure = (self.storage, *stores)
            """The hosts that the others talk to."""
            self._serve()
            self.etcd = stack.enter_context(EtcdCluster(self.folder.etcd, hosts=stores))
            key = RunKey.kept(self.folder.key)
            patient = replace(self.etcd.settings, patience=25.0)  # longer than any fault of etcd lasts
            store = stack.enter_context(closing(EtcdStore(patient)))
            self.ledger = Ledger(store, self.folder.run, key)
            recipe = self.folder.path / "recipe.yaml"
            recipe.write_text(yaml.safe_dump(self._recipe))
            endpoints = ",".join(self.etcd.settings.endpoints)
            command = [sys.executable, "-m", "cerebro_elastic.cli", "host", str(recipe), "--home", HOME]
            command += [
                "--etcd",
                endpoints,
                "--hosts",
                f"{self._recipe.get('gang', 1)}:{self._hosts}",
                "--run-id",
                self.folder.run,
            ]
            env = {
                **key.to_env(),
                "PYTHONPATH": os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH")))),
                FOLDER: str(self.folder.path / "faults"),
            }
            env["CEREBRO_RUN_KEY"] = key.secret.hex()
            env.pop("CEREBRO_RUN_KEY_FILE", None)
            self.processes = {
                host.name: HostProcess(host, command, self.folder.logs / f"{host.name}.log", env)
                for host in workers
            }
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def answer(self, how: str) -> None:
        """Let S3 answer ``well``, ``refuse`` or ``hang``."""
        assert self._s3.stdin is not None
        self._s3.stdin.write(f"{how}\n".encode())
        self._s3.stdin.flush()

    def results(self) -> dict[str, RunResult]:
        """What each host that has a record has seen of the run, by its name."""
        results = {}
        for name, process in self.processes.items():
            own = process.host.file(f"{HOME}/{self.folder.run}")
            kept = RunFolder(self.folder.path / "records" / name / self.folder.run)
            if (own / kept.history.name).exists():
                kept.path.mkdir(parents=True, mode=0o700)
                for file in own.iterdir():
                    if file.is_file():
                        shutil.copy(file, kept.path)
                shutil.copytree(own / "logs", kept.path / "logs")
                results[name] = RunResult(kept)
        return results

    def left_running(self) -> list[str]:
        """The processes that still run on the hosts of the run."""
        left = []
        for name, process in self.processes.items():
            lines = process.host.run(["ps", "-eo", "args", "--no-headers"]).splitlines()
            left += [f"{name}: {line}" for line in lines if not line.startswith(_INIT)]
        return left

    def _serve(self) -> None:
        """Start S3 and let ``s3://`` lead there, here and on the hosts; prepare the dataset."""
        address = self.storage.address
        os.environ |= {
            "AWS_ENDPOINT_URL": f"http://{address}:{PORT}",
            "AWS_ACCESS_KEY_ID": "a-key",
            "AWS_SECRET_ACCESS_KEY": "a-secret",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        self._s3 = self.storage.popen(
            [sys.executable, "-m", "support.s3_server", address],
            {"PYTHONPATH": str(TESTS)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._s3.stdout is not None
        assert self._s3.stdout.readline() == b"ready\n"
        requests.put(f"http://{address}:{PORT}/{BUCKET}", timeout=30).raise_for_status()
        cerebro_elastic.prepare(data, f"s3://{BUCKET}/data", partitions=PARTITIONS, valid=0.1, seed=1)
