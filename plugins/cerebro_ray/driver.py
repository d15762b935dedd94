"""``run``: a recipe's run on the machines of a Ray cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ray.exceptions import RayError

from cerebro_elastic.extending.errors import RunError
from cerebro_elastic.extending.running import (
    ENDED,
    GRACE,
    NodeRange,
    RunFolder,
    RunResult,
    StoreSettings,
    Watcher,
    check_id,
    end_of,
    home_of,
    interrupts_at_rest,
    keep_record,
    load_recipe,
    node_range,
    run_folder,
    settings_of_run,
    store_for_hosts,
)
from cerebro_ray.cluster import (
    address_here,
    check_address,
    check_fits,
    check_version,
    connected,
    is_job,
    project_of_job,
)
from cerebro_ray.host_actor import HostCommand
from cerebro_ray.slots import Hosts, Slot

_POLL_SECONDS = 0.2
_MARGIN = 20.0
"""Seconds that hosts have to end, beyond the grace of their nodes."""
_END_SECONDS = 60.0
"""How long hosts may take to write their reports after the run's end."""


def run(
    recipe: str | Path,
    *,
    run_id: str | None = None,
    hosts: str | None = None,
    nodes: int | None = None,
    cpus: int | None = None,
    gpus: int = 0,
    address: str = "auto",
    working_dir: str | Path | None = None,
    wait: bool = False,
    home: str | Path | None = None,
    etcd: str | None = None,
    epochs: int | None = None,
    checkpoints: str | None = None,
    grace: float = GRACE,
    reuse: bool = False,
    verbose: bool = False,
    watcher: Watcher | None = None,
) -> RunResult:
    """Run a recipe on a Ray cluster, or continue an unfinished run of it.

    Each host is an actor that Ray places where it fits, and that runs ``cerebro host``. Machines may come and
    go. ``KeyboardInterrupt`` stops the run cleanly.

    Args:
        recipe: A YAML file; with ``working_dir`` one in that folder.
        run_id: The run's id, by default the recipe's name.
        hosts: Number of hosts, or MIN:MAX, by default the recipe's nodes.
        nodes: Nodes of each host, by default one for each of its GPUs.
        cpus: CPUs of each host, by default as many as its nodes use.
        gpus: GPUs of each host.
        address: The cluster: HOST:PORT of its head, or ``auto`` for the one of this machine or job.
        working_dir: The project's folder, which Ray copies to the machines. Without it the recipe's folder is
            one that all machines see.
        wait: Whether to wait until the autoscaler brings larger machines than the cluster has.
        home: The folder of runs, on each machine, by default ``$CEREBRO_HOME``, else ``./runs``.
        etcd: HOST:PORT of an etcd, by default the recipe's, else one that this process starts.
        epochs: Epochs of each config, instead of the recipe's.
        checkpoints: URL of the checkpoints, instead of the recipe's.
        grace: Seconds that the nodes of a host have to leave.
        reuse: Whether configs that earlier runs of the home have trained begin where these left them: of the
            home on the machine of the first host.
        verbose: Whether a host reports every epoch.
        watcher: Called with each line of output.

    Raises:
        RecipeError: The recipe is wrong.
        RunError: The cluster cannot be used, or the hosts have failed.
    """
    watcher = watcher or Watcher()
    check_version()
    check_address(address)
    given = {"epochs": epochs, "checkpoints": checkpoints}
    replaced = {key: value for key, value in given.items() if value is not None}
    nodes = _at_least("nodes", nodes if nodes is not None else max(1, gpus), 1)
    size = None if hosts is None else _range(hosts)
    at_once = {} if size is None else {"nodes": size.times(nodes)}  # the recipe's gangs may need as many
    checked = load_recipe(recipe, **replaced, **at_once)  # type: ignore[arg-type]
    run_id = checked.name if run_id is None else run_id
    check_id(run_id)
    size = size or checked.nodes._replace(auto=False)
    cpus = _at_least(
        "cpus", cpus if cpus is not None else checked.node.threads * checked.node.ranks * nodes, 1
    )
    resources = {"CPU": float(cpus), **({"GPU": float(gpus)} if _at_least("gpus", gpus, 0) else {})}
    folder = _project_folder(recipe, working_dir)
    if is_job() and home is None and "CEREBRO_HOME" not in os.environ:
        raise RunError(
            "Ray deletes the folder of a job: name one for the run that stays, by --home or CEREBRO_HOME"
        )
    place = home_of(home).resolve()
    with connected(address, folder, _excluded(place, folder)):
        if not wait:
            check_fits(resources)
        if folder is None and project_of_job():
            folder = Path.cwd()
        where = etcd or checked.etcd
        with store_for_hosts(run_id, here=address_here(), etcd=where, home=place) as store:
            endpoints = ",".join(store.endpoints)
            watcher.say(f"etcd of run {run_id} is {endpoints}: cerebro status {run_id} --etcd {endpoints}")
            options = ["--etcd", endpoints, "--hosts", str(size), "--nodes", str(nodes)]
            options += ["--grace", f"{grace:g}", *_words(replaced), *(["--verbose"] if verbose else [])]
            options += ["--reuse"] * reuse
            command = HostCommand(
                recipe=_named(recipe, folder), run=run_id, home=str(place), options=options, env=_env(store)
            )
            slots = [Slot(f"{run_id}-host-{i}", resources, command) for i in range(size.max)]
            record = run_folder(run_id, place)
            checked = load_recipe(checked, nodes=size.times(nodes))
            with end_of(run_id, store) as ended, Hosts(slots, watcher.say) as group:
                if ended():
                    watcher.say(ENDED.format(run=run_id))
                else:
                    _watch(group, ended, grace)
                return keep_record(record, store, checked) if ended() else _result(group, record)


def _watch(group: Hosts, ended: Callable[[], bool], grace: float) -> None:
    """Keep the hosts running until the run has ended."""
    try:
        with interrupts_at_rest(0.0) as look:
            while not group.over and not ended():
                group.step()
                look()
                time.sleep(_POLL_SECONDS)
            deadline = time.monotonic() + _END_SECONDS
            while group.running and time.monotonic() < deadline:
                group.finish()
                look()
                time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        group.leave(grace + _MARGIN)
        raise
    except (RayError, ConnectionError) as exc:
        raise RunError(
            f"the Ray cluster is out of reach ({type(exc).__name__}); what was committed is safe, and the "
            "same command continues once it is back"
        ) from exc


def _result(group: Hosts, folder: RunFolder) -> RunResult:
    """The result of a run whose end is not in this etcd."""
    if group.error:
        raise RunError(
            f"no host can take part in run {folder.run!r} any more; one ended with:\n{group.error}"
        )
    if folder.history.exists():  # it had ended before, with another etcd
        return RunResult(folder)
    raise RunError(f"all hosts have left run {folder.run!r}, as requested; the same command continues")


def _project_folder(recipe: str | Path, working_dir: str | Path | None) -> Path | None:
    """The folder for Ray to copy, which must have the recipe."""
    if working_dir is None:
        return None
    folder = Path(working_dir).resolve()
    if not folder.is_dir():
        raise RunError(f"--working-dir is {working_dir}: name a folder of this machine, such as .")
    if not Path(recipe).resolve().is_relative_to(folder):
        raise RunError(
            f"{recipe} is not in --working-dir {folder}, of which Ray copies the files to the machines: name "
            "a folder that has both recipe and modules"
        )
    return folder


def _excluded(home: Path, folder: Path | None) -> list[str]:
    """Paths that Ray must not copy: runs would change the project at each start."""
    if folder is None or not home.is_relative_to(folder) or home == folder:
        return []
    return [f"/{home.relative_to(folder)}"]


def _named(recipe: str | Path, folder: Path | None) -> str:
    """The recipe's path on the hosts."""
    path = Path(recipe).resolve()
    return str(path) if folder is None else str(path.relative_to(folder))


def _env(store: StoreSettings) -> dict[str, str]:
    """The environment variables of a host: how it reaches etcd, and the settings of the run. The key is
    passed by its content: other machines do not have its file."""
    key = store.run_key
    reached = replace(store, run_key=None if key is None else replace(key, file=None)).to_env()
    return {**settings_of_run(os.environ), **reached}


def _words(replaced: dict[str, int | str]) -> Sequence[str]:
    return [word for key, value in replaced.items() for word in (f"--{key}", str(value))]


def _range(hosts: str) -> NodeRange:
    try:
        return node_range(hosts)
    except ValueError:
        raise RunError(f"--hosts is {hosts!r}: give a number, or a range MIN:MAX such as 2:8") from None


def _at_least(option: str, value: int, least: int) -> int:
    if value < least:
        raise RunError(f"--{option} is {value}: give a number from {least} on")
    return value
