"""An etcd server for one machine: started on free loopback ports, started again if it dies, stopped at the
end."""

from __future__ import annotations

import errno
import fcntl
import json
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from urllib3 import HTTPConnectionPool
from urllib3.exceptions import HTTPError

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import CerebroError, DiskFull, StoreError
from cerebro_elastic.files import as_its_folder, private_folder
from cerebro_elastic.run_key import RunKey
from cerebro_elastic.store.client.cluster import LOGIN
from cerebro_elastic.store.client.etcd_program import find_etcd, launch, perhaps_packaged, stop
from cerebro_elastic.store.client.versions import check_version

# A single etcd waits for no other member: it starts in 0.15 s instead of 0.7 s, and leases of 1 s hold.
_FAST = ["--heartbeat-interval", "50", "--election-timeout", "250"]
_START_SECONDS, _POLL_SECONDS = 30.0, 0.01
_LOCK_SECONDS, _PORT_TRIES, _TAIL_LINES = 1.0, 5, 10
_AGAIN_SECONDS, _LONGEST_AGAIN_SECONDS = 0.1, 10.0
# Room for some millions of units. The history of the last 100 000 transactions is kept on disk, for processes
# that were away. In memory etcd keeps all since a snapshot, by default as many.
_ROOM = [
    *("--quota-backend-bytes", str(8 << 30)),
    *("--auto-compaction-mode", "revision", "--auto-compaction-retention", "100000"),
    *("--snapshot-count", "5000"),
]

# etcd's words, of 3.4 and from 3.5 on, for data of a later version.
_DOWNGRADE = "cannot be downgraded", "invalid downgrade"
# Passwords that are keys need no slow hash. A simple token is made in no time.
_LOGINS = ["--bcrypt-cost", "4", "--auth-token", "simple"]


class EmbeddedEtcd:
    """A context manager that runs etcd over ``data_dir``; its log is ``etcd.log`` beside that folder.

    It goes on where an earlier one over the same ``data_dir`` ended. If it dies it is started again on the
    same port at once; clients that wait a second do not notice. It dies with this process.

    Args:
        data_dir: The folder of etcd's data.
        port: The port for clients; by default a free one.
        listen: The address of this machine on which clients are served. 0.0.0.0 serves those of other
            machines, without TLS.
        key: The run's key, whose login it demands; ``None``: it serves every client.

    Raises:
        StoreError: It cannot start.
        DiskFull: There is no space for its data.
        StoreRefused: The etcd program is too old.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int | None = None,
        listen: str = "127.0.0.1",
        key: RunKey | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.log = data_dir.parent / "etcd.log"
        self.port = port or 0
        self._fixed_port = port is not None
        self._listen = listen
        self._key = key
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        state = f"on port {self.port}, pid {self.pid}" if self._process else "not running"
        return f"<EmbeddedEtcd over {self.data_dir} {state}>"

    @property
    def settings(self) -> StoreSettings:
        """How to reach it."""
        return StoreSettings(endpoints=(f"127.0.0.1:{self.port}",), run_key=self._key)

    @property
    def pid(self) -> int:
        """The server's process id; ``StoreError`` if it does not run."""
        if self._process is None:
            raise StoreError(f"etcd over {self.data_dir} does not run: enter it as a context manager")
        return self._process.pid

    def __enter__(self) -> Self:
        started: Future[None] = Future()
        self._stopped.clear()
        # Its own thread, since the kernel ends a process with the thread that started it.
        self._thread = threading.Thread(target=self._supervise, args=(started,), name="etcd", daemon=True)
        self._thread.start()
        try:
            started.result()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def _supervise(self, started: Future[None]) -> None:
        try:
            self._start_anywhere()
        except BaseException as exc:  # __enter__ raises it
            started.set_exception(exc)
            return
        started.set_result(None)
        pause = _AGAIN_SECONDS
        while not self._stopped.wait(_POLL_SECONDS):
            if self._process is not None and self._process.poll() is None:
                pause = _AGAIN_SECONDS
                continue
            # What is in the way is in its log; clients wait for it, and say so.
            with suppress(CerebroError, OSError):
                if self._start(find_etcd()):
                    continue
            self._stopped.wait(pause)
            pause = min(2 * pause, _LONGEST_AGAIN_SECONDS)
        self._end()

    def _start_anywhere(self) -> None:
        """Start a server on the given port, or on a free one."""
        binary = find_etcd()
        with _disk_full_raised(self.data_dir):
            private_folder(self.data_dir)
            _check_unlocked(self.data_dir)
            for _ in range(_PORT_TRIES):
                if not self._fixed_port:
                    self.port = _free_port()
                if self._start(binary):
                    return
        raise StoreError(f"etcd found no free port in {_PORT_TRIES} tries: see {self.log}, then try again")

    def _start(self, binary: Path) -> bool:
        """Start a server. Returns whether it is healthy: ``False`` if another process took a port before."""
        if self._fixed_port:
            _check_port(self._listen, self.port)
        # The name distinguishes this server from another that took the port in the meantime.
        name = f"cerebro-{uuid.uuid4().hex}"
        with open(self.log, "ab", opener=as_its_folder) as log:
            log_start = log.tell()
            self._process = launch([str(binary), *self._arguments(name)], log.fileno())
        try:
            ours = self._wait_healthy(binary, self._process, name, log_start)
            if ours and self._key is not None:
                self._demand_login(self._key)
        except BaseException:
            self._end()
            raise
        if not ours:
            self._end()
        return ours

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            stop(process)

    def _arguments(self, name: str) -> list[str]:
        served, client = (f"http://{host}:{self.port}" for host in (self._listen, "127.0.0.1"))
        peer = f"http://127.0.0.1:{_free_port()}"
        return [
            *("--name", name, "--data-dir", str(self.data_dir), *_FAST, *_ROOM, *_LOGINS),
            *("--listen-client-urls", served, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"{name}={peer}"),
        ]

    def _wait_healthy(
        self, binary: Path, process: subprocess.Popen[bytes], name: str, log_start: int
    ) -> bool:
        deadline = time.monotonic() + _START_SECONDS
        with HTTPConnectionPool("127.0.0.1", self.port) as etcd:
            while time.monotonic() < deadline:
                if process.poll() is not None:
                    return self._explain_death(binary, process.returncode, self._log_since(log_start))
                member = _healthy_member(etcd, binary)
                if member is not None:
                    return member == name
                time.sleep(_POLL_SECONDS)
        raise StoreError(
            f"etcd over {self.data_dir} was not healthy within {_START_SECONDS:g} s; the end of {self.log}:\n"
            f"{_tail(self._log_since(log_start))}"
        )

    def _demand_login(self, key: RunKey) -> None:
        """Switch logins on: from now on only holders of the key may read and write."""
        with HTTPConnectionPool("127.0.0.1", self.port) as etcd:
            ask = partial(_ask, etcd)
            login = {"name": LOGIN, "password": key.password}
            if "token" not in (answer := ask("authenticate", login)):
                if "not enabled" not in str(answer):
                    raise StoreError(
                        f"etcd over {self.data_dir} asks for the login of another key than the one here: put "
                        "the run's own key back, or start the run anew with --fresh"
                    )
                ask("user/add", login)
                ask("user/changepw", login)  # an earlier start may have been cut off
                ask("user/grant", {"user": LOGIN, "role": "root"})
                ask("enable", {})
                answer = ask("authenticate", login)
            users = ask("user/list", {}, str(answer.get("token"))).get("users")
        if users != [LOGIN]:  # others have added users before us
            raise StoreError(f"etcd over {self.data_dir} has the users {users}, and must have {LOGIN} alone")

    def _explain_death(self, binary: Path, status: int, log: str) -> bool:
        if "address already in use" in log:
            return False
        if "no space left on device" in log:
            raise _disk_full(self.data_dir)
        if any(words in log for words in _DOWNGRADE):
            raise StoreError(
                f"{binary} is older than the etcd that wrote {self.data_dir}, and cannot go on with it: set "
                f"CEREBRO_ETCD to that one{perhaps_packaged()}"
            )
        raise StoreError(
            f"etcd over {self.data_dir} ended at once, status {status}; the end of {self.log}:\n{_tail(log)}"
        )

    def _log_since(self, start: int) -> str:
        with self.log.open("rb") as log:
            log.seek(start)
            return log.read().decode(errors="replace")


def _healthy_member(etcd: HTTPConnectionPool, binary: Path) -> str | None:
    """The name of the healthy ``etcd``, if there is one; ``StoreRefused`` if it is too old."""
    try:
        if _answer(etcd, "GET", "/health", 1.0).get("health") != "true":
            return None
        version = str(_answer(etcd, "GET", "/version", 1.0)["etcdserver"])
        check_version(version, str(binary), f"set CEREBRO_ETCD to a later one{perhaps_packaged()}")
        (member,) = _answer(etcd, "POST", "/v3/cluster/member/list", 1.0, {})["members"]
        return str(member["name"])
    except (HTTPError, ValueError, KeyError, AttributeError):
        return None


def _ask(etcd: HTTPConnectionPool, what: str, body: Mapping[str, str], token: str = "") -> dict[str, Any]:
    """What etcd answers about its users, also where it refuses. Raises ``StoreError`` if it does not."""
    try:
        return _answer(etcd, "POST", f"/v3/auth/{what}", _START_SECONDS, body, token)
    except (HTTPError, ValueError) as exc:
        raise StoreError(f"etcd on port {etcd.port} does not answer to auth/{what}: {exc}") from exc


def _answer(
    etcd: HTTPConnectionPool,
    method: str,
    path: str,
    seconds: float,
    body: Mapping[str, str] | None = None,
    token: str = "",
) -> dict[str, Any]:
    response = etcd.urlopen(
        method,
        path,
        None if body is None else json.dumps(body).encode(),
        {"Authorization": token} if token else {},
        retries=False,
        timeout=seconds,
    )
    answer: dict[str, Any] = json.loads(response.data)
    return answer


def _check_port(listen: str, port: int) -> None:
    with socket.socket() as probe:
        # As etcd does: connections that are just ending do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((listen, port))
        except OSError as exc:
            raise StoreError(
                f"port {port} for etcd cannot be taken ({exc.strerror}): stop what uses it, or give another"
            ) from exc


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _check_unlocked(data_dir: Path) -> None:
    """Raise ``StoreError`` if a live etcd uses ``data_dir``; one that is just ending is given a moment."""
    database = data_dir / "member" / "snap" / "db"
    deadline = time.monotonic() + _LOCK_SECONDS
    while _is_locked(database):
        if time.monotonic() > deadline:
            raise StoreError(
                f"another etcd that is running uses {data_dir}: stop the run that it belongs to, "
                f"or take another folder"
            )
        time.sleep(_POLL_SECONDS)


def _is_locked(database: Path) -> bool:
    # etcd's database holds a flock while it is open.
    try:
        with database.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextmanager
def _disk_full_raised(data_dir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        if exc.errno != errno.ENOSPC:
            raise
        raise _disk_full(data_dir) from exc


def _disk_full(data_dir: Path) -> DiskFull:
    return DiskFull(
        f"no space left for etcd's data at {data_dir}: it takes about 130 MB to begin with; free some space "
        f"or take another folder, then run again"
    )


def _tail(log: str) -> str:
    return "\n".join(log.splitlines()[-_TAIL_LINES:])
