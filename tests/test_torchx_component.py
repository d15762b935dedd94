"""``torchx run cerebro.mop``: what each scheduler would be asked for, field by field, and a job that really
runs on this machine and leaves nobody behind, however torchx ends."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import typer
from torchx.runner import get_runner
from torchx.specs.finder import ComponentValidationException, get_components
from torchx.version import __version__ as TORCHX

import cerebro_elastic
from cerebro_elastic import torchx_component
from cerebro_elastic.cli.app import app as cerebro
from cerebro_elastic.runs.results.verify import verify
from support.kubernetes_types import check_type
from support.waiting import SOON

NIGHTLY = not TORCHX.startswith("0.")

SECRETS = [
    "WANDB_TOKEN",
    "WANDB_API_KEY",
    "wandb_api_key",
    "OPENAI_APIKEY",
    "DB_PASS",
    "PGPASSWORD",
    "GH_PAT",
    "HF_TOKEN",
]
HARMLESS = {
    "WANDB_PROJECT": "p",
    "TOKENIZERS_PARALLELISM": "false",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token",
    "GOOGLE_APPLICATION_CREDENTIALS": "/etc/google.json",
    "CEREBRO_ETCD_KEY": "/etc/tls/key.pem",
    "MLFLOW_TRACKING_URI": "http://tracker:5000",
    "NCCL_SOCKET_IFNAME": "eth0",
}
RECIPE = """
epochs: {epochs}
nodes: 1:2
node: {{threads: 2}}
task: {{kind: torch, model_fn: "functions:model", loss: cross_entropy, optimizer: SGD}}
data: {{source: "functions:load", partitions: 2, valid: 0.2}}
search: {{space: {{lr: [0.1, 0.01]}}}}
"""

FUNCTIONS = """
import numpy as np
from torch import nn


def load():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 8)).astype(np.float32)
    return {"x": x, "y": (x.sum(axis=1) > 0).astype(np.int64)}


def model():
    return nn.Linear(8, 2)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a recipe, where torchx is called."""
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    (tmp_path / "job.yaml").write_text(RECIPE.format(epochs=2))
    (tmp_path / ".torchxconfig").write_text((Path(__file__).parents[1] / ".torchxconfig").read_text())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def dry(scheduler: str, *args: str, **cfg: object) -> Any:
    """The request that torchx would send."""
    with get_runner() as runner:
        return runner.dryrun_component(
            "cerebro.mop", ["--recipe", "job.yaml", *args], scheduler, cfg=cfg, workspace=None
        ).request


def options(line: str) -> dict[str, str]:
    """``--name=value`` and ``--name value`` of a command."""
    words, by_name = shlex.split(line), {}
    for word, after in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--"):
            name, _, value = word.partition("=")
            by_name[name] = value if "=" in word else "" if after.startswith("--") else after
    return by_name


def test_torchx_finds_it_and_its_own() -> None:
    assert {"cerebro.mop", "dist.ddp", "utils.echo"} <= set(get_components())


@pytest.mark.usefixtures("project")
def test_slurm() -> None:
    script = dry("slurm", "-j", "1:2x4", "--gpu", "4", partition="gpus", time="1:00").materialize()
    asked = [options(line) for line in script.splitlines() if line.startswith("#SBATCH --")]
    assert [job["--job-name"] for job in asked] == ["etcd-0", "hosts-0", "hosts-1"]
    etcd, *hosts = asked
    assert (etcd["--cpus-per-task"], etcd["--mem"]) == ("1", "1024")
    for job in hosts:
        gpus = {value for name, value in job.items() if name.startswith("--gpus-per-")}
        assert (job["--cpus-per-task"], job["--mem"], gpus) == ("9", "9216", {"4"})
        assert (job["--partition"], job["--time"], "--requeue" in job) == ("gpus", "1:00", True)
    assert "TORCHX_MAX_RETRIES=3" in script
    served, *commands = re.findall(r"-m cerebro_elastic\.cli (.*?)(?: :\\)?\n", script)
    port = options(served)["--port"]
    assert served.startswith("etcd job ")
    assert options(served)["--listen"] == "0.0.0.0"
    assert script.count(f"{sys.executable} -m cerebro_elastic.cli") == 3
    for command in commands:
        assert command.startswith("host job.yaml ")
        arguments = options(command)
        assert (arguments["--hosts"], arguments["--nodes"], arguments["--run-id"]) == ("1:2", "4", "job")
        assert arguments["--etcd"] == f"@SLURM_JOB_NODELIST_HET_GROUP_0:{port}"


@pytest.mark.usefixtures("project")
def test_kubernetes() -> None:
    words = ["-j", "1:2x2", "--gpu", "2", "--image", "me/job:1", "--env", "WHERE=there", "--cpu", "8"]
    words += ["--etcd_port", "2379", "--mounts", "type=volume,src=data,dst=/data,readonly"]
    cfg = {"queue": "q", "service_account": "reader", **({"validate_spec": False} if NIGHTLY else {})}
    with pytest.warns(UserWarning, match="Volcano"):
        request = dry("kubernetes", *words, **cfg)
    from kubernetes import client  # which takes two seconds to import

    job = client.ApiClient().sanitize_for_serialization(request.resource)
    assert (job["spec"]["queue"], job["spec"]["maxRetry"]) == ("q", 3)
    etcd, *hosts = job["spec"]["tasks"]
    assert [(task["name"], task["minAvailable"]) for task in hosts] == [("hosts-0", 1), ("hosts-1", 0)]
    assert all(task["maxRetry"] == 3 and task["policies"] == [] for task in (etcd, *hosts))
    for task in (etcd, *hosts):
        check_type(task["template"], "V1PodTemplateSpec", task["name"])
        pod = task["template"]["spec"]
        (container,) = pod["containers"]
        assert (container["image"], pod["serviceAccountName"]) == ("me/job:1", "reader")
        assert container["command"][:3] == ["python", "-m", "cerebro_elastic.cli"]
        assert {"name": "WHERE", "value": "there"} in container["env"]
        assert {"name": "mount-0", "persistentVolumeClaim": {"claimName": "data"}} in pod["volumes"]
        assert {"name": "mount-0", "mountPath": "/data", "readOnly": True} in container["volumeMounts"]
    (container,) = etcd["template"]["spec"]["containers"]
    assert container["ports"] == [{"name": "etcd", "containerPort": 2379}]
    for task in hosts:
        (container,) = task["template"]["spec"]["containers"]
        limits = container["resources"]["limits"]
        assert (limits["cpu"], limits["memory"], limits["nvidia.com/gpu"]) == ("8000m", "5120M", "2")
        assert options(shlex.join(container["command"]))["--etcd"] == "@VC_ETCD_0_HOSTS:2379"


@pytest.mark.skipif(NIGHTLY, reason="torchx has dropped aws_batch")
@pytest.mark.usefixtures("project")
def test_aws_batch() -> None:
    cfg = {"queue": "q", "job_role_arn": "arn:aws:iam::1:role/s3", "user": "me"}
    request = dry("aws_batch", "-j", "2:3x1", "--image", "me/job:1", "--max_retries", "7", **cfg)
    assert request.queue == "q"
    assert request.job_def["retryStrategy"]["attempts"] == 7
    nodes = request.job_def["nodeProperties"]
    assert (nodes["numNodes"], nodes["mainNode"]) == (4, 0)
    etcd, hosts = nodes["nodeRangeProperties"]
    assert (etcd["targetNodes"], hosts["targetNodes"]) == ("0:0", "1:3")
    for node in (etcd, hosts):
        assert node["container"]["jobRoleArn"] == "arn:aws:iam::1:role/s3"
        assert node["container"]["image"] == "me/job:1"
    needs = {need["type"]: need["value"] for need in hosts["container"]["resourceRequirements"]}
    assert needs == {"VCPU": "3", "MEMORY": "3072"}
    arguments = options(shlex.join(hosts["container"]["command"]))
    assert arguments["--etcd"].startswith("@AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS:")
    assert arguments["--hosts"] == "2:3"


@pytest.mark.usefixtures("project")
def test_an_etcd_that_is_named_is_used() -> None:
    app = torchx_component.mop("job.yaml", etcd="etcd-0:2379,etcd-1:2379", run_id="other")
    (hosts,) = app.roles
    assert (app.name, hosts.name, hosts.min_replicas, hosts.num_replicas) == ("other", "hosts", 1, 2)
    assert options(shlex.join(hosts.args))["--etcd"] == "etcd-0:2379,etcd-1:2379"
    with open("job.yaml", "a") as recipe:
        recipe.write("etcd: 10.0.0.1:2379\n")
    (hosts,) = torchx_component.mop("job.yaml").roles
    assert options(shlex.join(hosts.args))["--etcd"] == "10.0.0.1:2379"


def test_the_arguments_that_cerebro_run_overrides(project: Path) -> None:
    words = ["--nodes", "3:4", "--epochs", "7", "--checkpoints", "s3://b/c", "--verbose", "True"]
    with get_runner() as runner:
        app = runner.dryrun_component(
            "cerebro.mop", ["--recipe", "job.yaml", *words], "local_cwd", cfg={}, workspace=None
        )
    *_, host = [replica for params in app.request.role_params.values() for replica in params]
    arguments = options(shlex.join(host.args))
    assert (arguments["--hosts"], arguments["--nodes"]) == ("3:4", "1")
    assert (arguments["--epochs"], arguments["--checkpoints"], arguments["--verbose"]) == (
        "7",
        "s3://b/c",
        "",
    )
    (_, hosts) = torchx_component.mop("job.yaml", epochs=7, checkpoints="there", reuse=True).roles
    cli = typer.main.get_command(cerebro)
    known = {name: {param.name for param in cli.commands[name].params} for name in ("run", "host")}
    parsed = cli.commands["host"].make_context("host", hosts.args[3:])
    assert (parsed.params["epochs"], parsed.params["checkpoints"]) == (7, "there"), "the hosts know them"
    assert parsed.params["reuse"]
    component = set(inspect.signature(torchx_component.mop).parameters)
    assert known["run"] - component == {"fresh", "as_json", "ui", "yes"}, "what is no override"
    assert project.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"recipe": "none.yaml"}, "none.yaml: cannot read the recipe"),
        ({"j": "2x1", "nodes": "2"}, "-j 2x1 and --nodes 2 both give the number of nodes: keep one"),
        ({"run_id": "a/b"}, "the run id 'a/b' names a folder"),
        ({"etcd_port": 70_000}, "--etcd_port is 70000: a port is a number up to 65535"),
        ({"env": {"CEREBRO_ETCD_PASSWORD": "s3cret"}}, "--env CEREBRO_ETCD_PASSWORD.*_PASSWORD_FILE"),
        *(({"env": {name: "s3cret"}}, f"--env {name}: its value, a secret by name") for name in SECRETS),
        ({"env": {"DB": "mysql://me:s3cret@db/x"}}, "--env DB: its value, a secret by its form"),
    ],
)
@pytest.mark.usefixtures("project")
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ComponentValidationException, match=message) as caught:
        torchx_component.mop(**{"recipe": "job.yaml", **arguments})
    assert "s3cret" not in str(caught.value)


@pytest.mark.usefixtures("project")
def test_settings_of_the_run_and_variables_that_are_no_secrets_go_with_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("PATIENCE", "9"), ("CHECK", "off"), ("FORKSERVER", "/socket"), ("MEMORY", "1G")):
        monkeypatch.setenv(f"CEREBRO_{name}", value)
    (_, hosts) = torchx_component.mop("job.yaml", env={**HARMLESS, "CEREBRO_CHECK": "on"}).roles
    assert hosts.env == {**HARMLESS, "CEREBRO_PATIENCE": "9", "CEREBRO_CHECK": "on"}


def test_gangs_need_as_many_nodes_as_the_job_has_not_the_recipe(project: Path) -> None:
    recipe = RECIPE.format(epochs=1).replace("nodes: 1:2", "gang: 2\nparallelism: ddp")
    (project / "gangs.yaml").write_text(recipe)
    with pytest.raises(ComponentValidationException, match="gang"):
        torchx_component.mop("gangs.yaml")
    (_, hosts) = torchx_component.mop("gangs.yaml", j="2:4x1").roles
    assert (hosts.min_replicas, hosts.num_replicas) == (2, 4)


# For real.

TORCHX_RUN = [sys.executable, "-m", "torchx.cli.main", "run"]
MARK = "CEREBRO_TORCHX_TEST"


class Job:
    """``torchx run`` in a process, and whoever descends from it."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.mark = uuid.uuid4().hex
        self._descendants: set[psutil.Process] = set()
        self.log = folder / f"{self.mark}.log"
        env = {**os.environ, MARK: self.mark, "PYTHONDONTWRITEBYTECODE": "1"}
        with self.log.open("wb") as log:
            self.torchx = subprocess.Popen(
                [*TORCHX_RUN, "--", "--recipe", "job.yaml", *words],
                cwd=folder,
                env=env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def others(self) -> dict[int, str]:
        """Everybody but torchx that lives: command lines by process id. Programs are known by their
        environment, forks as descendants."""
        commands = {}
        with suppress(psutil.NoSuchProcess):
            self._descendants.update(psutil.Process(self.torchx.pid).children(recursive=True))
        for process in self._descendants:
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                commands[process.pid] = " ".join([*process.cmdline(), ""])
        for entry in Path("/proc").iterdir():
            try:
                if f"{MARK}={self.mark}" in (entry / "environ").read_text():
                    commands[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
            except (OSError, ValueError):
                continue
        commands.pop(self.torchx.pid, None)
        return commands

    def complete(self) -> bool:
        """Whether all parts of a job run: etcd and who serves it, hosts, agents and ranks."""
        commands = self.others().values()
        parts = ("cli etcd", "--data-dir", "cli host", "--rdzv-backend=cerebro", "-m cerebro_elastic.worker")
        return all(any(part in command for command in commands) for part in parts)

    def over(self) -> bool:
        return not self.others()

    def wait_for(self, condition: Callable[[Job], bool], what: str) -> None:
        deadline = time.monotonic() + SOON
        while not condition(self):
            assert time.monotonic() < deadline, f"waited for {what}: {self.others()}\n{self.log.read_text()}"
            time.sleep(0.1)


@contextmanager
def started(folder: Path, *words: str) -> Iterator[Job]:
    job = Job(folder, *words)
    try:
        yield job
    finally:
        job.torchx.kill()
        job.torchx.wait()
        for pid in job.others():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.cluster
def test_a_job_runs_to_its_end_on_two_hosts(project: Path) -> None:
    with started(project) as job:
        job.wait_for(lambda job: job.torchx.poll() is not None, "the job to end")
        assert job.torchx.returncode == 0, job.log.read_text()
        job.wait_for(Job.over, "everybody to end")
    log = job.log.read_text()
    assert "ob finished: SUCCEEDED" in log
    checkpoint = re.search(r"best checkpoint: (\S+)", log)
    assert checkpoint is not None
    assert (Path(checkpoint[1]) / "manifest.json").exists() or Path(checkpoint[1]).exists()
    assert f"report: {project / 'runs' / 'job' / 'report.html'}" in log
    assert "Traceback" not in log
    result = cerebro_elastic.Run.open("job", home=project / "runs").result
    assert [row.status for row in result.leaderboard] == ["finished"] * 2
    assert result.spec.plan.min_nodes == 1
    assert result.spec.plan.max_nodes == 2
    assert verify(result) == []
    assert len(list((project / "runs").glob("job*/history.jsonl"))) == 2, "each host has the record"
