"""The product's own processes, with faults at their points: nothing in the product knows of it.

``python -m support.faulty`` is a rank (what torchrun starts for a node of a storm);
with arguments it is the command ``cerebro``, which may lead.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from cerebro_elastic.core.model.attempts import Attempt
from support.faults import inject
from support.faults.inject import FOLDER, FaultFolder, reach
from support.faults.plan import Point

Around = Callable[..., Any]
SLOW_SAVE = 0.2
"""Seconds."""


def main() -> int:
    from cerebro_elastic.worker import __main__ as rank

    if sys.argv[1:] not in ([], [rank.FORKED]):
        from cerebro_elastic.cli import main as cerebro

        wrap_controller()
        cerebro()
        return 0
    # Behind the first that a rank does, and before it imports what takes seconds.
    _wrap(rank, "_leave_when_asked", _wrap_rank_behind)
    return rank.main()


def _wrap_rank_behind(leave_when_asked: Around, *args: Any) -> Any:
    leaving = leave_when_asked(*args)
    wrap_rank()
    return leaving


def wrap_rank() -> None:
    """Put the points of a rank into this process (imports torch)."""
    from cerebro_elastic.data.reading import cached_column
    from cerebro_elastic.hop import checkpoint
    from cerebro_elastic.hop.checkpoint import storage
    from cerebro_elastic.store.client.etcd import EtcdStore
    from cerebro_elastic.store.ledger.nodes import NodeLedger
    from cerebro_elastic.store.ledger.worker import WorkerLedger
    from cerebro_elastic.worker import rank
    from cerebro_elastic.worker.rank_attempt import RankAttempt
    from cerebro_elastic.worker.rank_context import RankContext

    _wrap(checkpoint.Staged, "save", _at_first(Point.BEFORE_SAVE))
    _wrap(storage, "write", _half_written)
    _wrap(
        cached_column, "_referred", _never
    )  # as if the dataset were elsewhere: there is something to fetch again from
    _wrap(WorkerLedger, "commit", _at_first(Point.BEFORE_COMMIT))
    _wrap(EtcdStore, "txn", _sent_and_heard)
    _wrap(NodeLedger, "drain", _at_last(Point.DRAIN))
    _wrap(RankContext, "__enter__", _ready)
    _wrap(rank, "perform", _in_attempt)
    _wrap(RankAttempt, "_watched_save", _saving)
    _wrap(RankAttempt, "_finish", _finishing)


def wrap_controller() -> None:
    """Put the point of a controller into this process."""
    from cerebro_elastic.controller.controller import Controller

    _wrap(Controller, "__enter__", _at_last(Point.TAKEOVER))


def _wrap(owner: Any, name: str, around: Around) -> None:
    """Have ``around(call, ...)`` in the place of ``owner``'s ``call(...)``."""
    call = getattr(owner, name)
    setattr(owner, name, functools.wraps(call)(lambda *args, **kwargs: around(call, *args, **kwargs)))


def _at_first(point: Point) -> Around:
    def around(call: Around, *args: Any, **kwargs: Any) -> Any:
        reach(point)
        return call(*args, **kwargs)

    return around


def _at_last(point: Point) -> Around:
    def around(call: Around, *args: Any, **kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        reach(point)
        return result

    return around


def _never(*_: Any) -> bool:
    return False


def _half_written(write: Around, place: Any, data: Iterable[Any], *hashing: Any) -> Any:
    """A file of more than one piece is begun, and then perhaps not ended."""
    return write(place, _interrupted(data), *hashing)


def _interrupted(data: Iterable[Any]) -> Iterator[Any]:
    for number, piece in enumerate(data):
        if number == 1:
            reach(Point.MIDDLE_OF_SAVE)
        yield piece


def _sent_and_heard(txn: Around, *args: Any) -> Any:
    reach(Point.REQUEST)
    result = txn(*args)
    reach(Point.ANSWER)
    return result


def _in_attempt(perform: Around, context: Any, attempt: Attempt, *args: Any) -> None:
    with inject.entered(attempt.token):
        perform(context, attempt, *args)


def _finishing(finish: Around, rank_attempt: Any, *args: Any) -> None:
    """In the thread that saves, perhaps."""
    with inject.entered(rank_attempt.attempt.token):
        finish(rank_attempt, *args)


def _saving(save: Around, rank_attempt: Any, trained: Any) -> Any:
    """Every other state is saved slowly, so that its node does its next unit meanwhile."""
    token = rank_attempt.attempt.token
    with inject.entered(token):
        time.sleep(SLOW_SAVE if token % 2 else 0.0)
        return save(rank_attempt, trained)


def _ready(enter: Around, context: Any) -> Any:
    """The rank has loaded all that it needs, and waits for its first unit."""
    FaultFolder(Path(os.environ[FOLDER])).rank_started(os.environ["CEREBRO_NODE"])
    reach(Point.JOIN)
    return enter(context)


if __name__ == "__main__":
    sys.exit(main())
