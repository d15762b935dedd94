"""The connection to a Ray cluster, and checks that it can run a run's hosts."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RuntimeEnvSetupError

from cerebro_elastic.extending.errors import RunError, install_extra

OLDEST, BELOW = (2, 50), (3, 0)
"""The supported versions of Ray."""
_ANSWER_SECONDS = 5.0
_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray sets this variable for the command of a submitted job."""


def check_version(version: str = ray.__version__) -> None:
    """Raise ``RunError`` for a Ray of another range of versions."""
    major, minor = (int(part) for part in version.split(".")[:2])
    if not OLDEST <= (major, minor) < BELOW:
        raise RunError(
            f"Ray {version} is installed, and this works with 2.50 and later versions of Ray 2: "
            f"{install_extra('ray')}"
        )


def check_address(address: str) -> None:
    """Raise ``RunError`` for an address through which no host of a run can be controlled."""
    if "://" in address:
        raise RunError(
            f"--address is {address!r}: run the command on a machine of the cluster (`auto`, or HOST:PORT of "
            "its head), or submit it: ray job submit -- cerebro ray ..."
        )


@contextmanager
def connected(address: str, working_dir: Path | None, excludes: list[str]) -> Iterator[None]:
    """A connection to the cluster at ``address``, by default the program's own if it has one already.

    Ray does not print the hosts' output: ``cerebro`` shows it.
    """
    if ray.is_initialized():
        if working_dir is not None:
            raise RunError(
                "this program is connected to Ray already: give the working directory to ray.init, or "
                "connect later"
            )
        yield
        return
    _check_answers(address)
    package = {} if working_dir is None else {"working_dir": str(working_dir), "excludes": excludes}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, runtime_env=package, log_to_driver=False, logging_level=logging.ERROR)
    except RuntimeEnvSetupError as exc:
        ray.shutdown()
        raise RunError(
            f"--working-dir {working_dir} cannot be copied to the cluster: "
            f"{_first_line(exc.__cause__ or exc)} A .gitignore or .rayignore in it leaves files out"
        ) from exc
    except (RayError, ConnectionError, RuntimeError, ValueError, OSError) as exc:
        raise RunError(
            f"no Ray cluster can be used at --address {address}: {_first_line(exc)}; start one with "
            "`ray start --head`, or name the head's HOST:PORT. One that requires a token needs "
            "RAY_AUTH_MODE=token here, and the token"
        ) from exc
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)  # Ray has installed one that ends the process at once
    try:
        yield
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Raise ``RunError`` if nobody listens at ``HOST:PORT``: Ray would try for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_SECONDS).close()
    except (OSError, ValueError, OverflowError) as exc:
        raise RunError(
            f"no Ray cluster can be used at --address {address}: {exc}; start one with `ray start --head`, "
            "or name the head's HOST:PORT"
        ) from exc


def project_of_job() -> bool:
    """Whether Ray has unpacked a working directory for this program and its hosts."""
    return "working_dir" in ray.get_runtime_context().runtime_env


def is_job() -> bool:
    """Whether this is the command of a submitted job, whose folder Ray deletes."""
    return _JOB in os.environ


def check_fits(resources: Mapping[str, float]) -> None:
    """Raise ``RunError`` if no machine of the cluster could ever run a host with these ``resources``."""
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    if any(all(machine.get(name, 0) >= need for name, need in resources.items()) for machine in machines):
        return
    sizes = sorted(
        {resources_text({name: machine.get(name, 0) for name in resources}) for machine in machines}
    )
    raise RunError(
        f"a host needs {resources_text(resources)}, and the machines of the cluster have "
        f"{' or '.join(sizes)}: change --cpus or --gpus, or add --wait if the cluster's autoscaler brings "
        "larger machines"
    )


def resources_text(resources: Mapping[str, float]) -> str:
    """``4 CPUs and 1 GPU``."""
    return " and ".join(f"{count:g} {name}{'' if count == 1 else 's'}" for name, count in resources.items())


def address_here() -> str:
    """This machine's address in the cluster."""
    address: Any = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return str(address)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
