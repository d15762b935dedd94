"""The writer: a thread that saves what a unit has left, while the rank goes on.

It has one state at a time, so that a rank holds two at most: that of the unit it trains, and the last one's.
Who has trained the next unit waits until the last one's visit is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import TypeVar

from cerebro_elastic import checkpoint
from cerebro_elastic.checkpoint import Part
from cerebro_elastic.core.model.origin import Origin
from cerebro_elastic.core.model.units import CheckpointRef, Strategy
from cerebro_elastic.files import Content
from cerebro_elastic.parallel import choose, collectives
from cerebro_elastic.parallel.base import Sharding
from cerebro_elastic.training.task import TaskState

T = TypeVar("T")

_BEAT_SECONDS = 1.0


class Writer:
    """Calls ``alarm`` with what the thread meets, but for errors of a save, which are its unit's."""

    def __init__(self, alarm: Callable[[BaseException], None]) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self._alarm = alarm
        self._left: Future[None] | None = None

    def begin(self, save: Callable[[], T]) -> Future[T]:
        """Begin to save; the last state must be saved."""
        assert not self.busy
        return self._thread.submit(save)

    def leave(self, end: Callable[[], None]) -> None:
        """Leave to the thread what is to be done behind the save."""
        self._left = self._thread.submit(end)
        self._left.add_done_callback(self._look)

    @property
    def busy(self) -> bool:
        """Whether something that was left to it is not done yet."""
        return self._left is not None and not self._left.done()

    def wait(self, beat: Callable[[], None]) -> None:
        """Wait until all that was left to it is done; raises what it has met."""
        while self._left is not None and not wait([self._left], _BEAT_SECONDS).done:
            beat()
        if self._left is not None:
            left, self._left = self._left, None
            left.result()

    def close(self) -> None:
        """Wait until it is done. What it has met was told."""
        with suppress(BaseException):
            self.wait(lambda: None)
        self._thread.shutdown()

    def _look(self, left: Future[None]) -> None:
        error = left.exception()
        if error is not None:
            self._alarm(error)


def part_of(strategy: Strategy, rank: int) -> Part | None:
    """The part of a state that a rank holds, if the choice's parallelism divides it by rows."""
    parallelism = choose.make(strategy.parallelism, strategy.options)
    divides = strategy.ranks > 1 and isinstance(parallelism, Sharding)
    return Part(rank, strategy.ranks) if divides else None


def save_part(state: TaskState, url: str, part: Part | None) -> dict[str, Content] | None:
    """Inside the group: what all ranks have written under ``url``, if the state is divided among them, known
    on the rank that leads; ``None`` if it is not."""
    if part is None or not checkpoint.is_divided(state):
        return None
    written = checkpoint.save_part(state, url, part)
    return {file: content for each in collectives.gathered(written) for file, content in each.items()}


def save(state: TaskState, url: str, parts: Mapping[str, Content] | None) -> CheckpointRef:
    """On the rank that leads: the checkpoint under ``url``, of the ``parts`` that are written, or of all."""
    return checkpoint.save(state, url) if parts is None else checkpoint.complete(parts, url)


def staged(
    state: TaskState, url: str, parts: Mapping[str, Content] | None
) -> tuple[Callable[[Origin], CheckpointRef], int]:
    """What ``save`` does, to be called later and in any thread with where the state comes from, and the bytes
    of the state that it holds until then."""
    if parts is not None:
        return partial(checkpoint.complete, parts, url), 0
    ready = checkpoint.stage(state)
    return partial(ready.save, url), ready.bytes
