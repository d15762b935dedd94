"""A run as its record shows it: its present status, and its results so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from cerebro_elastic.config import DECIDING_SECONDS, StoreSettings
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import RecordHead
from cerebro_elastic.errors import RunError, StoreUnavailable
from cerebro_elastic.runs.attach import ended_error, events_of, known_record, store_of, with_key
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.results.result import RunResult, check_not_all_failed
from cerebro_elastic.store.ledger.journal import JournalReader
from cerebro_elastic.system.ownership import distrust_folder
from cerebro_elastic.system.words import option

if TYPE_CHECKING:
    import pandas

    from cerebro_elastic.core.invariants import Violation
    from cerebro_elastic.runs.comparison import Comparison
    from cerebro_elastic.runs.results.replay import ReplayedVisit

Phase: TypeAlias = Literal["starting", "running", "ended", "stopped", "failed"]

_LOOK_SECONDS = 0.2
"""Seconds between two looks at a followed run."""
_PATIENCE = 2.0
"""Seconds after which a silent store counts as gone, if its folder may say so."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The status of a run.

    Example:
        >>> status = Run.open("sweep").status()
        >>> status.phase, sorted(status.configs)
        ('ended', ['c0000', 'c0001'])
    """

    phase: Phase
    """``starting`` until nodes and configs are registered; ``stopped`` if no process runs it and it has not
    ended; ``failed`` if this process ran it in the background and it raised an error."""
    state: State
    """Nodes, configs and attempts under way."""
    message: str = ""
    """The last line reported by a run in the background, or the error with which it failed."""
    head: RecordHead | None = None
    """The head of the leader's record at the last assignment of a unit still under way; without one, the head
    of the record in the folder. ``None`` if unknown."""

    @property
    def live(self) -> bool:
        """Whether the run is live."""
        return self.phase in ("starting", "running")

    @property
    def configs(self) -> Mapping[str, Config]:
        """The configs by id, with status, epoch and last metrics."""
        return self.state.configs

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the registered nodes."""
        return tuple(self.state.nodes)


class RecordedRun:
    """The readable part of a run, live or ended, on this machine or on others."""

    def __init__(self, folder: RunFolder, store: StoreSettings | None = None) -> None:
        self.folder = folder
        """Its folder on this machine, which need not exist if the run has a ``store``."""
        self.store = store and with_key(store, folder.run, folder.path.parent)
        """The etcd of a run of other machines; ``None``: the run is that of its folder."""

    def __repr__(self) -> str:
        return f"<Run {self.id!r}>"

    @cached_property
    def id(self) -> str:
        """The run's id. A folder's name may differ from its run's: a machine that joined has one beside
        it."""
        if self.store is not None or not self.folder.spec.exists():
            return self.folder.run
        return self.folder.read_spec().plan.run

    @property
    def spec(self) -> Spec:
        """The run's spec."""
        if self.store is None:
            return self.folder.read_spec()
        with known_record(self.store, self.id, believed=False) as (_, spec):
            return spec

    @property
    def result(self) -> RunResult:
        """The results so far, read from the record."""
        return RunResult(self.folder, self.store)

    @property
    def view(self) -> RunView:
        """The run after all of its events so far."""
        return self.result.view

    def status(self) -> RunStatus:
        """The present status: from the store if the run is live, else from its record."""
        if self.store is not None:
            return self._status_in(self.store)
        folder = self.folder
        trusted = folder.endpoint.exists() and not distrust_folder(folder.path)
        settings = store_of(folder) if trusted else None  # for others' runs the record is enough
        if settings is not None:
            try:
                return self._status_in(replace(settings, patience=_PATIENCE))
            except StoreUnavailable:
                if folder.is_locked():
                    raise
                # The process that took part here was killed.
        result = self.result
        # Nodes that were killed are still in the record.
        state = replace(result.view.state, nodes={}, attempts={}, queued={}, leader=None)
        return RunStatus(phase_of(state, live=False), state, head=result.head)

    def _status_in(self, settings: StoreSettings) -> RunStatus:
        with known_record(settings, self.id, believed=False) as (record, _):
            state = record.state()
        heads = [attempt.record for attempt in state.underway() if attempt.record is not None]
        head = max(heads, key=lambda head: head.revision, default=None)
        if head is None and self.store is None:
            head = self.result.head
        return RunStatus(phase_of(state, live=state.outcome is None), state, head=head)

    def follow(self) -> Iterator[RunView]:
        """Follow the run until it has ended, or no process on this machine runs it any more.

        Yields:
            The run's view: at once with all events so far, and then several times a second with the new ones,
            if any.

        Example:
            >>> [len(view.log) for view in Run.open("sweep").follow()][-1]
            8
        """
        view = RunView()
        for events in self._events():
            for event in events:
                view.take(event)
            yield view
            if view.state.outcome is not None:
                return

    def _events(self) -> Iterator[Sequence[Event]]:
        """The events so far, and then the new ones of each moment."""
        if self.store is None:
            reader = JournalReader(self.folder.history)
            while True:
                runs = self.folder.is_locked()
                yield list(reader.new_events())
                if not runs:
                    return
                time.sleep(_LOOK_SECONDS)
        with known_record(self.store, self.id, believed=False) as (record, _):
            events = events_of(record)
            yield events
            with record.events(events[-1].revision + 1 if events else 1) as stream:
                while True:
                    yield stream.next(_LOOK_SECONDS)

    def wait(self, timeout: float | None = None) -> RunResult:
        """Wait for the run's end and return its result.

        Args:
            timeout: The most seconds to wait.

        Raises:
            TimeoutError: The run has not ended by then; it continues.
            RunFailed: It has ended, and all its configs failed.
            RunError: No process runs it any more, and it has not ended.
            Exception: The error of a run in the background, or of one of its callbacks.
        """
        until = None if timeout is None else time.monotonic() + timeout
        view = RunView()
        for view in self.follow():
            if view.state.outcome is None and until is not None and time.monotonic() >= until:
                raise TimeoutError(f"run {self.id!r} has not ended within {timeout:g} s; it continues")
        if view.state.outcome is None:
            raise RunError(
                f"run {self.id!r} has not ended, and nobody runs it on this machine: the command that "
                "started it continues it"
            )
        return check_not_all_failed(self.result)

    def verify(
        self,
        *,
        head: str | None = None,
        export: str | Path | None = None,
        seconds: float = DECIDING_SECONDS,
        say: Callable[[str], None] = lambda _text: None,
    ) -> list[Violation]:
        """Check the run's record, and everything made from it against it (imports torch).

        The history is checked against the invariants and its own chain of digests; spec, checkpoints, data,
        logged rows, ``metrics.csv`` and report are checked against the history. Decisions are made again.

        Args:
            head: A head of the record that you have noted, or its first characters: the record must have it.
            export: The folder of an exported model: the run must have led to it.
            seconds: The seconds for which decisions are made again.
            say: It is called with each note: a remark that is not a violation.

        Returns:
            The violations; none if the record is sound.

        Raises:
            RunError: The run's checkpoints are out of reach of this machine.

        Example:
            >>> Run.open("sweep").verify()
            []
        """
        from cerebro_elastic.runs.results.verify import verify

        return verify(self.result, head=head, export=export, seconds=seconds, say=say)

    def replay(self, config: str = "best") -> Iterator[ReplayedVisit]:
        """Train a config again on this machine, from its start, in the order of its visits (imports torch).

        No recorded state is used: each unit continues from the previous replayed one, and is trained by the
        same strategy as in the run. A config that began with another one's checkpoint is replayed from that
        one's start; one that began with a checkpoint from outside the run, from that checkpoint. A split unit
        is trained in its parts, and also in one go.

        Args:
            config: The config's id; ``best`` for the best one.

        Yields:
            Each visit, once it has been trained again.

        Raises:
            RunError: No such config, or the run's modules or data are not on this machine.

        Example:
            >>> all(visit.same for visit in Run.open("sweep").replay("c0001"))
            True
        """
        from cerebro_elastic.runs.results.replay import replay

        return replay(self.result, config)

    def compare(self, *others: RecordedRun) -> Comparison:
        """Compare runs: the differences of their recipes, data, code and versions, and their results."""
        from cerebro_elastic.runs.comparison import compare

        return compare([run.result for run in (self, *others)])

    def to_pandas(self, per: Literal["config", "epoch"] = "config") -> pandas.DataFrame:
        """The results so far as a table, as ``RunResult.to_pandas``."""
        return self.result.to_pandas(per)

    def live_store(self) -> StoreSettings | None:
        """The settings of the store while the run may be live; ``None`` if it is certainly not. Raises
        ``RunError`` if others can have made its folder."""
        if self.store is not None:
            return self.store
        return store_of(self.folder)

    def live_place(self) -> tuple[str, StoreSettings]:
        """The run's id and its store. Raises ``RunError`` if the run is not live."""
        settings = self.live_store()
        if settings is None:
            if self.folder.history.exists() and self.view.state.outcome is not None:
                raise ended_error(self.id)
            raise RunError(
                f"run {self.folder.run!r} is not live on this machine; if it is elsewhere, name its etcd "
                f"with {option('etcd', 'store')}"
            )
        return self.id, settings


def phase_of(state: State, *, live: bool) -> Phase:
    if live:
        return "running" if state.nodes and state.configs else "starting"
    return "stopped" if state.outcome is None else "ended"
