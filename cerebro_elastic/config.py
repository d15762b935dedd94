"""How a process reaches the store: a frozen value that checks itself, and its way through the environment.

The password and the run's key are handed on by environment or file only: they are kept out of ``repr``, keys
and command lines.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from cerebro_elastic.errors import RunError, StoreError, did_you_mean
from cerebro_elastic.registry import names
from cerebro_elastic.system.addresses import is_loopback
from cerebro_elastic.system.run_key import RunKey

GRACE = 10.0
"""The default for the seconds that a node has to leave."""
A_DAY = 86_400.0
"""Seconds within which any unit is finished."""
DECIDING_SECONDS = 5.0
"""The default seconds for which a check of a record makes decisions again."""

_ENV = "CEREBRO_ETCD_"
_UNIX = "unix:"
_GATEWAY = "gateway"


_OF_RUN = ("CEREBRO_CHECK", "CEREBRO_FORKSERVER", "CEREBRO_PATIENCE")
_OF_MACHINE = {"CEREBRO_FORKSERVER": "off"}
"""The only value of these that holds for other machines: a server is of this one."""


def settings_of_run(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that hold for all hosts of a run, for launchers that start hosts on other machines. Each
    machine has the others for itself."""
    given = {name: env[name] for name in _OF_RUN if env.get(name)}
    return {name: value for name, value in given.items() if _OF_MACHINE.get(name, value) == value}


def cache_folder(env: Mapping[str, str]) -> Path:
    """The folder for this host's copies of remote files."""
    return Path(env.get("CEREBRO_CACHE") or "~/.cache/cerebro").expanduser()


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """Where etcd is and how to log in. Raises ``StoreError`` for wrong settings.

    Example:
        >>> settings = StoreSettings(endpoints=("etcd-0:2379", "etcd-1:2379"), patience=30.0)
        >>> settings.tls
        False
    """

    endpoints: tuple[str, ...]
    """The servers of one etcd as ``HOST:PORT`` (IPv6: ``[::1]:2379``) or ``unix:/SOCKET``, tried in turn."""
    driver: str = _GATEWAY
    """etcd's JSON gateway over HTTP, or one of the entry points ``cerebro.drivers``."""
    ca: Path | None = None
    """PEM file of the authorities to trust, for TLS; ``None``: the usual ones."""
    cert: Path | None = None
    """PEM file of our certificate. TLS is used if ``ca`` or ``cert`` is given, and with an etcd of the run's
    own (``store/client/certificate.py``)."""
    key: Path | None = None
    """PEM file of the certificate's key."""
    user: str | None = None
    """The login's user; ``None``: no login."""
    password: str | None = field(default=None, repr=False)
    """The login's password."""
    run_key: RunKey | None = field(default=None, repr=False)
    """The key of the run in this store; it signs the run's values, and opens an etcd of the run's own."""
    patience: float = 10.0
    """Seconds for which an operation is repeated before the store counts as unavailable."""

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise StoreError("no etcd endpoint is given: give at least one HOST:PORT, such as 127.0.0.1:2379")
        for endpoint in self.endpoints:
            check_endpoint(endpoint)
        if self.driver != _GATEWAY and self.driver not in (drivers := names("cerebro.drivers")):
            raise StoreError(
                f"etcd driver {self.driver!r} is not known: {did_you_mean(self.driver, drivers)}; "
                f"set {_ENV}DRIVER to one of them, or leave it out for the gateway"
            )
        for name in ("ca", "cert", "key"):
            self._check_file(name)
        if (self.cert is None) != (self.key is None):
            raise StoreError(
                "a client certificate needs its key and a key its certificate: give both or none"
            )
        if (self.user is None) != (self.password is None):
            raise StoreError(
                f"user is {self.user!r}: give both user and password, or none for etcd without login"
            )
        if not self.patience > 0:
            raise StoreError(f"patience is {self.patience!r} seconds: it must be more than 0")

    def __str__(self) -> str:
        return f"etcd at {', '.join(self.endpoints)}"

    def _check_file(self, name: str) -> None:
        path = getattr(self, name)
        if path is None:
            return
        if not os.access(path, os.R_OK):
            raise StoreError(f"the etcd TLS file {name} = {path} cannot be read: give a PEM file that exists")
        # A child process may have another working directory.
        object.__setattr__(self, name, Path(path).absolute())

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted with the files that are given."""
        return self.ca is not None or self.cert is not None

    @property
    def encryption(self) -> str:
        """``tls`` in words, for messages."""
        if not self.tls:
            return "without TLS"
        return "with TLS and a certificate" if self.cert else "with TLS and without a certificate"

    @property
    def trusted(self) -> bool:
        """Whether etcd itself keeps strangers from writing: clients have a certificate. A login does not: a
        stranger can switch it off in etcds up to 3.4.41, 3.5.27 and 3.6.8 (GHSA-q8m4-xhhv-38mg)."""
        return self.cert is not None

    @property
    def servers(self) -> list[tuple[str, int]]:
        """The endpoints that are not Unix sockets, as host and port."""
        return [host_port(endpoint) for endpoint in self.endpoints if socket_path(endpoint) is None]

    @property
    def loopback(self) -> bool:
        """Whether only this machine can be reached by these endpoints."""
        return all(is_loopback(host) for host, _ in self.servers)

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> StoreSettings:
        """Settings from ``CEREBRO_ETCD_ENDPOINTS`` (comma-separated), ``_DRIVER``, ``_CA``, ``_CERT``,
        ``_KEY``, ``_USER``, ``_PASSWORD`` and ``_PATIENCE``; an empty variable counts as absent. Instead
        of the password itself, ``_PASSWORD_FILE`` may name a file that holds it: a mounted secret. The run's
        key comes from ``CEREBRO_RUN_KEY``, or the file that ``CEREBRO_RUN_KEY_FILE`` names."""
        source = os.environ if env is None else env
        variables = {
            name.removeprefix(_ENV).lower(): value
            for name, value in source.items()
            if name.startswith(_ENV) and value
        }
        if "endpoints" not in variables:
            raise StoreError(
                f"{_ENV}ENDPOINTS is not set: set it to etcd's HOST:PORT (several separated by commas)"
            )
        return cls(
            endpoints=tuple(part.strip() for part in variables["endpoints"].split(",")),
            driver=variables.get("driver", _GATEWAY),
            ca=_path(variables.get("ca")),
            cert=_path(variables.get("cert")),
            key=_path(variables.get("key")),
            user=variables.get("user"),
            password=variables.get("password") or _secret(variables.get("password_file")),
            run_key=RunKey.from_env(source),
            patience=_seconds(variables.get("patience", "10")),
        )

    @classmethod
    def at(cls, endpoints: str) -> StoreSettings:
        """Settings of the etcd at these ``endpoints`` (comma-separated); all else comes from the
        environment."""
        return cls.from_env({**os.environ, f"{_ENV}ENDPOINTS": endpoints})

    def to_env(self) -> dict[str, str]:
        """The variables from which ``from_env`` makes these settings again. Holds secrets: for the
        environment of a child process only."""
        given = {"endpoints": ",".join(self.endpoints)}
        for name in ("driver", "ca", "cert", "key", "user", "password", "patience"):
            if (value := getattr(self, name)) is not None:
                given[name] = str(value)
        ours = {_ENV + name.upper(): value for name, value in given.items()}
        return {**ours, **(self.run_key.to_env() if self.run_key else {})}


def check_endpoint(endpoint: str) -> None:
    """Raise ``StoreError`` unless it is ``HOST:PORT``, or ``unix:`` and the absolute path of a socket."""
    if socket_path(endpoint) is None:
        host_port(endpoint)


def socket_path(endpoint: str) -> str | None:
    """The path of the Unix socket; ``None`` for another endpoint."""
    return endpoint.removeprefix(_UNIX) if endpoint.startswith(f"{_UNIX}/") else None


def socket_endpoint(path: Path) -> str:
    """The endpoint of the Unix socket at the absolute ``path``."""
    return f"{_UNIX}{path}"


def host_port(endpoint: str) -> tuple[str, int]:
    """The parts of ``HOST:PORT``; raises ``StoreError`` for anything else."""
    try:
        parts = urlsplit(f"//{endpoint}")
        if parts.hostname and parts.port and parts.netloc == endpoint and "@" not in endpoint:
            return parts.hostname, parts.port
    except ValueError:
        pass
    raise StoreError(
        f"etcd endpoint {endpoint.rpartition('@')[2]!r} is not HOST:PORT: give a name or address (IPv6 in "
        "brackets) and a port from 1 to 65535, without http://, such as 127.0.0.1:2379 or [fd00::1]:2379"
    )


def seconds_from(env: Mapping[str, str], name: str) -> float | None:
    """The seconds that a variable gives, ``None`` if it is absent or empty; ``RunError`` for anything else
    than a finite number of at least 0."""
    return _number_from(env, name, "a number of seconds of at least 0, such as 30")


def price_from(env: Mapping[str, str]) -> float | None:
    """The price of an hour of a node of this machine; ``None`` and ``RunError`` as ``seconds_from``."""
    wanted = "the price of an hour of a node of this machine, a number of at least 0, such as 0.35"
    return _number_from(env, "CEREBRO_PRICE_PER_NODE_HOUR", wanted)


def _number_from(env: Mapping[str, str], name: str, wanted: str) -> float | None:
    text = env.get(name)
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise RunError(f"{name} is {text!r}: give {wanted}")
    return number


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text).expanduser()


def _secret(file: str | None) -> str | None:
    """The text of the file, without a newline at its end."""
    if file is None:
        return None
    try:
        return Path(file).expanduser().read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as exc:
        raise StoreError(
            f"{_ENV}PASSWORD_FILE = {file} cannot be read: name a file that holds the password"
        ) from exc


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise StoreError(f"{_ENV}PATIENCE is {text!r}: give a number of seconds, such as 10") from None
