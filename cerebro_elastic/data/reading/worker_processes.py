"""Processes that make batches. They live as long as their rank, and serve unit after unit.

They are those of a ``DataLoader`` whose sampler yields whole tasks instead of numbers. They are forks of the
host's fork server if it has one: a process that imports torch takes seconds to start.

Tasks and batches are pickled here. Left to the threads that feed ``multiprocessing``'s queues, an error would
only be printed, and the batch would never come.
"""

from __future__ import annotations

import atexit
import errno
import os
import pickle
import traceback
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count as counted_from
from multiprocessing.reduction import ForkingPickler
from tempfile import gettempdir
from typing import Any, TypeAlias

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.errors import CerebroError, DiskFull, StorageError, TaskError
from cerebro_elastic.registry import importing_users, is_library
from cerebro_elastic.system.forkserver.context import ForkServerContext
from cerebro_elastic.system.torch_internals import stop_workers

Task: TypeAlias = Callable[[], Any]
"""Makes a batch in a worker process; can be pickled."""


class SentOnce:
    """A function that many tasks of one unit share: each worker process unpickles it once, not per task."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._sent = pickle.dumps(function)
        self._number = next(_numbers)

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (self._number, self._sent)


_numbers = counted_from()
"""One for each function sent, since equal bytes may name files whose content has changed."""


@lru_cache(1)
def _received(_number: int, sent: bytes) -> Any:
    return pickle.loads(sent)


def in_workers(tasks: Iterable[Task], loader: LoaderSettings) -> Generator[Any, None, None]:
    """The tasks' results in a loader's worker processes, in their order. Raises a task's exception, with a
    note on its place.

    The processes are those of an earlier call that has ended or was closed, or fresh ones.
    """
    idle = _idle[loader.workers, loader.prefetch, loader.pin_memory]
    processes = idle.pop() if idle else _Processes(loader)
    try:
        yield from map(_batch_of, processes.serve(tasks))
    except GeneratorExit:  # the unit stops here
        idle.append(processes)
        raise
    except BaseException:  # else they live as long as the traceback of an error
        processes.end()
        raise
    idle.append(processes)


def end_idle() -> None:
    """End all processes that wait for another unit."""
    for processes in [process for idle in _idle.values() for process in idle]:
        processes.end()
    _idle.clear()


class _Processes:
    """The processes of one loader."""

    def __init__(self, loader: LoaderSettings) -> None:
        self._tasks = _Tasks()
        self._loader: DataLoader[Any] = DataLoader(
            _Performer(),
            batch_size=None,
            sampler=self._tasks,
            collate_fn=_as_it_is,
            num_workers=loader.workers,
            prefetch_factor=loader.prefetch,
            pin_memory=loader.pin_memory,
            persistent_workers=True,
            multiprocessing_context=ForkServerContext(),
            generator=torch.Generator(),  # else it would draw from the global one
        )
        self._iterator: Any = None

    def serve(self, tasks: Iterable[Task]) -> Iterator[Any]:
        """The tasks' results. Remaining results of earlier tasks are dropped."""
        self._tasks.present = tasks
        self._iterator = iter(self._loader)
        atexit.unregister(self.end)
        atexit.register(self.end)  # before multiprocessing kills them: they would leave their temporary files
        return self._iterator  # type: ignore[no-any-return]

    def end(self) -> None:
        atexit.unregister(self.end)
        stop_workers(self._iterator)


_idle: defaultdict[tuple[int, int, bool], list[_Processes]] = defaultdict(list)
"""The processes that wait for another unit, by the loader's settings that shape them."""

_Base: TypeAlias = Sampler[bytes]


class _Tasks(_Base):
    """The loader's sampler: the tasks of the present unit, pickled."""

    def __init__(self) -> None:
        self.present: Iterable[Task] = ()

    def __iter__(self) -> Iterator[bytes]:
        return map(pickle.dumps, self.present)


class _Performer(Dataset[Any]):
    """The loader's dataset, in a worker process: its indices are pickled tasks."""

    def __getitem__(self, pickled: bytes) -> Any:
        try:
            with importing_users():
                task: Task = pickle.loads(pickled)
            return _Packed.of(task())
        except Exception as error:  # raised, it would come as the text of a traceback
            if not _travels(error):
                raise
            if not isinstance(error, CerebroError):
                error.add_note(_place(error))
            return _Raised(error)


@dataclass(frozen=True, slots=True)
class _Packed:
    """A batch that is pickled; its tensors lie in shared memory. A queue gives the batch to the rank."""

    pickled: bytes

    @classmethod
    def of(cls, batch: Any) -> _Packed:
        """Pickle it. Raises ``TaskError`` if it cannot be sent, ``DiskFull`` or ``StorageError`` if the
        system has no room or no name for shared memory."""
        try:
            return cls(bytes(ForkingPickler.dumps(batch, pickle.HIGHEST_PROTOCOL)))
        except Exception as exc:  # a user's class may raise any
            if isinstance(exc, OSError) or "</torch_" in str(exc):  # the name of shared memory
                raise _cannot_share(exc) from exc
            raise TaskError(
                f"a batch cannot be sent from the process that made it ({type(exc).__name__}: {exc}): it may "
                "have tensors, arrays, numbers and text; or set workers: 0"
            ) from exc

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self.pickled,)


def _cannot_share(error: Exception) -> CerebroError:
    """The error of the system when tensors are put into shared memory."""
    what = f"a process that makes batches cannot share them with its rank: {error}"
    less = "use fewer `workers`, a smaller `prefetch` or batch_size, or workers: 0"
    if os.strerror(errno.ENOSPC) in str(error):
        return DiskFull(f"{what}; give /dev/shm more space (docker run --shm-size), or {less}")
    if "AF_UNIX path too long" in str(error):
        return StorageError(
            f"{what}; sockets lie in the temporary folder {gettempdir()}: set TMPDIR to one with a shorter "
            "name"
        )
    return StorageError(f"{what}; raise the limit (ulimit -a), or {less}")


@dataclass(frozen=True, slots=True)
class _Raised:
    """The answer of a worker process for a failed task."""

    error: Exception


def _travels(error: Exception) -> bool:
    """Whether the error can be sent as it is."""
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:  # the user's class may raise anything
        return False


def _place(error: Exception) -> str:
    """Where in the user's code it was raised: the frames stay behind in this process."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not is_library(frame.filename)] or frames
    return f"  {own[-1].filename}:{own[-1].lineno} in {own[-1].name}: {own[-1].line}"


def _batch_of(answer: Any) -> Any:
    if isinstance(answer, _Raised):
        raise answer.error
    return answer


def _as_it_is(batch: Any) -> Any:
    return batch
