"""Components of torchx: ``cerebro.mop``, a recipe's run on a cluster, and ``cerebro.prepare``, its data.

A run is elastic hosts, each with the command ``cerebro host``: one node per device, and all may lead. Unless
an etcd is named, a first role serves one (``cerebro etcd``), which ends when the hosts have.
"""

import inspect
import math
import os
import re
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

from torchx import specs
from torchx.specs.finder import ComponentValidationException

from cerebro_elastic.data.preparing.settings import prepare_options
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


def mop(
    recipe: str,
    j: Optional[str] = None,
    run_id: Optional[str] = None,
    nodes: Optional[str] = None,
    epochs: Optional[int] = None,
    checkpoints: Optional[str] = None,
    etcd: Optional[str] = None,
    etcd_port: int = 0,
    h: Optional[str] = None,
    cpu: int = 0,
    gpu: int = 0,
    memMB: int = 0,
    image: str = "",
    python: str = "",
    env: Optional[Dict[str, str]] = None,
    mounts: Optional[List[str]] = None,
    max_retries: int = 3,
    grace: float = 30.0,
    home: Optional[str] = None,
    verbose: bool = False,
) -> specs.AppDef:
    """Train the configs of a recipe by Model Hopper Parallelism, on hosts that come and go.

    The job ends with the leaderboard and the places of best checkpoint and report. A run that has ended is
    not run again: the job shows its results.

    Args:
        recipe: the recipe's path, here and on the hosts
        j: [MIN:]HOSTSxNODES, one node per device of a host; by default the recipe's nodes, each a host
        run_id: the run's id, by default the recipe's name
        nodes: number of nodes, or MIN:MAX, instead of the recipe's; each is a host (else: j)
        epochs: epochs, instead of the recipe's
        checkpoints: URL for checkpoints and logs, instead of the recipe's
        etcd: HOST:PORT of an etcd, by default the recipe's; if there is none, one is served for this run
        etcd_port: its port then; by default one that is free here
        h: a named resource of a host, instead of cpu, gpu and memMB
        cpu: cores of a host, by default as many as its nodes use and one
        gpu: GPUs of a host
        memMB: memory of a host in MB, by default 2048 for each node and 1024
        image: a container image with this package and the recipe's project
        python: the interpreter on the hosts, by default the present one; `python` in an image
        env: environment variables of the hosts; no secrets, which would be written down with the job
        mounts: mounts, as in type=bind,src=/host,dst=/job[,readonly]
        max_retries: how often the scheduler may start a lost host again
        grace: seconds in which nodes leave when a host is stopped
        home: folder of runs on the hosts, by default $CEREBRO_HOME, else ./runs
        verbose: every epoch of every config, and the optimality gap
    """
    try:
        job = _checked_job(recipe, j, run_id, nodes, epochs, checkpoints)
        _check_env(env or {})
        _check_numbers(etcd_port, grace)
    except CerebroError as error:  # of which torchx makes one message, and no traceback
        raise ComponentValidationException(str(error)) from error
    template = _RoleTemplate(image, python, env or {}, mounts or [], max_retries)
    common = [*_submitted(), *(["--home", home] if home else [])]
    roles = []
    address = etcd or job.recipe.etcd
    if address is None:
        # First, for torchx names the first role's host to all others.
        port = etcd_port or _free_port()
        roles.append(_etcd_role(template, job.run, port, common))
        address = f"@{specs.macros.rank0_env}:{port}"
    options = ["--etcd", address, "--run-id", job.run, "--grace", f"{grace:g}", *common, *job.options]
    options += ["--verbose"] if verbose else []
    resource = specs.resource(cpu=cpu or job.cores, gpu=gpu, memMB=memMB or job.memory_mb, h=h)
    roles.append(_hosts_role(template, recipe, job, options, resource))
    return specs.AppDef(name=job.run, roles=roles)


_PREPARE_OPTIONS = {
    option.name.replace("-", "_"): option
    for option in prepare_options()
    if option.key not in ("partitions", "workers", "share")
}
"""The options of ``cerebro prepare`` that the component does not settle itself."""


def _with_options(component: Callable[..., specs.AppDef]) -> Callable[..., specs.AppDef]:
    """The component with these arguments in place of its ``**options``. torchx takes arguments from the
    signature, and what they are from the docstring."""
    own = inspect.signature(component)
    *arguments, _ = own.parameters.values()
    lines = [inspect.cleandoc(component.__doc__ or "")]
    for name, option in _PREPARE_OPTIONS.items():
        kind = {list[str]: List[str], dict[str, str]: Dict[str, str]}.get(option.kind, option.kind)
        argument = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option.default)
        arguments.append(argument.replace(annotation=Optional[kind] if option.default is None else kind))
        lines.append(f"    {name}: {option.help}".replace("%", "%%"))  # argparse formats it
    component.__signature__ = own.replace(parameters=arguments)  # type: ignore[attr-defined]
    component.__doc__ = "\n".join(lines)
    return component


@_with_options
def prepare(
    source: str,
    to: str,
    partitions: int,
    j: int = 1,
    h: Optional[str] = None,
    cpu: int = 2,
    memMB: int = 4096,
    image: str = "",
    python: str = "",
    env: Optional[Dict[str, str]] = None,
    mounts: Optional[List[str]] = None,
    max_retries: int = 3,
    **options: Any,
) -> specs.AppDef:
    """Prepare a dataset on a machine (`cerebro prepare`), or row by row with a function of yours on several.

    Args:
        source: a path or URL of data, or module:function; the same on all machines
        to: where the dataset goes: a URL or folder that all machines reach
        partitions: number of training partitions
        j: number of machines; several need rows
        h: a named resource of a machine, instead of cpu and memMB
        cpu: cores of a machine, and processes that make rows
        memMB: memory of a machine in MB
        image: a container image with this package and your function
        python: the interpreter on the machines, by default the present one; `python` in an image
        env: environment variables of the machines; no secrets, which would be written down with the job
        mounts: mounts, as in type=bind,src=/host,dst=/job[,readonly]
        max_retries: how often the scheduler may start a lost machine again
    """
    rows = options.get("rows")
    try:
        _check_env(env or {})
        if rows is None and j > 1:
            raise RecipeError(f"-j is {j}: machines share rows that a function makes: name it by --rows")
    except CerebroError as error:
        raise ComponentValidationException(str(error)) from error
    words = ["--partitions", str(partitions)]
    if rows:
        words += ["--workers", str(cpu), "--share", f"{specs.macros.replica_id}/{j}"]
    for name, value in options.items():
        option = _PREPARE_OPTIONS[name]
        if isinstance(value, dict):
            value = [f"{column}={text}" for column, text in value.items()]
        if value != option.default:
            for item in value if isinstance(value, list) else [value]:
                words += [f"--{option.name}", str(item)]
    command = _cerebro("prepare", source, to, *words, *_submitted())
    resource = specs.resource(cpu=cpu, gpu=0, memMB=memMB, h=h)
    template = _RoleTemplate(image, python, env or {}, mounts or [], max_retries)
    return specs.AppDef(name="prepare", roles=[template.role("prepare", command, resource, num_replicas=j)])


@dataclass(frozen=True)
class _Job:
    """What ``mop`` was asked for, checked."""

    recipe: Recipe
    """The recipe, with what replaces its values."""
    run: str
    hosts: NodeRange
    nodes_each: int
    """Nodes of a host."""
    options: List[str]
    """The options of ``cerebro host`` that replace values of the recipe."""

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
    recipe: str,
    j: Optional[str],
    run_id: Optional[str],
    nodes: Optional[str],
    epochs: Optional[int],
    checkpoints: Optional[str],
) -> _Job:
    given = {"nodes": nodes, "epochs": _whole("epochs", epochs), "checkpoints": checkpoints}
    overrides: Dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    size = _hosts(j, nodes)
    if size is not None:  # the recipe's gangs may need as many
        overrides["nodes"] = size[0].times(size[1])
    checked = load_recipe(recipe, **overrides)
    run = checked.name if run_id is None else run_id
    check_id(run)
    hosts, nodes_each = size or (checked.nodes, 1)
    options = []
    for key in ("epochs", "checkpoints"):
        options += [f"--{key}", str(overrides[key])] if key in overrides else []
    return _Job(checked, run, hosts, nodes_each, options)


@dataclass(frozen=True)
class _RoleTemplate:
    """What all roles of a job have in common."""

    image: str
    """The container image, or "" without one."""
    python: str
    """The interpreter, or "" for the usual one."""
    env: Dict[str, str]
    """Environment variables."""
    mounts: List[str]
    """Mounts, as torchx parses them."""
    max_retries: int
    """How often the scheduler may start a lost machine again."""

    def role(self, name: str, command: List[str], resource: specs.Resource, **settings: Any) -> specs.Role:
        """A role whose machines run ``command``."""
        return specs.Role(
            name=name,
            image=self.image,
            entrypoint=self.python or ("python" if self.image else sys.executable),
            args=command,
            env=dict(self.env),
            resource=resource,
            max_retries=self.max_retries,
            retry_policy=specs.RetryPolicy.REPLICA,
            mounts=specs.parse_mounts(self.mounts) if self.mounts else [],
            **settings,
        )


def _etcd_role(template: _RoleTemplate, run: str, port: int, common: List[str]) -> specs.Role:
    """The role of the run's own etcd."""
    command = _cerebro("etcd", run, "--port", str(port), "--listen", "0.0.0.0", *common)
    resource = specs.Resource(cpu=1, gpu=0, memMB=_ETCD_MB)
    return template.role("etcd", command, resource, port_map={"etcd": port})


def _hosts_role(
    template: _RoleTemplate, recipe: str, job: _Job, options: List[str], resource: specs.Resource
) -> specs.Role:
    """The role of the hosts, which train and lead."""
    size = ["--hosts", str(job.hosts), "--nodes", str(job.nodes_each)]
    command = _cerebro("host", recipe, *size, *options)
    return template.role("hosts", command, resource, min_replicas=job.hosts.min, num_replicas=job.hosts.max)


def _hosts(j: Optional[str], nodes: Optional[str]) -> Optional[tuple[NodeRange, int]]:
    """The number of hosts, and the nodes of each, if ``j`` says so."""
    if j is not None and nodes is not None:
        raise RecipeError(f"-j {j} and --nodes {nodes} both say how many nodes there are: keep one")
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


def _submitted() -> List[str]:
    return ["--submitted-by", f"{os.getpid()}@{socket.gethostname()}"]


def _cerebro(*words: str) -> List[str]:
    return ["-m", "cerebro_elastic.cli", *words]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
