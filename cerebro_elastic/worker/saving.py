"""Saving a unit's state, in the background if that takes a while.

A rank holds two states at most: one of the unit in training, and one of the last unit, which is being saved.
When the next unit is trained the rank waits until the last one's visit is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TypeVar

from cerebro_elastic.core.model.origin import Origin
from cerebro_elastic.core.model.units import CheckpointRef, Strategy
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.hop.checkpoint import Part, Still, Written
from cerebro_elastic.hop.checkpoint.storage import NOTHING
from cerebro_elastic.training.parallel import collectives
from cerebro_elastic.training.task import TaskState, UnitResult

T = TypeVar("T")

QUICK_SECONDS = 0.05
"""A state that is saved within this time is saved in the foreground."""
_BEAT_SECONDS = 1.0


class _BackgroundThread:
    """A thread that does one task at a time. ``alarm`` takes a task's exception."""

    def __init__(self, name: str, alarm: Callable[[BaseException], None]) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._alarm = alarm
        self._last: Future[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether a task runs."""
        return self._last is not None and not self._last.done()

    def close(self) -> None:
        """Wait for the last task, and end the thread. ``alarm`` has had its error."""
        self._thread.shutdown()

    def _submit(self, task: Callable[[], None]) -> None:
        self._last = self._thread.submit(task)
        self._last.add_done_callback(self._check)

    def _check(self, task: Future[None]) -> None:
        error = task.exception()
        if error is not None:
            self._alarm(error)


class BackgroundWriter(_BackgroundThread):
    """A thread that saves one state at a time. An error of a save belongs to its unit; ``alarm`` takes any
    other that the thread raises."""

    def __init__(self, alarm: Callable[[BaseException], None]) -> None:
        super().__init__("writer", alarm)
        self._last_bytes = 0
        self.last_save_seconds = 0.0
        """Seconds of the last save; 0 before the first."""

    def begin(self, save: Callable[[], T]) -> Future[T]:
        """Begin to save; the last state must be saved."""
        assert not self.busy
        return self._thread.submit(save)

    def go_on(self, finish: Callable[[], None], state_bytes: int) -> None:
        """Leave the save of a state of ``state_bytes`` bytes to the thread, and ``finish`` after it."""
        self._last_bytes = state_bytes
        self._submit(finish)

    @property
    def saving_bytes(self) -> int:
        """Bytes of the state that is being saved in the background; 0 if none is."""
        return self._last_bytes if self.busy else 0

    def wait(self, beat: Callable[[], None]) -> None:
        """Wait for the save in the background; raises the exception of ``finish``."""
        while self._last is not None and not wait([self._last], _BEAT_SECONDS).done:
            beat()
        if self._last is not None:
            last, self._last = self._last, None
            last.result()


class BackgroundCleaner(_BackgroundThread):
    """A thread for the work that is left when a visit is committed."""

    def __init__(self, alarm: Callable[[BaseException], None]) -> None:
        super().__init__("cleaner", alarm)

    def begin(self, task: Callable[[], None]) -> None:
        """Leave a task to the thread. Wait for the last one, so that they do not pile up."""
        self.wait()
        self._submit(task)

    def wait(self) -> None:
        if self._last is not None:
            wait([self._last])


def part_of(strategy: Strategy, rank: int) -> Part | None:
    """The part of a state that a rank holds, if the strategy's parallelism divides it by rows."""
    if strategy.ranks == 1:
        return None
    from cerebro_elastic.training.parallel.base import Sharding, make_parallelism

    parallelism = make_parallelism(strategy.parallelism, strategy.options)
    return Part(rank, strategy.ranks) if isinstance(parallelism, Sharding) else None


def save_part(
    state: TaskState, url: str, part: Part | None, before: Mapping[str, Still] = NOTHING
) -> Sequence[Written] | None:
    """Inside the group: write this rank's part of the state under ``url``. Tensors of ``before`` (see
    ``checkpoint.Staged.save``) that are still the same lie in bases.

    Returns:
        On the rank that leads, the parts that all ranks have written; ``None`` if the state is not divided.
    """
    if part is None or not checkpoint.is_divided(state):
        return None
    return collectives.gathered(checkpoint.save_part(state, url, part, before))


def save(
    state: TaskState,
    url: str,
    parts: Sequence[Written] | None,
    before: Mapping[str, Still] = NOTHING,
) -> CheckpointRef:
    """On the rank that leads: save the checkpoint under ``url``, of the ``parts`` that all ranks have
    written, or of the whole state."""
    if parts is not None:
        return checkpoint.complete(parts, url)
    return checkpoint.stage(state).save(url, before=before)


def staged(
    result: UnitResult, url: str, parts: Sequence[Written] | None
) -> tuple[Callable[[Origin], CheckpointRef], int]:
    """``save``, prepared for later; tensors that training leaves unchanged stay in bases.

    Returns:
        A function of the state's origin that saves it, in any thread, and the bytes that it holds until then.
    """
    if parts is not None:
        return partial(checkpoint.complete, parts, url), 0
    ready = checkpoint.stage(result.state)
    mapped = sum(still.content.bytes for still in result.before.values() if still.base is not None)
    return partial(ready.save, url, before=result.before), ready.bytes - mapped
