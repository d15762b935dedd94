"""``python -m support.slurm``: the ways to run on Slurm of the page "Your cluster", tried on a Slurm cluster
that is made on this machine.

The array of hosts (docs/clusters/slurm.sh) is requeued, cancelled, preempted, out of time, and loses
machines; a job of torchx is requeued. Then both records are verified, all configs replayed, and the hosts
searched for what is left.

Exit status: 0 if all is well, 1 if something is wrong, 2 if there can be no such cluster here.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from rich.console import Console
from rich.table import Table

from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.runs.results.replay import replay
from cerebro_elastic.runs.results.verify import verify
from cerebro_elastic.runs.run import Run
from support.pages import ROOT
from support.slurm_cluster import CORES, OWN, Slurm, why_not

NODES = 3
WRONG, IMPOSSIBLE = 1, 2
Say: TypeAlias = Callable[[str], None]
Fault: TypeAlias = Callable[[str, str], object]
"""What strikes a job on a node."""
RECIPE = """
name: my_run
epochs: {epochs}
task: {{kind: torch, model_fn: "{module}:model", loss: cross_entropy}}
data: {{source: "{module}:load", partitions: 6, valid: 0.1, batch_size: 8}}
search: {{space: {{lr: [0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005]}}}}
"""
FUNCTIONS = """
import os
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

QUICKLY = Path(__file__).with_name("quickly")


def load():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(430, 8)).astype(np.float32)
    return {"x": x, "y": (x.sum(axis=1) > 0).astype(np.int64)}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))

    def forward(self, x):
        if self.training and "SLURM_JOB_ID" in os.environ and not QUICKLY.exists():
            time.sleep(0.25)  # long enough to be hit
        return self.layers(x)


def model(lr):
    net = Net()
    return net, torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
"""


class Project:
    """A folder that all hosts of the cluster see, in which a user submits."""

    def __init__(self, slurm: Slurm, name: str, epochs: int) -> None:
        self._slurm = slurm
        self.folder = slurm.folder / name
        self.folder.mkdir()
        module = f"{name}_functions"  # this process, too, imports those of each project
        (self.folder / "recipe.yaml").write_text(RECIPE.format(epochs=epochs, module=module))
        (self.folder / f"{module}.py").write_text(FUNCTIONS)
        shutil.copy(ROOT / ".torchxconfig", self.folder)

    def popen(self, command: str, **settings: object) -> subprocess.Popen[bytes]:
        """Start a command in it on the login host."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        words = ["env", "-C", str(self.folder), f"PATH={path}", *shlex.split(command)]
        return self._slurm.popen(words, **settings)

    def run(self, command: str) -> str:
        """What it prints."""
        process = self.popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return process.communicate()[0].decode()

    @contextmanager
    def etcd(self) -> Iterator[None]:
        """Serve the run's etcd at login:2379. It ends with the run."""
        with (self.folder / "etcd.log").open("wb") as log:
            until_ended = "until cerebro etcd my_run --listen 0.0.0.0 --port 2379; do sleep 1; done"
            serving = self.popen(f"bash -c '{until_ended}'", stdout=log, stderr=log)
            yield
            assert serving.wait(120) == 0, (self.folder / "etcd.log").read_text()

    def events(self, kind: str) -> int:
        """How many events of a kind are on record. A host's record begins when it joins."""
        records = "".join(file.read_text() for file in self.folder.glob("runs/my_run*/history.jsonl"))
        return len(set(re.findall(rf'"kind":"{kind}",.*?"revision":(\d+)', records)))

    def wait_for_visits(self, more: int) -> None:
        """Wait until the run has made progress."""
        enough = self.events("UnitCommitted") + more
        self._slurm.until(lambda: self.events("UnitCommitted") >= enough, "visits")

    def quickly(self) -> None:
        """Let units last no longer than they must."""
        (self.folder / "quickly").touch()

    def problems(self) -> Iterator[str]:
        """A sentence for each thing that is wrong with the run, which has ended."""
        result = Run.open("my_run", home=self.folder / "runs").result
        for violation in verify(result):
            yield f"{self.folder.name}: {violation.invariant}: {violation.story}"
        for row in result.leaderboard:
            if row.status != Status.FINISHED:
                yield f"{self.folder.name}: config {row.config} is {row.status}: {row.reason}"
            different = sum(not visit.same for visit in replay(result, row.config))
            if different:
                yield f"{self.folder.name}: {different} visits of {row.config} differ from their replay"


class ArrayOfHosts:
    """``slurm.sh``: one host for each of the cluster's nodes and one more, and what strikes them."""

    def __init__(self, slurm: Slurm, project: Project, say: Say) -> None:
        self._slurm, self._project, self._say = slurm, project, say
        size = f"--array=0-{NODES} --gpus-per-node=1 --cpus-per-task={CORES}"
        script = ROOT / "docs" / "clusters" / "slurm.sh"
        say(project.run(f"sbatch {size} {script} recipe.yaml login:2379"))
        self.table = Table("fault", "hosts again after", "left in order", "units begun anew")

    def hosts(self) -> dict[str, str]:
        """The nodes that hosts run on, and their jobs."""
        jobs = self._slurm.jobs().items()
        return {job.node: name for name, job in jobs if job.state == "RUNNING" and job.partition == "all"}

    def strike(self, fault: str, node: str, command: Fault, mend: Fault | None = None) -> None:
        """Have a fault strike the host on a node, and wait until as many hosts as before go on. The fault is
        mended when the host has gone."""
        self._project.wait_for_visits(6)
        job = self.hosts()[node]
        before, began = self._counts(), time.monotonic()
        self._say(f"{fault}: job {job} on {node}")
        command(job, node)
        self._slurm.until(lambda: self.hosts().get(node) != job, f"job {job} to leave {node}")
        if mend is not None:
            mend(job, node)
        self._slurm.until(lambda: len(self.hosts()) == NODES, f"hosts on all nodes after: {fault}")
        lasted = time.monotonic() - began
        self._project.wait_for_visits(6)
        left, lost = (count - earlier for count, earlier in zip(self._counts(), before, strict=True))
        self.table.add_row(fault, f"{lasted:.0f} s", "yes" if left else "no", str(lost))

    def _counts(self) -> tuple[int, int]:
        """How many nodes have left in order, and how many units were taken from lost ones."""
        return self._project.events("NodeDraining"), self._project.events("UnitWithdrawn")


def strike_all(slurm: Slurm, hosts: ArrayOfHosts) -> None:
    """Have everything happen to hosts that happens to jobs of Slurm."""

    def preempt(_job: str, node: str) -> None:
        slurm.run("sbatch", "--partition=urgent", f"--nodelist={node}", "--exclusive", "--wrap=sleep 10")

    def end_its_time(job: str, _node: str) -> None:
        # Slurm looks at time limits every 30 s, so that its signal may come that much earlier than asked.
        *_, minutes, _ = slurm.run("squeue", "--noheader", f"--jobs={job}", "--format=%M").split(":")
        slurm.run("scontrol", "update", f"jobid={job}", f"timelimit={int(minutes) + 2}")

    def give_more_time(job: str, _node: str) -> None:
        slurm.run("scontrol", "update", f"jobid={job}", "timelimit=240")

    def resume(_job: str, node: str) -> None:
        host = slurm.nodes[node]
        slurm.until(lambda: "cerebro host" not in host.run(["ps", "-e", "-o", "args"]), "the host to leave")
        slurm.run("scontrol", "update", f"nodename={node}", "state=resume")

    def restart(_job: str, node: str) -> None:
        slurm.nodes[node].start()
        slurm.boot(node)

    hosts.strike("scontrol requeue", "n1", lambda job, _: slurm.run("scontrol", "requeue", job))
    hosts.strike("scancel", "n2", lambda job, _: slurm.run("scancel", job))
    hosts.strike("preempted", "n3", preempt)
    hosts.strike("its time is up", "n1", end_its_time, give_more_time)
    down = ["scontrol", "update", "state=down", "reason=tried"]
    hosts.strike("node set DOWN", "n2", lambda _, node: slurm.run(*down, f"nodename={node}"), resume)
    hosts.strike("machine lost", "n3", lambda _, node: slurm.nodes[node].kill(), restart)


def array_of_hosts(slurm: Slurm, say: Say) -> tuple[Project, Table]:
    """A run by ``slurm.sh``, to its end."""
    project = Project(slurm, "array", epochs=8)
    with project.etcd():
        hosts = ArrayOfHosts(slurm, project, say)
        slurm.until(lambda: len(hosts.hosts()) == NODES, "hosts")
        strike_all(slurm, hosts)
        project.quickly()
        slurm.until(lambda: not slurm.jobs(), "the run's end")
    return project, hosts.table


def job_of_torchx(slurm: Slurm, say: Say) -> Project:
    """A run by torchx, which is requeued once, to its end."""
    project = Project(slurm, "torchx", epochs=4)
    # Without accounting, as here, it ends with an error after the submission.
    said = project.run(
        "torchx run -s slurm -cfg partition=all,time=10 cerebro.mop --recipe recipe.yaml -j 2x2 --gpu 2"
    )
    job = re.search(r"slurm://torchx/(\d+)", said)
    assert job is not None, said
    say(f"torchx: job {job[1]}")
    project.wait_for_visits(20)
    say("torchx: requeued")
    slurm.run("scontrol", "requeue", job[1])
    project.wait_for_visits(20)
    project.quickly()
    slurm.until(lambda: not slurm.jobs(), "the run's end")
    return project


def left_behind(slurm: Slurm) -> Iterator[str]:
    """A sentence for each process and file that is left on a host."""
    for name, host in {"login": slurm.login, **slurm.nodes}.items():
        for line in host.run(["ps", "-e", "--no-headers", "-o", "stat,args"]).splitlines():
            if not line.startswith("Z") and "cerebro" in line.replace(str(slurm.folder), ""):
                yield f"{name}: a process is left: {line}"
        for file in host.run(
            ["find", "/tmp", "/dev/shm", "-mindepth", "1", "-not", "-path", f"{OWN}*"]
        ).split():
            if file != "/tmp/home" and not re.fullmatch("/tmp/torchinductor_[^/]*", file):  # torch's, empty
                yield f"{name}: a file is left: {file}"


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="where to leave everything, not below /tmp")
    options = parser.parse_args()
    out, began = Console(), time.monotonic()

    def say(text: str) -> None:
        out.print(f"{time.monotonic() - began:6.1f} s  {text.strip()}", highlight=False)

    for number in (signal.SIGINT, signal.SIGTERM):  # also in the background
        signal.signal(number, signal.default_int_handler)
    if (why := why_not()) is not None:
        out.print(why, highlight=False)
        return IMPOSSIBLE
    folder = options.folder or Path(tempfile.mkdtemp(prefix="cerebro-slurm-", dir="/var/tmp"))
    folder.mkdir(parents=True, exist_ok=True)
    with Slurm(folder.resolve(), NODES) as slurm:
        say(f"a Slurm cluster of {NODES} nodes runs")
        array, table = array_of_hosts(slurm, say)
        torchx = job_of_torchx(slurm, say)
        problems = list(left_behind(slurm))
    say("verifying and replaying")
    problems += [*array.problems(), *torchx.problems()]
    out.print(table)
    for problem in problems:
        out.print(f"WRONG: {problem}", style="red", highlight=False)
    out.print(f"all is left in {folder}" if problems else "both runs have survived")
    if not problems and not options.folder:
        shutil.rmtree(folder)
    return WRONG if problems else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; nothing runs any more")
