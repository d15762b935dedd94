"""The server: imports the modules of a host's processes, then forks a keeper for each request."""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from cerebro_elastic.registry import importing_users
from cerebro_elastic.system.forkserver.keeper import keep, run
from cerebro_elastic.system.forkserver.messages import (
    FORK_OF,
    Imports,
    Request,
    address,
    receive_request,
    send,
)
from cerebro_elastic.system.process import die_with_parent, thread_names

_REQUEST_SECONDS = 10.0


def main(path: str, parent: int, modules: Sequence[str]) -> None:
    """Serve on the Unix socket ``path`` until the process ``parent`` ends. In a child: run the request, and
    return."""
    request = _serve(path, parent, modules)
    # At the bottom of the stack: the child unwinds nothing of the server.
    run(request)


def _serve(path: str, parent: int, modules: Sequence[str]) -> Request:
    """Import and fork for ever. Returns in a child, with its request."""
    # A batch system sends it to all processes of a job. The forks end with this process, and need time.
    signal.signal(signal.SIGTERM, lambda *_: None)
    die_with_parent(parent)
    with socket.socket(socket.AF_UNIX) as listener:
        new_path = f"{path}.{os.getpid()}"
        with address(new_path) as new:
            listener.bind(new)
        listener.listen(64)  # clients that connect meanwhile wait for the imports
        os.rename(new_path, path)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        spoilt = _load(modules)
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(_REQUEST_SECONDS)
                try:
                    received = receive_request(connection) if _is_ours(connection) else None
                except (OSError, ValueError):
                    received = None
                match received:
                    case Imports() as imports, files:
                        _print_to(files)
                        spoilt = _load(imports.modules, imports.root)
                    case Request() as request, files:
                        request = replace(request, env={**request.env, FORK_OF: path})
                        if _fork(connection, listener, request, files, spoilt):
                            return request


def _load(modules: Sequence[str], root: str = "") -> str | None:
    """Import the modules. A module that cannot be imported is left to the processes that need it: they report
    why. Returns the reason why forks cannot use accelerators, if any."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a module may start a process and wait for it
    gc.disable()  # collections would take time, and find nothing
    search_path = list(sys.path)
    if root:
        sys.path[:] = [root, *sys.path, os.getcwd()]
    for module in modules:
        began = time.monotonic()
        with suppress(Exception, SystemExit), importing_users():
            importlib.import_module(module)
        print(f"imported {module} in {time.monotonic() - began:.2f} s", file=sys.stderr, flush=True)
    sys.path[:] = search_path
    gc.enable()
    gc.freeze()  # a collection in a child would copy the pages of all of it
    spoilt = "an import has used an accelerator" if _has_spoilt_accelerators() else None
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers report to their clients
    return spoilt


def _print_to(files: Sequence[int]) -> None:
    """From now on print to the second and third file, earlier output first."""
    if stat.S_ISREG(os.fstat(2).st_mode):
        with open("/proc/self/fd/2", "rb") as printed, open(files[2], "ab", closefd=False) as log:
            shutil.copyfileobj(printed, log)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)


def _fork(
    connection: socket.socket,
    listener: socket.socket,
    request: Request,
    files: list[int],
    spoilt: str | None,
) -> bool:
    """Fork a keeper for the request that came by ``connection``. It ends with this process. Returns whether
    this is the child."""
    reason = spoilt or _unsafe()
    if reason is None:
        server = os.getpid()
        if os.fork() == 0:
            die_with_parent(server)
            listener.close()
            connection.settimeout(None)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return keep(connection, request, files)
    else:
        print(f"forked nothing: {reason}", file=sys.stderr, flush=True)
        with suppress(OSError):
            send(connection, {"refused": reason})
    for file in files:
        os.close(file)
    return False


def _is_ours(connection: socket.socket) -> bool:
    """Whether the other side is a process of this user."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    return bool(user == os.getuid())


def _has_spoilt_accelerators() -> bool:
    """Whether a fork could not use accelerators: an import has used them, perhaps only to count them. Only a
    fork can find out. Each maker's module of torch has the function."""
    modules = vars(sys.modules.get("torch", object)).values()
    asked = [
        getattr(module, "__dict__", {})["_is_in_bad_fork"]
        for module in modules
        if "_is_in_bad_fork" in getattr(module, "__dict__", {})  # torch.ops would make up an attribute
    ]
    if not asked:
        return False
    child = os.fork()
    if child == 0:
        os._exit(int(any(check() for check in asked)))
    return os.waitpid(child, 0)[1] != 0


def _unsafe() -> str | None:
    """Why this process must not be forked. A fork has one thread: locks that others hold stay locked."""
    threads = thread_names()
    return f"an import has started {len(threads)} threads: {', '.join(threads)}" if threads else None


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
