"""An etcd server of a run's own, on a Unix socket: started again if it dies, stopped at the end."""

from __future__ import annotations

import errno
import json
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from urllib3 import HTTPConnectionPool
from urllib3.exceptions import HTTPError

from cerebro_elastic.config import StoreSettings, socket_endpoint
from cerebro_elastic.errors import CerebroError, DiskFull, StoreError
from cerebro_elastic.store.client.etcd_program import check_version, find_etcd, launch, perhaps_packaged, stop
from cerebro_elastic.store.client.gateway import UnixSocketPool
from cerebro_elastic.system.addresses import is_loopback, with_port, without_brackets
from cerebro_elastic.system.files import as_its_folder, private_folder
from cerebro_elastic.system.process import is_locked
from cerebro_elastic.system.run_key import RunKey

# A single etcd waits for no other member: it starts in 0.15 s instead of 0.7 s, and leases of 1 s hold.
_FAST = ["--heartbeat-interval", "50", "--election-timeout", "250"]
_START_SECONDS, _POLL_SECONDS = 30.0, 0.01
_ANSWER_SECONDS, _LOCK_SECONDS, _TAIL_LINES = 1.0, 1.0, 10
_AGAIN_SECONDS, _LONGEST_AGAIN_SECONDS = 0.1, 10.0
# Room for some millions of units. The history of the last 100 000 transactions is kept on disk, for processes
# that were away. In memory etcd keeps all since a snapshot, by default as many.
_ROOM = [
    *("--quota-backend-bytes", str(8 << 30)),
    *("--auto-compaction-mode", "revision", "--auto-compaction-retention", "100000"),
    *("--snapshot-count", "5000"),
]
# Sockets in etcd's working directory: etcd before 3.5.13 takes no paths, and insists on a port in the name.
_CLIENTS, _PEERS = "clients:0", "peers:0"
_TLS = "tls"
"""The folder of certificates, in the same place."""

# etcd's words, of 3.4 and from 3.5 on, for data of a later version.
_DOWNGRADE = "cannot be downgraded", "invalid downgrade"

_WHAT = "give an address of this machine, a name that leads to one, or for all 0.0.0.0, with IPv6 ::"


@dataclass(frozen=True, slots=True)
class Listen:
    """Where clients of other machines are served."""

    host: str
    """An address of this machine, or a name that leads to one; 0.0.0.0 or :: for all addresses."""
    port: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "host", without_brackets(self.host))

    def __str__(self) -> str:
        return with_port(self.host, self.port)

    def urls(self) -> list[str]:
        """The addresses for etcd to listen on. Raises ``StoreError`` if this machine cannot listen there."""
        addresses = self._addresses()
        for family, address in addresses:
            self._check(family, address)
        if not any(is_loopback(address[0]) == is_loopback(self.host) for _, address in addresses):
            raise StoreError(
                f"{self.host!r} leads to {addresses[0][1][0]}, which no other machine reaches: {_WHAT}"
            )
        return [f"https://{_in_url(address[0])}:{self.port}" for _, address in addresses]

    def _addresses(self) -> list[tuple[int, tuple[Any, ...]]]:
        try:
            found = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
            )
        except (OSError, UnicodeError) as exc:
            raise StoreError(
                f"etcd cannot listen on {self.host!r}, which is neither an address nor a known name "
                f"({getattr(exc, 'strerror', None) or exc}): {_WHAT}; the port is a separate option"
            ) from exc
        return list(dict.fromkeys((int(family), address) for family, _, _, _, address in found))

    def _check(self, family: int, address: tuple[Any, ...]) -> None:
        try:
            with socket.socket(family) as probe:
                # As etcd does: connections that are just ending do not count.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as exc:
            match exc.errno:
                case errno.EADDRINUSE:
                    advice = "stop the program that uses it, or give another port"
                case errno.EADDRNOTAVAIL | errno.EAFNOSUPPORT:
                    advice = f"it is no address of this machine; {_WHAT}"
                case errno.EACCES:
                    advice = "give a port from 1024 on"
                case _:
                    advice = _WHAT
            raise StoreError(
                f"port {self.port} of {address[0]} cannot be taken for etcd ({exc.strerror}): {advice}"
            ) from exc


class EmbeddedEtcd:
    """A context manager that runs etcd over ``data_dir``; its log is ``etcd.log`` beside that folder.

    It continues where an earlier one over the same ``data_dir`` ended. If it dies it is started again at
    once; clients that wait a second do not notice. It dies with this process.

    This user's processes on this machine reach it by a Unix socket in ``data_dir``, or in a private temporary
    folder where that is impossible. It has no port, unless ``listen`` names one.

    Args:
        listen: Where other machines are served, by TLS. They need a certificate made from the ``key``.

    Raises:
        StoreError: It cannot start.
        DiskFull: No space for its data is left.
        StoreRefused: The etcd program is too old.
    """

    def __init__(self, data_dir: Path, key: RunKey | None = None, listen: Listen | None = None) -> None:
        if listen is not None and key is None:
            raise StoreError(f"etcd cannot listen on {listen} without a key: everybody could write there")
        self.data_dir = data_dir.absolute()
        self.log = self.data_dir.parent / "etcd.log"
        self._folder = self.data_dir
        self._key = key
        self._listen = listen
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        state = f"at {self._folder}, pid {self.pid}" if self._process else "not running"
        return f"<EmbeddedEtcd over {self.data_dir} {state}>"

    @property
    def settings(self) -> StoreSettings:
        """How to reach it on this machine."""
        return StoreSettings(endpoints=(socket_endpoint(self._folder / _CLIENTS),), run_key=self._key)

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
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def _supervise(self, started: Future[None]) -> None:
        try:
            self._start_first()
        except BaseException as exc:  # __enter__ raises it
            started.set_exception(exc)
            return
        started.set_result(None)
        pause = _AGAIN_SECONDS
        while not self._stopped.wait(_POLL_SECONDS):
            if self._process is not None and self._process.poll() is None:
                pause = _AGAIN_SECONDS
                continue
            # The reason is in its log; clients wait for it, and say so.
            with suppress(CerebroError, OSError):
                self._start(find_etcd())
                continue
            self._stopped.wait(pause)
            pause = min(2 * pause, _LONGEST_AGAIN_SECONDS)
        self._end()
        self._tidy()

    def _start_first(self) -> None:
        binary = find_etcd()
        with _disk_full_raised(self.data_dir):
            private_folder(self.data_dir)
            _check_unlocked(self.data_dir)
            self._folder = folder_for_sockets(self.data_dir, _CLIENTS)
            try:
                self._start(binary)
            except BaseException:
                self._tidy()
                raise

    def _start(self, binary: Path) -> None:
        """Start a server; returns when it is healthy."""
        self._remove_sockets()  # of one that was killed: etcd 3.4 does not replace them
        arguments = self._arguments()
        with open(self.log, "ab", opener=as_its_folder) as log:
            log_start = log.tell()
            self._process = launch([str(binary), *arguments], log.fileno(), self._folder)
        try:
            self._wait_healthy(binary, self._process, log_start)
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            stop(process)

    def _tidy(self) -> None:
        """Remove the files that are useless without a server."""
        if self._folder != self.data_dir:
            shutil.rmtree(self._folder, ignore_errors=True)
            return
        self._remove_sockets()
        shutil.rmtree(self._folder / _TLS, ignore_errors=True)

    def _remove_sockets(self) -> None:
        for name in (_CLIENTS, _PEERS):
            (self._folder / name).unlink(missing_ok=True)

    def _arguments(self) -> list[str]:
        client, peer = f"unix://{_CLIENTS}", f"unix://{_PEERS}"
        urls = [] if self._listen is None else self._listen.urls()
        # By the token the cluster of each data folder has its own id.
        token = uuid.uuid4().hex
        return [
            *("--name", "cerebro", "--data-dir", str(self.data_dir), *_FAST, *_ROOM),
            *("--listen-client-urls", ",".join([client, *urls]), "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"cerebro={peer}", "--initial-cluster-token", token),
            *self._tls_arguments(),
        ]

    def _tls_arguments(self) -> list[str]:
        if self._listen is None or self._key is None:
            return []
        # Imported here: a run without a port does without.
        from cerebro_elastic.store.client.certificate import CertificateFiles

        folder = self._folder / _TLS
        private_folder(folder)
        files = CertificateFiles.write(self._key, folder)
        return [
            *("--client-cert-auth", "--trusted-ca-file", str(files.authority)),
            *("--cert-file", str(files.certificate), "--key-file", str(files.private_key)),
        ]

    def _wait_healthy(self, binary: Path, process: subprocess.Popen[bytes], log_start: int) -> None:
        deadline = time.monotonic() + _START_SECONDS
        with UnixSocketPool(str(self._folder / _CLIENTS)) as etcd:
            while time.monotonic() < deadline:
                if process.poll() is not None:
                    raise self._death(binary, process.returncode, self._log_since(log_start))
                if _is_healthy(etcd, binary):
                    return
                time.sleep(_POLL_SECONDS)
        raise StoreError(
            f"etcd over {self.data_dir} was not healthy within {_START_SECONDS:g} s; the end of {self.log}:\n"
            f"{_tail(self._log_since(log_start))}"
        )

    def _death(self, binary: Path, status: int, log: str) -> CerebroError:
        """The cause of a server's end at its start."""
        if "no space left on device" in log:
            return _disk_full(self.data_dir)
        if any(words in log for words in _DOWNGRADE):
            return StoreError(
                f"{binary} is older than the etcd that wrote {self.data_dir}, and cannot continue it: set "
                f"CEREBRO_ETCD to that one{perhaps_packaged()}"
            )
        return StoreError(
            f"etcd over {self.data_dir} ended at once, status {status}; the end of {self.log}:\n{_tail(log)}"
        )

    def _log_since(self, start: int) -> str:
        with self.log.open("rb") as log:
            log.seek(start)
            return log.read().decode(errors="replace")


def _is_healthy(etcd: HTTPConnectionPool, binary: Path) -> bool:
    """Whether ``etcd`` answers, and can write; ``StoreRefused`` if it is too old."""
    try:
        if _answer(etcd, "/health").get("health") != "true":
            return False
        version = str(_answer(etcd, "/version")["etcdserver"])
    except (HTTPError, ValueError, KeyError, AttributeError):
        return False
    check_version(version, str(binary), f"set CEREBRO_ETCD to a later one{perhaps_packaged()}")
    return True


def _answer(etcd: HTTPConnectionPool, path: str) -> dict[str, Any]:
    response = etcd.urlopen("GET", path, retries=False, timeout=_ANSWER_SECONDS)
    answer: dict[str, Any] = json.loads(response.data)
    return answer


def _check_unlocked(data_dir: Path) -> None:
    """Raise ``StoreError`` if a live etcd uses ``data_dir``; one that is just ending is given a moment."""
    database = data_dir / "member" / "snap" / "db"  # etcd holds a flock while it is open
    deadline = time.monotonic() + _LOCK_SECONDS
    while is_locked(database):
        if time.monotonic() > deadline:
            raise StoreError(
                f"another etcd that is running uses {data_dir}: stop the run that it belongs to, "
                f"or take another folder"
            )
        time.sleep(_POLL_SECONDS)


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


def _in_url(address: str) -> str:
    return f"[{address.replace('%', '%25')}]" if ":" in address else address


def folder_for_sockets(beside: Path, name: str) -> Path:
    """``beside``, if it can have a socket ``name``, else a new private folder among the temporary ones.

    Paths of sockets may have about a hundred bytes, and some file systems have no sockets. Raises
    ``StoreError`` if no place exists.
    """
    if _can_have(beside, name):
        return beside
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")):
        with suppress(OSError):
            folder = Path(tempfile.mkdtemp(prefix="cerebro-etcd-", dir=parent))
            if _can_have(folder, name):
                return folder
            folder.rmdir()
    raise StoreError(
        f"neither {beside} nor {tempfile.gettempdir()} can have a Unix socket: set TMPDIR to a folder "
        "with a short path (up to 70 bytes, no comma) on a file system that has sockets"
    )


def _can_have(folder: Path, name: str) -> bool:
    path = str(folder / name)
    if "," in path or not path.isprintable():  # endpoints are written in a row, with commas between them
        return False
    (folder / name).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.bind(path)
        except OSError as exc:
            if exc.errno == errno.ENOSPC:
                raise
            return False
    (folder / name).unlink()
    return True
