"""A Slurm cluster on this machine: a login host, which controls it, and nodes, whose GPUs are none.

It needs Debian's packages ``slurm-wlm`` and ``munge``, and what hosts need.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from support import hosts
from support.hosts import Host, Hosts

T = TypeVar("T")
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "squeue", "sinfo")
CORES, GPUS, MEMORY_MB = 16, 4, 64_000
"""What each node has, as Slurm sees it. (The real machine has what it has.)"""
KILL_WAIT = 30
"""Slurm's default: seconds from SIGTERM to SIGKILL for a job that is cancelled, requeued or preempted."""
OWN = "/tmp/slurm"
"""The folder of a host's services, on its own disk."""
_CONF = """\
ClusterName=cerebro
SlurmctldHost=login
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={own}/munge.socket,cred_expire=5
StateSaveLocation={own}/state
SlurmdSpoolDir={own}/spool
SlurmctldPidFile={own}/slurmctld.pid
SlurmdPidFile={own}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=2,sched_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait={kill_wait}
SlurmdTimeout=10
ReturnToService=1
NodeName={nodes} CPUs={cores} RealMemory={memory_mb} Gres=gpu:{gpus}
PartitionName=all Nodes=ALL Default=YES PriorityTier=1 GraceTime={kill_wait}
PartitionName=urgent Nodes=ALL PriorityTier=2 PreemptMode=OFF
"""


def why_not() -> str | None:
    """Why there can be no such cluster here, and what to do; ``None`` if there can."""
    if any(shutil.which(program) is None for program in _PROGRAMS):
        return "Slurm is not installed: apt-get install slurm-wlm munge"
    if os.geteuid() != 0:
        return "slurmd needs root"
    return hosts.why_not()


class Job(NamedTuple):
    """A job, as Slurm has it."""

    state: str
    partition: str
    node: str
    """Its nodes; empty if it waits."""


class Slurm:
    """A cluster of ``number`` nodes, ``n1`` and on. What its hosts share lies in ``folder``, which is not
    below ``/tmp``. All is gone when the context ends."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self._hosts = Hosts(number + 1)
        self.login: Host = self._hosts[0]
        self.nodes: dict[str, Host] = {f"n{i}": self._hosts[i] for i in range(1, number + 1)}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._write_files()
            stack.enter_context(self._hosts)
            self._boot("login", self.login, "slurmctld")
            for name in self.nodes:
                self.boot(name)
            self.until(lambda: self.states().count("idle") == len(self.nodes), "idle nodes")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def boot(self, node: str) -> None:
        """Start the services of a host that runs."""
        self._boot(node, self.nodes[node], f"slurmd -N {node}")

    def popen(self, command: Sequence[str], **settings: Any) -> subprocess.Popen[bytes]:
        """Start a command on the login host."""
        return self.login.popen(command, self._env, **settings)

    def run(self, *command: str) -> str:
        """What a command prints on the login host."""
        return self.login.run(command, self._env)

    def states(self) -> list[str]:
        """The state of each node."""
        return self.run("sinfo", "--noheader", "--Node", "--format=%t", "--partition=all").split()

    def jobs(self) -> dict[str, Job]:
        """The jobs that have not ended, by their ids."""
        lines = self.run("squeue", "--noheader", "--array", "--format=%i|%T|%P|%N").splitlines()
        return {job: Job(*fields) for job, *fields in (line.split("|") for line in lines)}

    def until(self, condition: Callable[[], T], what: str, seconds: float = 180.0) -> T:
        """The condition's value, as soon as it is true."""
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}; see {self.folder}"
            time.sleep(0.2)
        return value

    @property
    def _env(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def _write_files(self) -> None:
        machine = {"cores": CORES, "gpus": GPUS, "memory_mb": MEMORY_MB, "kill_wait": KILL_WAIT}
        addresses = {"login": self.login.address, **{name: host.address for name, host in self.nodes.items()}}
        files = {
            "slurm.conf": _CONF.format(folder=self.folder, own=OWN, nodes=",".join(self.nodes), **machine),
            "gres.conf": f"Name=gpu File={OWN}/gpu[0-{GPUS - 1}]\n",
            "cgroup.conf": "CgroupPlugin=cgroup/v1\n",
            "hosts": "127.0.0.1 localhost\n" + "".join(f"{ip} {name}\n" for name, ip in addresses.items()),
        }
        for name, text in files.items():
            (self.folder / name).write_text(text)
        key = self.folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))

    def _boot(self, name: str, host: Host, service: str) -> None:
        """Give a host its name, the others' addresses, devices that Slurm takes for GPUs, and services."""
        munged = f"munged --num-threads=1 --key-file={self.folder}/munge.key --socket={OWN}/munge.socket"
        munged += "".join(f" --{what}-file={OWN}/munge.{what}" for what in ("pid", "log", "seed"))
        gpus = [f"{OWN}/gpu{index}" for index in range(GPUS)]
        steps = [
            f"hostname {name}",
            f"mount --bind {self.folder}/hosts /etc/hosts",
            f"mkdir -m 755 {OWN} {OWN}/state",
            *(f"touch {file} && mount --bind /dev/null {file}" for file in gpus),
            munged,
            service,
        ]
        host.run(["sh", "-c", " && ".join(steps)], self._env)
