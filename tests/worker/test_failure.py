"""Which kind of failure an exception is: whose fault, and what it costs."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from cerebro_elastic.core.model.attempts import Attempt, FailureKind
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.errors import (
    CheckpointError,
    DamagedCheckpoint,
    DamagedData,
    DataError,
    DiskFull,
    StorageError,
)
from cerebro_elastic.system.explanations import message_of
from cerebro_elastic.worker.failure import failure_of


class Speechless(RuntimeError):
    def __str__(self) -> str:
        raise AttributeError("code")

    __repr__ = RuntimeError.__repr__


KINDS = [
    (StorageError("away"), FailureKind.STORAGE),
    (DataError("a shard is damaged at its source"), FailureKind.STORAGE),
    (DamagedData("a shard is damaged here"), FailureKind.DAMAGED_DATA),
    (DiskFull("full"), FailureKind.DISK_FULL),
    (OSError(errno.ENOSPC, "the user's own file"), FailureKind.DISK_FULL),
    (OSError(errno.EDQUOT, "the user's own file"), FailureKind.DISK_FULL),
    (CheckpointError("cannot be made again"), FailureKind.EXCEPTION),
    (DamagedCheckpoint("found so"), FailureKind.EXCEPTION),
    (OSError(errno.EPIPE, "the user's own socket"), FailureKind.EXCEPTION),
    (MemoryError(), FailureKind.OUT_OF_MEMORY),
    (RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. "), FailureKind.CRASH),
    (RuntimeError("DataLoader worker (pid(s) 7, 8) exited unexpectedly"), FailureKind.CRASH),
    (RuntimeError("of the user's own"), FailureKind.EXCEPTION),
    (Speechless(), FailureKind.EXCEPTION),
]


@pytest.mark.parametrize(("error", "kind"), KINDS, ids=[repr(error) for error, _ in KINDS])
def test_each_exception_has_its_kind(error: Exception, kind: FailureKind) -> None:
    failure = failure_of(Attempt(Unit("c", 0, 0), "n", 1, 1, token=7), "n", error)
    assert failure.kind is kind
    lasting = kind in (FailureKind.STORAGE, FailureKind.DISK_FULL)
    assert failure.kind.lasting == lasting
    assert failure.kind.of_node == (lasting or kind is FailureKind.DAMAGED_DATA)
    assert message_of(error) in failure.story


def place(function: Callable[[], object]) -> str:
    try:
        function()
    except Exception as error:  # any
        return failure_of(Attempt(Unit("c", 0, 0), "n", 1, 1, token=7), "n", error).place
    return "nothing raised"


def test_an_exception_of_the_users_code_has_a_place_and_any_other_has_none() -> None:
    def refuse() -> None:
        raise ConnectionRefusedError("of a service of the user's")

    line = lambda: {}["missing"]  # noqa: E731
    assert place(line) == place(line) == f"KeyError at test_failure.py:{line.__code__.co_firstlineno}"
    assert place(refuse) == ""
    assert place(lambda: (_ for _ in ()).throw(MemoryError)) == ""
