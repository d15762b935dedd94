"""docs/how-to/cluster.md and docs/clusters hold: commands are understood, manifests agree with themselves and
with us, scripts do what they say. (That hosts and their etcd work together:
test_torchx_component.py and `make slurm`)"""

from __future__ import annotations

import re
import shlex
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchx.runner import get_runner

from cerebro_elastic.runs.start.agents import agent_command
from cerebro_elastic.store.client.etcd_program import find_etcd
from support import pages
from support.kubernetes_types import check_type
from support.pages import ROOT, parsed
from support.slurm_cluster import KILL_WAIT
from support.waiting import SOON

FOLDER = ROOT / "docs" / "clusters"
PAGES = ["docs/how-to/cluster.md", "docs/how-to/data.md"]


def commands() -> list[list[str]]:
    """The commands of the pages on clusters, spot machines and data."""
    return [words for page in PAGES for words in pages.commands(page)]


def test_every_job_can_be_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    jobs = [words for words in commands() if words[:2] == ["torchx", "run"]]
    assert len(jobs) == 4
    for words in jobs:
        text = shlex.join(words).replace("recipe.yaml", "recipes/digits.yaml")
        found = re.fullmatch(r"torchx run (?:-s (\w+) )?(?:-cfg (\S+) )?(?:-- |(cerebro\.\w+) )(.*)", text)
        assert found is not None, text
        cfg = dict(item.split("=") for item in (found[2] or "").split(",") if item)
        with get_runner() as runner:
            scheduler, component = found[1] or "local_cwd", found[3] or "cerebro.mop"
            runner.dryrun_component(component, shlex.split(found[4]), scheduler, cfg=cfg, workspace=None)


def test_the_torchrun_command_is_ours() -> None:
    (command,) = [words for words in commands() if words[0] == "torchrun"]
    ours = agent_command("RUN", "HOST:PORT", "node-0", 1)
    assert {word.partition("=")[0] for word in command[1:]} <= {word.partition("=")[0] for word in ours}
    (exported,) = [words for words in commands() if words[0] == "export" and "GRACE" in words[1]]
    grace, shutdown = (float(word.partition("=")[2]) for word in exported[1:])
    assert shutdown > grace


def test_the_slurm_script(tmp_path: Path) -> None:
    (tmp_path / "srun").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit $CODE\n')
    (tmp_path / "srun").chmod(0o755)
    script = FOLDER / "slurm.sh"
    (tmp_path / "scontrol").write_text('#!/bin/sh\necho "scontrol $@"\n')
    (tmp_path / "scontrol").chmod(0o755)

    def printed(code: int, **of_slurm: str) -> list[str]:
        """What the script calls where a host ends with this exit code."""
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CODE": str(code), "SLURM_JOB_ID": "7", **of_slurm}
        command = [script, "my recipe.yaml", "a:1,b:1"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (code, "")
        return done.stdout.splitlines()

    parameters = parsed(printed(0, SLURM_ARRAY_TASK_COUNT="8", SLURM_GPUS_ON_NODE="4"))
    names = ("recipe", "etcd", "hosts", "nodes")
    assert [parameters[name] for name in names] == [Path("my recipe.yaml"), "a:1,b:1", "1:8", 4]
    assert parameters["grace"] < KILL_WAIT
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=?(\S*)", script.read_text(), re.MULTILINE))
    assert int(asked["signal"].partition("@")[2]) >= KILL_WAIT
    alone = parsed(printed(0))
    assert (alone["hosts"], alone["nodes"]) == ("1:1", 1), "no element of an array, and no GPUs"
    # Its host has left before the run's end: only then is it to go on.
    assert printed(130)[-1] == "scontrol requeue 7"
    element = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "0"}
    assert printed(130, **element)[-1] == "scontrol requeue 7_0", "by 7 all elements would be requeued"
    assert "scontrol" not in str(printed(1))


class Metadata(BaseHTTPRequestHandler):
    """The metadata service of an instance: here the notice comes at the third request."""

    looks = 0

    def do_PUT(self) -> None:
        self.answer(200, b"a-token")

    def do_GET(self) -> None:
        assert self.headers["X-aws-ec2-metadata-token"] == "a-token"
        Metadata.looks += 1
        self.answer(200 if Metadata.looks == 3 else 404, b"{}")

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_the_spot_script_lets_the_host_leave_when_the_notice_comes() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    env = {"METADATA": f"http://127.0.0.1:{server.server_port}", "POLL": "0.05", "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(["sleep", "60"]) as host:
        try:
            subprocess.run([FOLDER / "spot.sh", str(host.pid)], env=env, check=True, timeout=SOON)
            assert host.wait(SOON) == -15
            # Without a host there is nothing to wait for.
            subprocess.run([FOLDER / "spot.sh", str(host.pid)], env=env, check=True, timeout=SOON)
        finally:
            host.kill()
            server.shutdown()
            server.server_close()
            thread.join()
    assert Metadata.looks == 4


def manifests(name: str) -> dict[str, Any]:
    """A file's objects by their kind, of the types of the API."""
    objects = {item["kind"]: item for item in yaml.safe_load_all((FOLDER / "kubernetes" / name).read_text())}
    for kind, item in objects.items():
        if item["apiVersion"] == "jobset.x-k8s.io/v1alpha2":
            for job in item["spec"]["replicatedJobs"]:
                check_type(job["template"], "V1JobTemplateSpec", job["name"])
        else:
            check_type(item, f"V1{kind}", kind)
    return objects


def endpoints(port: int) -> list[str]:
    """Where the members of the etcd are, as Kubernetes names the pods of a StatefulSet."""
    etcd = manifests("etcd.yaml")["StatefulSet"]
    name, service = etcd["metadata"]["name"], etcd["spec"]["serviceName"]
    return [f"{name}-{i}.{service}:{port}" for i in range(etcd["spec"]["replicas"])]


def test_the_etcd_of_three_members() -> None:
    found = manifests("etcd.yaml")
    etcd = found["StatefulSet"]["spec"]
    assert etcd["replicas"] == 3
    assert found["Service"]["metadata"]["name"] == etcd["serviceName"]
    labels = etcd["template"]["metadata"]["labels"]
    selectors = [
        found["Service"]["spec"]["selector"],
        etcd["selector"]["matchLabels"],
        found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ]
    assert selectors == [labels] * 4
    assert found["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    (container,) = etcd["template"]["spec"]["containers"]
    flags = dict(word.removeprefix("--").split("=", 1) for word in container["command"][1:])
    members = dict(member.split("=") for member in flags["initial-cluster"].split(","))
    assert members == {e.partition(".")[0]: f"http://{e}" for e in endpoints(2380)}
    assert flags["initial-advertise-peer-urls"].replace("$(NAME)", "etcd-0") == members["etcd-0"]
    version = [int(part) for part in container["image"].rpartition(":v")[2].split(".")]
    assert version >= [3, 5, 6]
    (mount,) = container["volumeMounts"]
    assert flags["data-dir"].startswith(mount["mountPath"])
    assert mount["name"] == etcd["volumeClaimTemplates"][0]["metadata"]["name"]
    known = subprocess.run([find_etcd(), "--help"], capture_output=True, text=True, check=False)
    for flag in flags:
        assert f"--{flag} " in known.stdout + known.stderr, flag


def test_the_hosts() -> None:
    job = manifests("hosts.yaml")["Job"]
    pod = job["spec"]["template"]["spec"]
    parameters = check_hosts(job["spec"])
    assert parameters["etcd"].split(",") == endpoints(2379)
    assert (
        int(job["metadata"]["annotations"]["kueue.x-k8s.io/job-min-parallelism"]) < job["spec"]["parallelism"]
    )
    assert pod["terminationGracePeriodSeconds"] > parameters["grace"]
    let_in = manifests("etcd.yaml")["NetworkPolicy"]["spec"]["ingress"][0]["from"]
    assert {"podSelector": {"matchLabels": job["spec"]["template"]["metadata"]["labels"]}} in let_in


def test_the_hosts_with_an_etcd_of_their_own() -> None:
    jobset = manifests("jobset.yaml")["JobSet"]
    etcd, hosts = (job["template"]["spec"] for job in jobset["spec"]["replicatedJobs"])
    (container,) = etcd["template"]["spec"]["containers"]
    served, parameters = parsed(container["command"]), check_hosts(hosts)
    # As JobSet names its pods: set, job, index of the job, index of the pod, and the set as their domain.
    name = jobset["metadata"]["name"]
    assert parameters["etcd"] == f"{name}-etcd-0-0.{name}:{served['port']}"
    assert (served["run"], served["listen"]) == (parameters["run_id"], "0.0.0.0")
    assert parameters["grace"] < 30, "Kubernetes' default for terminationGracePeriodSeconds"


def check_hosts(job: dict[str, Any]) -> dict[str, Any]:
    """Check the job of the hosts, and return what their command means."""
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    parameters = parsed(container["command"])
    assert parameters["hosts"].endswith(f":{job['parallelism']}")
    assert container["resources"]["limits"]["nvidia.com/gpu"] == parameters["nodes"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    assert "env" not in container, "secrets come by reference"
    return parameters
