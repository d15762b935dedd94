"""Runs on Ray: real raylets on loopback, of unequal size; one is killed, one comes, the driver is killed and
submitted again, and the result is that of a run that nothing happened to."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from ray.cluster_utils import Cluster
from ray.util import get_node_ip_address

import cerebro_elastic
from cerebro_elastic.cli.start import Ray as RayCommand
from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import CerebroError, RunError
from cerebro_elastic.runs.catalog import places_of
from cerebro_elastic.runs.results.replay import replay
from cerebro_elastic.runs.results.verify import verify
from cerebro_elastic.system.run_key import VARIABLE
from cerebro_ray import driver
from cerebro_ray.cluster import check_version
from cerebro_ray.driver import run as run_on_ray
from cerebro_ray.host_actor import HostCommand, HostEnd
from cerebro_ray.slots import Hosts, Slot
from support.waiting import SOON

MACHINE = {"object_store_memory": 80 << 20, "include_dashboard": False}
RECIPE = """
epochs: 4
nodes: 1:3
task: {kind: torch, model_fn: "slow_functions:model", loss: cross_entropy, optimizer: SGD}
data: {source: "slow_functions:load", partitions: 3, valid: 0.2, batch_size: 8}
search: {space: {lr: [0.1, 0.03, 0.01]}}
"""
FUNCTIONS = """
import time
from pathlib import Path

import numpy as np
from torch import nn


def load():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 8)).astype(np.float32)
    return {"x": x, "y": (x.sum(axis=1) > 0).astype(np.int64)}


class Slow(nn.Linear):
    def forward(self, x):
        while Path("PROJECT", "held").exists():
            time.sleep(0.05)
        if Path("PROJECT", "slowly").exists():
            time.sleep(0.05)
        return super().forward(x)


def model():
    return Slow(8, 2)
"""
STOPPED = """
import os, signal, sys
from cerebro_elastic.cli.options import stopped_as_by_ctrl_c
from cerebro_ray.cluster import connected

try:
    with stopped_as_by_ctrl_c(), connected(sys.argv[1], None, []):
        os.kill(os.getpid(), signal.SIGTERM)
except KeyboardInterrupt:
    print("stopped as by Ctrl-C")
"""


@pytest.fixture(scope="module")
def head() -> Iterator[Cluster]:
    """A head without cores. Its autoscaler brings one machine of one core when there is demand."""
    folder = Path("/tmp") / f"cb-{uuid.uuid4().hex[:8]}"  # sockets need a short path
    environment = {
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": str(folder),
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_FAKE_CLUSTER": "1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        (folder / "ray").mkdir(parents=True)
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        autoscaling = {"gcs_server_port": port, "autoscaling_config": str(autoscaler(folder, port))}
        cluster = Cluster(initialize_head=True, head_node_args={**MACHINE, **autoscaling, "num_cpus": 0})
        try:
            yield cluster
        finally:
            cluster.shutdown()
            for process in psutil.process_iter(["cmdline"]):  # those of the autoscaler's machines
                if str(folder) in " ".join(process.info["cmdline"] or ()):
                    process.kill()
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def cluster(head: Cluster) -> Iterator[Cluster]:
    """The head, to which ``add`` adds machines for a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONBREAKPOINT", "0")  # Ray sets it
        yield head
        ray.shutdown()
    for machine in list(head.worker_nodes):
        head.remove_node(machine, allow_graceful=False)


def autoscaler(folder: Path, port: int) -> Path:
    """Settings of an autoscaler whose machines are raylets here. (Ray's wheel lacks those that its
    ``AutoscalingCluster`` reads.)"""
    commands = ["initialization", "head_setup", "worker_setup", "setup", "head_start_ray", "worker_start_ray"]
    settings = {
        "cluster_name": "here",
        "max_workers": 1,
        "provider": {
            "type": "fake_multinode",
            "gcs_address": f"{get_node_ip_address()}:{port}",
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
        },
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "small": {
                "resources": {"CPU": 1, "object_store_memory": MACHINE["object_store_memory"]},
                "node_config": {},
                "max_workers": 1,
            },
        },
        "idle_timeout_minutes": 1,
        "auth": {},
        "docker": {},
        "file_mounts": {},
        "cluster_synced_files": [],
        "rsync_exclude": [],
        "rsync_filter": [],
        **{f"{name}_commands": [] for name in commands},
    }
    file = folder / "autoscaler.yaml"
    file.write_text(json.dumps(settings))  # JSON is YAML, too
    return file


def add(cluster: Cluster, cores: int) -> Any:
    return cluster.add_node(num_cpus=cores, **MACHINE)


def drain(cluster: Cluster, machine: Any) -> None:
    """What an autoscaler does with a machine that is to be taken away."""
    words = ["--address", cluster.address, "--node-id", machine.node_id, "--reason-message", "spot"]
    reason = ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--deadline-remaining-seconds", "60"]
    ray_cli = [sys.executable, "-m", "ray.scripts.scripts"]
    subprocess.run([*ray_cli, "drain-node", *words, *reason], check=True, capture_output=True, timeout=SOON)


def await_that(holds: Callable[[], bool], what: str, log: Path) -> None:
    deadline = time.monotonic() + SOON
    while not holds():
        assert time.monotonic() < deadline, f"{what}\n{log.read_text()}"
        time.sleep(0.2)


def started(cluster: Cluster, folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """The command, in a process that can be killed."""
    words = ["job.yaml", "--run-id", "job", "--hosts", "1:3", "--cpus", "1", "--address", cluster.address]
    with open(log, "ab") as file:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "cerebro_elastic.cli",
                "ray",
                *words,
                "--working-dir",
                ".",
                "--home",
                "runs",
            ],
            cwd=folder,
            env={name: value for name, value in os.environ.items() if name != VARIABLE},
            stdout=file,
            stderr=subprocess.STDOUT,
        )


@pytest.mark.cluster
def test_a_run_outlives_machines_and_its_driver(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(RECIPE)
    # Ray copies the project to its machines; what holds their batches lies here.
    (tmp_path / "slow_functions.py").write_text(FUNCTIONS.replace("PROJECT", str(tmp_path)))
    slowly, held = tmp_path / "slowly", tmp_path / "held"
    slowly.touch()
    log = tmp_path / "log"
    small, large = add(cluster, 1), add(cluster, 2)
    history = tmp_path / "runs" / "job" / "history.jsonl"

    def committed() -> int:
        return history.read_text().count('"UnitCommitted"') if history.exists() else 0

    def starts() -> int:
        return log.read_text().count(" starts on ")

    driver = started(cluster, tmp_path, log)
    try:
        await_that(lambda: committed() >= 2, "no unit was trained", log)
        held.touch()  # however long the next steps take, the run has not ended before them
        cluster.remove_node(small, allow_graceful=False)
        await_that(lambda: "Ray places it again" in log.read_text(), "the loss was not seen", log)
        await_that(lambda: starts() == 4, "the autoscaler brought no machine", log)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        driver = started(cluster, tmp_path, log)
        await_that(lambda: starts() > 4, "the second driver starts no host", log)
        before = committed()
        held.unlink()
        await_that(lambda: committed() > before, "the run does not go on", log)
        held.touch()
        drain(cluster, large)
        await_that(lambda: "Ray drains this machine" in log.read_text(), "the notice was not seen", log)
        held.unlink()
        assert driver.wait(SOON) == 0, log.read_text()
    finally:
        driver.kill()
        driver.wait()
    assert "Leaderboard by val_loss" in log.read_text()
    result = cerebro_elastic.Run.open("job", home=tmp_path / "runs").result
    assert {row.status for row in result.leaderboard} == {"finished"}
    # A unit that was stopped part-way has two visits.
    assert sum(visit.whole for row in result.leaderboard for visit in row.visits) == 3 * 4 * 3
    left = {path.name for path in (tmp_path / "runs").iterdir()}
    places = {path.name for path in places_of(result.folder, result.spec)}
    assert {"job.project"} <= left <= places, "`cerebro rm` removes them"
    assert verify(result) == []
    slowly.unlink()
    for config in result.configs:
        assert all(visit.same for visit in replay(result, config))
    key = (tmp_path / "runs" / "job.etcd" / "key").read_text().strip()
    assert key not in log.read_text()
    logs = [file for file in Path(os.environ["RAY_TMPDIR"]).rglob("*") if file.is_file()]
    assert not [file for file in logs if key.encode() in file.read_bytes()]


@pytest.mark.cluster
def test_the_commands_options_are_the_arguments_of_the_driver() -> None:
    assert {*RayCommand.model_fields, "watcher"} == set(inspect.signature(run_on_ray).parameters)


def test_sigterm_is_ours_beside_ray(cluster: Cluster) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STOPPED, cluster.address], capture_output=True, text=True, timeout=SOON
    )
    assert (done.returncode, done.stdout) == (0, "stopped as by Ctrl-C\n"), done.stderr


def test_settings_of_a_run_reach_its_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEREBRO_PATIENCE", "9")
    monkeypatch.setenv("CEREBRO_CACHE_BYTES", "1G")
    env = driver._env(StoreSettings(endpoints=("127.0.0.1:2379",)))
    assert env["CEREBRO_PATIENCE"] == "9"
    assert "CEREBRO_CACHE_BYTES" not in env, "each machine has its own"


def test_a_machine_that_lacks_something_ends_no_other_host() -> None:
    said: list[str] = []
    slots = [Slot(name, {"CPU": 1.0}, HostCommand("r.yaml", "r", "runs", (), {})) for name in ("one", "two")]
    hosts = Hosts(slots, said.append)
    slots[0].ended(HostEnd(2, "error: no module 'x'"), said.append)
    assert (slots[0].over, slots[1].over, hosts.over) == (True, False, False)
    assert hosts.error == "error: no module 'x'"
    assert said == ["one cannot take part:\nerror: no module 'x'"]
    for exit_code in (1, -9, 1):
        assert not slots[1].over
        slots[1].ended(HostEnd(exit_code, "killed"), said.append)
    assert hosts.over, "it has failed three times in a row"


@pytest.mark.parametrize("version", ["2.49.1", "1.13.0", "3.0.0"])
def test_another_version_of_ray_is_refused(version: str) -> None:
    with pytest.raises(RunError, match=r"2\.50 and later"):
        check_version(version)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"address": "ray://head:10001"}, "ray job submit"),
        ({"address": "127.0.0.1:1"}, "no Ray cluster can be used at --address 127.0.0.1:1"),
        ({"hosts": "8:2"}, "--hosts is '8:2'"),
        ({"cpus": 0}, "--cpus is 0"),
        ({"run_id": "a b"}, "a b"),
        ({"working_dir": "elsewhere"}, "is not in --working-dir"),
    ],
)
def test_an_impossible_setting_is_refused_before_anything_starts(
    options: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "job.yaml").write_text(RECIPE)
    with pytest.raises(CerebroError) as caught:
        run_on_ray("job.yaml", home="runs", **options)
    assert message in str(caught.value)
    assert not (tmp_path / "runs").exists()
