"""The component of torchx ``cerebro.mop``: a recipe's run on a cluster.

A run is elastic hosts, each with the command ``cerebro host``: one node per device, and all may lead. Unless
an etcd is named, a first role serves one (``cerebro etcd``), which ends when the hosts have.
"""

import inspect
import math
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Annotated, Any, Dict, List, Optional, Tuple, get_args

from torchx import specs
from torchx.specs.finder import ComponentValidationException

from cerebro_elastic.config import settings_of_run
from cerebro_elastic.errors import CerebroError, RecipeError
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.recipes.fields import NodeRange, node_range
from cerebro_elastic.runs.folder import check_id
from cerebro_elastic.system.files import redacted

_SECRET = re.compile(
    r"SECRET|ACCESS_?KEY|API_?KEY|PASSWO?R?D$|(^|_)(PASS|PASSPHRASE|PW|PWD|TOKENS?|KEY|PAT|AUTH|LOGIN)$",
    re.IGNORECASE,
)
"""The names of variables that hold secrets. One that ends otherwise (``_FILE``) says where they are."""
_HARMLESS = frozenset({"CEREBRO_ETCD_KEY", "PWD"})
"""Names like those, of paths."""
_NODE_MB, _LEAD_MB, _ETCD_MB = 2048, 1024, 1024


@dataclass(frozen=True)
class _RoleTemplate:
    """The common settings of all roles of a job, as arguments of a component."""

    image: Annotated[str, "a container image with this package and your code"] = ""
    python: Annotated[str, "interpreter there, by default the present one; `python` in an image"] = ""
    env: Annotated[
        Optional[Dict[str, str]],
        "environment variables there; no secrets, because they are written down with the job",
    ] = None
    mounts: Annotated[Optional[List[str]], "mounts, as in type=bind,src=/host,dst=/job[,readonly]"] = None
    max_retries: Annotated[int, "how often the scheduler may start a lost machine again"] = 3

    def role(self, name: str, command: List[str], resource: specs.Resource, **settings: Any) -> specs.Role:
        """A role whose machines run ``command``."""
        return specs.Role(
            name=name,
            image=self.image,
            entrypoint=self.python or ("python" if self.image else sys.executable),
            args=command,
            env={**settings_of_run(os.environ), **(self.env or {})},
            resource=resource,
            max_retries=self.max_retries,
            retry_policy=specs.RetryPolicy.REPLICA,
            mounts=specs.parse_mounts(self.mounts) if self.mounts else [],
            **settings,
        )


@dataclass(frozen=True)
class _HostOptions:
    """Options of ``cerebro host`` that are passed on, as arguments of a component."""

    epochs: Annotated[Optional[int], "epochs, instead of the recipe's"] = None
    checkpoints: Annotated[Optional[str], "URL for checkpoints and logs, instead of the recipe's"] = None
    grace: Annotated[
        float, "seconds in which nodes leave when a host is stopped; Slurm and Kubernetes wait 30 s for that"
    ] = 25.0
    home: Annotated[Optional[str], "folder of runs there, by default $CEREBRO_HOME, else ./runs"] = None
    reuse: Annotated[bool, "take over what earlier runs of the folder of runs have trained"] = False
    verbose: Annotated[bool, "every epoch of every config, and the optimality gap"] = False

    def overrides(self) -> Dict[str, Any]:
        """Values that replace the recipe's."""
        given = {"epochs": _whole("epochs", self.epochs), "checkpoints": self.checkpoints}
        return {key: value for key, value in given.items() if value is not None}

    def words(self) -> List[str]:
        """The options, but ``home``."""
        replaced = [word for key, value in self.overrides().items() for word in (f"--{key}", str(value))]
        flags = [f"--{name}" for name in ("reuse", "verbose") if getattr(self, name)]
        return ["--grace", f"{self.grace:g}", *replaced, *flags]


def _of_fields(group: Any) -> Iterator[Tuple[str, Any, Any, str]]:
    for each in fields(group):
        kind, text = get_args(each.type)
        yield each.name, kind, each.default, text


def _taken(group: Any, options: Dict[str, Any]) -> Any:
    """Take the options of the ``group`` out of those of a call."""
    return group(**{each.name: options.pop(each.name) for each in fields(group) if each.name in options})


def _with_arguments(
    *arguments: Tuple[str, Any, Any, str],
) -> Callable[[Callable[..., specs.AppDef]], Callable[..., specs.AppDef]]:
    """Give a component these arguments (name, type, default, help) in place of its ``**options``. torchx
    takes arguments from the signature, and their descriptions from the docstring."""

    def changed(component: Callable[..., specs.AppDef]) -> Callable[..., specs.AppDef]:
        own = inspect.signature(component)
        *parameters, _ = own.parameters.values()
        lines = [inspect.cleandoc(component.__doc__ or "")]
        for name, kind, default, text in arguments:
            parameters.append(
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            )
            lines.append(f"    {name}: {text}".replace("%", "%%"))  # argparse formats it
        component.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        component.__doc__ = "\n".join(lines)
        return component

    return changed


@_with_arguments(*_of_fields(_HostOptions), *_of_fields(_RoleTemplate))
def mop(
    recipe: str,
    j: Optional[str] = None,
    run_id: Optional[str] = None,
    nodes: Optional[str] = None,
    etcd: Optional[str] = None,
    etcd_port: int = 0,
    h: Optional[str] = None,
    cpu: int = 0,
    gpu: int = 0,
    memMB: int = 0,
    **options: Any,
) -> specs.AppDef:
    """Train the configs of a recipe by Model Hopper Parallelism, on hosts that come and go.

    The job ends with the leaderboard and the places of best checkpoint and report. A run that has ended is
    not run again: the job shows its results.

    Args:
        recipe: the recipe's path, here and on the hosts
        j: [MIN:]HOSTSxNODES, one node per device of a host; by default the recipe's nodes, each a host
        run_id: the run's id, by default the recipe's name
        nodes: number of nodes, or MIN:MAX, instead of the recipe's; each is a host (else: j)
        etcd: HOST:PORT of an etcd, by default the recipe's; without one, one is served for this run
        etcd_port: its port then; by default one that is free here
        h: a named resource of a host, instead of cpu, gpu and memMB
        cpu: cores of a host, by default as many as its nodes use and one
        gpu: GPUs of a host
        memMB: memory of a host in MB, by default 2048 for each node and 1024
    """
    of_host: _HostOptions = _taken(_HostOptions, options)
    template: _RoleTemplate = _taken(_RoleTemplate, options)
    try:
        job = _checked_job(recipe, j, run_id, nodes, of_host)
        _check_env(template.env or {})
        _check_numbers(etcd_port, of_host.grace)
    except CerebroError as error:  # torchx shows it as one message, without a traceback
        raise ComponentValidationException(str(error)) from error
    _note_accounting()
    common = [*_submitted(), *(["--home", of_host.home] if of_host.home else [])]
    roles = []
    address = etcd or job.recipe.etcd
    if address is None:
        # First, for torchx names the first role's host to all others.
        port = etcd_port or _free_port()
        served = _cerebro("etcd", job.run, "--port", str(port), "--listen", "0.0.0.0", *common)
        smallest = specs.Resource(cpu=1, gpu=0, memMB=_ETCD_MB)
        roles.append(template.role("etcd", served, smallest, port_map={"etcd": port}))
        address = f"@{specs.macros.rank0_env}:{port}"
    size = ["--hosts", str(job.hosts), "--nodes", str(job.nodes_each)]
    words = [*size, "--etcd", address, "--run-id", job.run, *common, *of_host.words()]
    resource = specs.resource(cpu=cpu or job.cores, gpu=gpu, memMB=memMB or job.memory_mb, h=h)
    number = {"min_replicas": job.hosts.min, "num_replicas": job.hosts.max}
    roles.append(template.role("hosts", _cerebro("host", recipe, *words), resource, **number))
    return specs.AppDef(name=job.run, roles=roles)


@dataclass(frozen=True)
class _Job:
    """The checked request of ``mop``."""

    recipe: Recipe
    """The recipe, with replaced values."""
    run: str
    hosts: NodeRange
    nodes_each: int
    """Nodes of a host."""

    @property
    def cores(self) -> int:
        """Cores that a host needs: those of its nodes, and one for the rest."""
        node = self.recipe.node
        return node.threads * node.ranks * self.nodes_each + 1

    @property
    def memory_mb(self) -> int:
        """Memory that a host needs, in MB."""
        return _NODE_MB * self.nodes_each + _LEAD_MB


def _checked_job(
    recipe: str, j: Optional[str], run_id: Optional[str], nodes: Optional[str], of_host: _HostOptions
) -> _Job:
    overrides = of_host.overrides()
    size = _hosts(j, nodes)
    if size is not None:  # the recipe's gangs may need as many
        overrides["nodes"] = size[0].times(size[1])
    elif nodes is not None:
        overrides["nodes"] = nodes
    checked = load_recipe(recipe, **overrides)
    run = checked.name if run_id is None else run_id
    check_id(run)
    return _Job(checked, run, *(size or (checked.nodes._replace(auto=False), 1)))


def _hosts(j: Optional[str], nodes: Optional[str]) -> Optional[tuple[NodeRange, int]]:
    """The number of hosts, and the nodes of each, if ``j`` says so."""
    if j is not None and nodes is not None:
        raise RecipeError(f"-j {j} and --nodes {nodes} both give the number of nodes: keep one")
    if j is None:
        return None
    match = re.fullmatch(r"(\d+(?::\d+)?)x(\d+)", j)
    try:
        if match is not None and int(match[2]) > 0:
            return node_range(match[1]), int(match[2])
    except ValueError:
        pass
    raise RecipeError(f"-j is {j!r}: expected [MIN:]HOSTSxNODES, such as 2x1 or 2:8x4")


def _check_env(env: Dict[str, str]) -> None:
    for name, value in env.items():
        named = _SECRET.search(name) and not name.upper().endswith(("_FILE", "_PATH", "_DIR"))
        if (named and name not in _HARMLESS) or redacted(value) != value:
            sign = "name" if named else "its form"
            raise RecipeError(
                f"--env {name}: its value, a secret by {sign}, would be written down with the job. Leave it "
                "to the environment of the hosts, to their role (AWS), or to a mounted file, which "
                "CEREBRO_ETCD_PASSWORD_FILE, CEREBRO_RUN_KEY_FILE or AWS_SHARED_CREDENTIALS_FILE names"
            )


def _whole(name: str, value: object) -> Optional[int]:
    """The number: torchx 0.7 gives it as text if the argument may be absent."""
    try:
        return None if value is None else int(str(value))
    except ValueError:
        raise RecipeError(f"--{name} is {value!r}: expected a whole number") from None


def _check_numbers(port: int, grace: float) -> None:
    if not 0 <= port <= 65535:
        raise RecipeError(f"--etcd_port is {port}: a port is a number up to 65535")
    if not 0 <= grace < math.inf:
        raise RecipeError(f"--grace is {grace:g}: give seconds, 0 or more")


def _note_accounting() -> None:
    """Warn beforehand that torchx, which calls Slurm's accounting, will end with a traceback here."""
    if shutil.which("sbatch") is None:
        return
    with suppress(FileNotFoundError):
        if not subprocess.run(["sacct", "--noheader"], capture_output=True, check=False).returncode:
            return
    print(
        "note: this machine has no Slurm accounting (sacct). When a job is submitted to Slurm, torchx ends "
        "with a traceback: the job runs all the same, and `squeue` shows it",
        file=sys.stderr,
    )


def _submitted() -> List[str]:
    return ["--submitted-by", f"{os.getpid()}@{socket.gethostname()}"]


def _cerebro(*words: str) -> List[str]:
    return ["-m", "cerebro_elastic.cli", *words]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
