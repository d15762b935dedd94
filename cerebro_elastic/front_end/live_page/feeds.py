"""The runs shown by a server: a feed for each run with a viewer, and a summary of each run.

A feed follows its run in a thread: a live one in its store, any other in the record of its folder.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.model.codec import UnreadableValue
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.errors import CerebroError, Compacted, IllegalEvent, RunError, StoreError, did_you_mean
from cerebro_elastic.reporting.page.board import Board
from cerebro_elastic.reporting.page.run_page import RunPage
from cerebro_elastic.reporting.timeline import timeline
from cerebro_elastic.runs.attach import events_of, known_record, runs_in
from cerebro_elastic.runs.catalog import mark_of
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.results.report import manifest_of
from cerebro_elastic.runs.run import Run
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.ledger.journal import JournalReader
from cerebro_elastic.store.ledger.record import EventStream, Record

_PAUSE = 0.2
"""Seconds between two changes of the page."""
_REST = 1.0
"""Seconds between two looks at a run that is not live or is out of reach."""
STEP = 500
"""Events taken in between two looks at the clock."""
_FIRST, _NEXT = 0.2, 2.0
"""Seconds until a record still being read is first shown, and between later updates."""
_SHARE = 5.0
"""The details are recomputed after this multiple of the seconds of their last computation."""
_SUMMARIES_PAUSE, _POLITE = 1.0, 0.1
"""Seconds between two summaries of all runs, and between two checks whether a feed is still being read."""
_MOST_IDLE = 8
"""The number of feeds without a viewer that stay open: the next look at their runs is complete at once."""


class Feed:
    """Keeps the board of one run up to date until it is closed."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.board = Board()
        self.view: RunPage | None = None
        """The view of the run; ``None`` until its record was read."""
        self.reading = False
        """Whether the record is being read for the first look at it."""
        self._closed = threading.Event()
        self._details_due = 0.0
        self._detailed = 0
        self._computing = threading.Lock()
        self._manifest: tuple[str, Manifest | None] | None = None
        self._thread = threading.Thread(target=self._follow, name=f"page of {run.folder.run}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop following."""
        self._closed.set()
        self._thread.join()

    def _follow(self) -> None:
        afresh = False
        while not self._closed.is_set():
            try:
                settings = self.run.live_store()
                if settings is None:
                    self._follow_folder()
                else:
                    self._follow_store(settings, afresh=afresh)
                afresh = False
            except (IllegalEvent, Compacted):
                afresh = True  # a different history from the record's: begin with the present state
            except Exception as error:  # the page shows any error, and the next try may succeed
                self._lost(error)
            self._closed.wait(_REST)

    def _lost(self, error: Exception) -> None:
        """The store is out of reach. If no process runs the run here, its record is the only source."""
        if self.run.store is None and isinstance(error, StoreError) and not self.run.folder.is_locked():
            try:
                self._follow_folder()
            except (CerebroError, OSError) as exc:
                error = exc
            else:
                return
        self.board.put("run", "connection", {"state": "lost", "why": str(error)})

    def _follow_store(self, settings: StoreSettings, *, afresh: bool) -> None:
        settings = replace(settings, patience=min(settings.patience, PATIENCE))
        with known_record(settings, self.run.id) as (record, spec):
            view = RunPage(self.board, spec)
            events = [record.read()] if afresh else self._beginning(record)
            self._take(view, events)
            self._show(view, live=True)
            self.board.put("run", "connection", {"state": "live", "why": ""})
            with record.events(events[-1].revision + 1 if events else 1) as stream:
                while not self._closed.is_set():
                    for event in _soon(stream):
                        view.take(event)
                    self._show(view, live=True)
                    if view.state.outcome is not None and self.run.live_store() is None:
                        return

    def _beginning(self, record: Record) -> Sequence[Event]:
        """The history so far: that of the folder, as the store may have dropped it, else the store's."""
        recorded = self.run.folder.events()
        if recorded and recorded[-1].revision <= record.now():
            return recorded
        return events_of(record)

    def _follow_folder(self) -> None:
        """Show the folder's record, until the run is live (again)."""
        folder = self.run.folder
        reader = JournalReader(folder.history)
        view = RunPage(self.board, folder.read_spec())
        while not self._closed.is_set():
            try:
                self._take(view, reader.new_events())
            except UnreadableValue as exc:
                raise RunError(f"{folder.history}: the history is damaged: {exc}") from exc
            self._show(view, live=False)
            self.board.put("run", "connection", {"state": "record", "why": ""})
            if folder.endpoint.exists() and folder.is_locked():
                return
            self._closed.wait(_REST)

    def _take(self, view: RunPage, events: Iterable[Event]) -> None:
        """Take in events. At the first look at a long record, the part read so far is shown."""
        rest, due = iter(events), time.monotonic() + _FIRST
        self.reading = self.view is None
        try:
            while not self._closed.is_set() and (part := list(islice(rest, STEP))):
                for event in part:
                    view.take(event)
                if self.reading and time.monotonic() > due:
                    view.publish_recipe()
                    view.publish(live=False)
                    view.publish_spans()
                    self.board.put("run", "connection", {"state": "reading", "why": ""})
                    due = time.monotonic() + _NEXT
        finally:
            self.reading = False

    def _show(self, view: RunPage, *, live: bool) -> None:
        if self.view is not view:
            view.publish_recipe()
            self._details_due = 0.0
        view.publish(live=live)
        view.publish_spans()
        grown = self.view is not view or len(view.events) != self._detailed
        self.view = view
        if grown and time.monotonic() >= self._details_due:
            began = time.monotonic()
            self._detailed = len(view.events)
            view.publish_details(timeline(view), self._manifest_of(view), self.run.folder.logs)
            now = time.monotonic()
            self._details_due = now + max(1.0, _SHARE * (now - began))

    def _manifest_of(self, view: RunPage) -> Manifest | None:
        """The manifest of the dataset, read once its rows are counted."""
        url, known = self._manifest or ("", None)
        if url != view.spec.data or (known is not None and known.estimated):
            known = manifest_of(view.spec)
            self._manifest = view.spec.data, known
        return known


def _soon(stream: EventStream) -> list[Event]:
    """The events of the next ``_PAUSE`` seconds."""
    until = time.monotonic() + _PAUSE
    events: list[Event] = []
    while (left := until - time.monotonic()) > 0:
        events += stream.next(left)
    return events


class Feeds:
    """Feeds by run, and the board of the page of all runs."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._feeds: dict[str, Feed] = {}
        self._looks: dict[str, int] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._ended: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {}
        self.board = Board()
        """The page of all runs."""
        self._thread = threading.Thread(target=self._summarize, name="page of all runs", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        for feed in self._feeds.values():
            feed.close()

    def of(self, run: str) -> Feed:
        """The feed of a run. Raises ``RunError`` if no such run exists."""
        with self._lock:
            if run not in self._feeds:
                self._feeds[run] = Feed(self._places.find(run))
            return self._feeds[run]

    def look(self, run: str) -> Feed:
        """The feed of a run for a new page; it stays open until ``leave``."""
        feed = self.of(run)
        self._looks[run] = self._looks.get(run, 0) + 1
        return feed

    def leave(self, run: str) -> None:
        """A page was closed. Feeds without a viewer are closed, except the latest."""
        with self._lock:
            self._looks[run] -= 1
            idle = [name for name, looks in self._looks.items() if looks == 0 and name in self._feeds]
            for name in idle[:-_MOST_IDLE]:
                self._feeds.pop(name).close()
                del self._looks[name]

    def _summarize(self) -> None:
        while not self._closed.is_set():
            try:
                runs = self._places.runs()
                self.board.put("all", "problem", None)
            except (CerebroError, OSError) as error:
                self.board.put("all", "problem", str(error))
            else:
                for name in runs:
                    if self._closed.is_set():
                        return
                    self.board.put("runs", name, self._summary(name))
                self.board.keep("runs", set(runs))
                self.board.put("all", "read", True)
            self._closed.wait(_SUMMARIES_PAUSE)

    def _summary(self, name: str) -> dict[str, Any]:
        """A run's summary."""
        run = self._places.known(name)
        try:
            if run.store is not None or (run.folder.endpoint.exists() and run.folder.is_locked()):
                view = self.of(name).view
                known = {"reading": True} if view is None else view.summary(live=True)
            else:
                known = self._of_record(run.folder)
            return {**known, "run": name}  # a folder's name may differ from its run's
        except Exception as error:  # one damaged run does not hide the others
            return {"run": name, "problem": str(error)}

    def _let_others_read(self) -> None:
        """Wait while a run with a viewer is read."""
        while any(feed.reading for feed in list(self._feeds.values())) and not self._closed.is_set():
            self._closed.wait(_POLITE)

    def _of_record(self, folder: RunFolder) -> dict[str, Any]:
        """The summary of a run that is not live, read again when its record has grown."""
        mark, known = mark_of(folder), self._ended.get(folder.run)
        if known is None or known[0] != mark:
            view = RunPage(Board(), folder.read_spec())
            events = iter(folder.events())
            while not self._closed.is_set() and (part := list(islice(events, STEP))):
                for event in part:
                    view.take(event)
                self._let_others_read()
            view.publish(live=False)
            known = self._ended[folder.run] = (mark, view.summary(live=False))
        return known[1]


PATIENCE = 5.0
"""Seconds after which a silent etcd counts as out of reach."""


@dataclass(frozen=True, slots=True)
class Places:
    """The place of all shown runs."""

    home: Path
    etcd: StoreSettings | None = None
    """The etcd whose runs are shown instead of those of ``home``."""

    def runs(self) -> list[str]:
        """The ids of the runs, sorted."""
        if self.etcd is None:
            return sorted(path.parent.name for path in self.home.glob("*/spec.json"))
        with closing(EtcdStore(replace(self.etcd, patience=PATIENCE))) as store:
            return runs_in(store)

    def find(self, run: str) -> Run:
        """The run with this id. Raises ``RunError`` with the known ids."""
        ids = self.runs()
        if run not in ids:
            where = self.home.resolve() if self.etcd is None else ", ".join(self.etcd.endpoints)
            raise RunError(f"there is no run {run!r} in {where}; {did_you_mean(run, ids)}")
        return self.known(run)

    def known(self, run: str) -> Run:
        """A run that is known to exist."""
        return Run(RunFolder(self.home / run), self.etcd)
