"""Process groups that are formed in the process for one unit, and gone after it.

    store = group.listen("10.0.0.1")             # rank 0; tell the others its host and store.port
    store = group.connect("10.0.0.1", port)      # they
    with group.formed(store, rank, size, device):
        ...                                      # torch.distributed's default group

    group.sweep()                                # when nothing holds the unit's parts any more

Any number of them, one after the other, in one process. When a peer dies, the collectives of gloo fail
at once, the block ends with ``GroupBroken``, and the process can form its next group.
"""

from __future__ import annotations

import gc
import importlib
import os
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from cerebro_elastic.errors import GroupBroken, RanksApart, RankUnreachable
from cerebro_elastic.system.listening import interface_towards, listener_at, listening_address
from cerebro_elastic.training.parallel._torch_internals import (
    abort_groups,
    forget_failed_groups,
    forget_groups_of,
    patience_of_the_group,
    present_groups,
    set_patience_of_the_group,
)

FORM_SECONDS = 20.0
"""How long ranks wait for each other by default until they are all there."""
_CONNECT_TRIES = 5
"""How many times gloo tries to reach a rank that published its address and then died, each as long as the
timeout (torch 2.13)."""
COLLECTIVE_SECONDS = 600.0
"""How long one collective may take by default: a peer that lives but does nothing counts as lost then."""

_WAIT_SECONDS = 1.0

_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")

_SIGNS = ("gloo", "connection closed", "connection reset", "connection refused", "broken pipe")
"""Parts of the messages of collectives that failed because of a peer: gloo has no error class."""

_ended: list[Any] = []
"""Finished groups. The last owner of a group waits for its threads, which may be waiting for the
interpreter's lock: Python's own references release it, DDP's reducer would hold it for ever."""
_meshes: list[DeviceMesh] = []
"""The meshes of the present group. DTensor's caches keep some of them for good, and with them their groups,
whose sockets other ranks would take for a living peer."""
_unsettled = False
"""Whether something large has been imported since the last sweep."""


def _nothing() -> None:
    """The default callback: does nothing."""


def listen(host: str, *, timeout: float = FORM_SECONDS) -> TCPStore:
    """Rank 0's end of the meeting place, for ranks that reach this machine as ``host``: on a free port
    (``store.port``) of ``store.host``."""
    with _clear(f"{host} cannot be listened at"):
        try:
            address, listener = _listening(host)
        except OSError as exc:
            raise RankUnreachable(
                f"this node cannot listen at {host}, its own address: {exc}; give torchrun's --local-addr "
                "(PET_LOCAL_ADDR) an address of this machine, or put the name into /etc/hosts"
            ) from exc
        port = listener.getsockname()[1]
        # Given no socket, torch would listen on all interfaces.
        return TCPStore(
            address,
            port,
            is_master=True,
            wait_for_workers=False,
            timeout=timedelta(seconds=timeout),
            master_listen_fd=listener.detach(),
        )


def _listening(host: str) -> tuple[str, socket.socket]:
    """A socket for others, and the address or name at which they find it."""
    address = listening_address(host)
    if address is None:
        return host, socket.create_server(("", 0))
    return address, listener_at(address)


def connect(host: str, port: int, *, timeout: float = FORM_SECONDS) -> TCPStore:
    """The end of every other rank. Raises ``RankUnreachable`` if nobody listens there in time."""
    try:
        socket.getaddrinfo(host, port)  # torch would try an unknown name until the time is over
        with _clear(f"rank 0 does not answer at {host}:{port}"):
            return TCPStore(
                host, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=timeout)
            )
    except OSError as exc:
        raise RankUnreachable(
            f"the name {host!r} of the host of rank 0 is not known here ({exc}): put it into /etc/hosts or "
            "DNS, or give that node an address by torchrun's --local-addr (PET_LOCAL_ADDR)"
        ) from exc
    except GroupBroken as exc:
        raise RankUnreachable(str(exc)) from exc


@contextmanager
def formed(
    store: TCPStore,
    rank: int,
    size: int,
    device: torch.device,
    *,
    timeout: float = COLLECTIVE_SECONDS,
    patience: float = FORM_SECONDS,
    waiting: Callable[[], None] = _nothing,
) -> Iterator[None]:
    """The group of ``size`` ranks, this one being ``rank``, as torch's default group: gloo for tensors on the
    CPU, and its maker's backend (nccl, xccl, ...) for those on ``device`` if that is an accelerator.

    Raises ``GroupBroken`` if a rank does not come within ``patience`` seconds, or fails inside the block.
    ``waiting`` is called about once a second until all are there; its exceptions end the wait.
    """
    sweep()
    with _clear(f"rank {rank} of {size}"), _same_way(store):
        _meet(store, rank, size, patience, waiting)
        try:
            with _clear(f"rank {rank} of {size}"):
                _form(store, rank, size, device, timeout)
        except GroupBroken as exc:
            raise RanksApart(
                f"the ranks have met at {store.host}, and one of them cannot be reached by the others. Hosts "
                "whose nodes train a unit together must reach each other on all TCP ports: open them, or "
                f"leave `gang` out ({exc})"
            ) from exc
        try:
            yield
        finally:
            _end()


def warm() -> None:
    """Do the imports of the first unit of several ranks, which take seconds, ahead of it. A group of ranks
    clears the compiler's cache of rules."""
    for module in ("torch._dynamo.trace_rules", "torch.distributed.fsdp", "torch.distributed.tensor"):
        importlib.import_module(module)
    settle()


def settle() -> None:
    """Modules imported by now stay for good: ``sweep`` need not search them, which would take tenths of a
    second each time. In a unit this is postponed until ``sweep``, or the unit's objects would stay, too."""
    global _unsettled
    _unsettled = True
    if not dist.is_initialized():
        sweep()


def sweep() -> None:
    """Free the objects that units of several ranks leave in cycles: sharded tensors, and groups with threads
    and sockets.

    Milliseconds in a rank that is ``warm``.
    """
    global _unsettled
    gc.collect()
    _ended.clear()
    if _unsettled:
        _unsettled = False
        gc.freeze()


def let_go(error: BaseException) -> None:
    """Close the sockets of the group that broke with ``error``: peers would take them for a living rank, and
    wait for it. The frames of the error then no longer hold objects of the unit."""
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__ or cause.__context__
    sweep()


def together() -> None:
    """Check that all ranks are here; if one has left, this fails at once. It is called before a further group
    is made, which would wait for the missing rank as for a slow one."""
    dist.all_reduce(torch.zeros(()))


def subgroup(members: Sequence[int]) -> Any:
    """A group of some of the unit's ranks, as patient as theirs; every rank calls it."""
    together()
    return dist.new_group(members, timeout=patience_of_the_group())


def mesh(device: torch.device) -> DeviceMesh:
    """The unit's ranks in a row, for sharded tensors."""
    _meshes.append(init_device_mesh(device.type, (dist.get_world_size(),)))
    return _meshes[-1]


def _form(store: TCPStore, rank: int, size: int, device: torch.device, timeout: float) -> None:
    """All ranks are present, so this is quick; a rank that has died since is not waited for as long as a
    collective would wait. (With accelerators it may take seconds: their backend is initialised, too.)"""
    own = _backend_of(device)
    patience = FORM_SECONDS if own else FORM_SECONDS / _CONNECT_TRIES
    try:
        dist.init_process_group(
            f"cpu:gloo,{device.type}:{own}" if own else "gloo",
            store=store,
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=min(timeout, patience)),
            device_id=device if own else None,
        )
        set_patience_of_the_group(timedelta(seconds=timeout))
    except BaseException:
        forget_failed_groups()
        raise


def _backend_of(device: torch.device) -> str | None:
    """The backend for the accelerator's tensors (``nccl``, ``xccl``, ...); ``None`` for the CPU's own."""
    if device.type == "cpu":
        return None
    # The default would end the process when a collective takes too long.
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2")
    return dist.get_default_backend_for_device(device)


def abort(device: torch.device) -> None:
    """End the waits of this process's ranks in collectives, from another thread: backends of accelerators do
    not notice that a peer has died."""
    if dist.is_initialized():
        abort_groups(device)


@contextmanager
def _same_way(store: TCPStore) -> Iterator[None]:
    """Groups use the interface by which the ranks have met. By default gloo would listen at the address of
    the machine's own name, which ``/etc/hosts`` often maps to loopback, out of reach of other machines. The
    user's settings of interfaces take precedence."""
    interface = interface_towards(store.host, store.port)
    ours = {} if interface is None else {name: interface for name in _INTERFACES if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


def _end() -> None:
    _ended.extend(present_groups())
    for mesh in _meshes:
        forget_groups_of(mesh)
    _meshes.clear()
    dist.destroy_process_group()


def _meet(store: TCPStore, rank: int, size: int, patience: float, waiting: Callable[[], None]) -> None:
    """All are there: forming the group itself would wait as long as a collective may take."""
    store.set(f"here/{rank}", str(os.getpid()))
    deadline = time.monotonic() + patience
    for peer in range(size):
        with _clear(f"rank {rank} of {size}: rank {peer} did not come"):
            _await(store, f"here/{peer}", deadline, waiting)


def _await(store: TCPStore, key: str, deadline: float, waiting: Callable[[], None]) -> None:
    while not store.check([key]):
        left = deadline - time.monotonic()
        try:
            store.wait([key], timedelta(seconds=max(0.01, min(_WAIT_SECONDS, left))))
        except dist.DistStoreError:
            if left <= 0:
                raise
            waiting()


@contextmanager
def _clear(reason: str) -> Iterator[None]:
    """The border: torch's errors of a peer's doing in our words."""
    try:
        yield
    except dist.DistError as exc:
        raise GroupBroken(f"{reason}: {_first_line(exc)}; the unit can be tried again") from exc
    except RuntimeError as exc:
        if not any(sign in str(exc).lower() for sign in _SIGNS):
            raise
        raise GroupBroken(
            f"{reason}: a peer is gone: {_first_line(exc)}; the unit can be tried again"
        ) from exc


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
