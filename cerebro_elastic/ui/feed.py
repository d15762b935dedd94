"""Follows a run, in a thread: a live one in its store, one that is not in the record of its folder."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import Any

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.model.codec import UnreadableValue
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.errors import CerebroError, Compacted, IllegalEvent, RunError, StoreError
from cerebro_elastic.runs.attach import events_of, known_spec
from cerebro_elastic.runs.results.report import manifest_of
from cerebro_elastic.runs.run import Run
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.ledger.journal import JournalReader, read_journal
from cerebro_elastic.store.ledger.record import EventStream, Record
from cerebro_elastic.ui.board import Board
from cerebro_elastic.ui.details import importances, publish_details
from cerebro_elastic.ui.places import PATIENCE
from cerebro_elastic.ui.view import RunPage

_PAUSE = 0.2
"""Seconds between two changes of the page."""
_REST = 1.0
"""Seconds between two looks at a run that is not live, or out of reach."""
STEP = 500
"""Events that are taken in between two looks at the clock."""
_FIRST, _NEXT = 0.2, 2.0
"""Seconds until a record that is still being read is first shown, and between two more times."""
_SHARE = 5.0
"""The details are recomputed after this multiple of the seconds that they took."""


class Feed:
    """Keeps the board of one run up to date until it is closed."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.board = Board()
        self.view: RunPage | None = None
        """What is known of the run; ``None`` until its record was read."""
        self.reading = False
        """Whether the record is being read for the first look at it."""
        self._closed = threading.Event()
        self._details_due = 0.0
        self._detailed = 0
        self._importances: tuple[int, dict[str, Any]] | None = None
        self._computing = threading.Lock()
        self._manifest: tuple[str, Manifest | None] | None = None
        self._thread = threading.Thread(target=self._follow, name=f"page of {run.folder.run}", daemon=True)
        self._thread.start()

    def importances(self) -> dict[str, Any]:
        """How much each hyper-parameter matters; computed once for each revision of the run."""
        view = self.view
        if view is None or not view.events:
            return {"problem": "the run's record is being read"}
        with self._computing:
            revision = view.events[-1].revision
            if self._importances is None or self._importances[0] != revision:
                self._importances = (revision, importances(view))
            return self._importances[1]

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
                afresh = True  # another history than the record's: begin with the state that is there
            except Exception as error:  # whatever it is, the page says it, and the next try may succeed
                self._lost(error)
            self._closed.wait(_REST)

    def _lost(self, error: Exception) -> None:
        """The store is out of reach. If nobody runs the run here, its record is all that there is."""
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
        with closing(EtcdStore(settings)) as store:
            record = Record(store, self.run.id, settings.run_key)
            spec = known_spec(record, settings)
            record.check_signed(settings.trusted)
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
        """The history so far: that of the folder, as the store may have forgotten it, else the store's."""
        history = self.run.folder.history
        recorded = read_journal(history) if history.exists() else []
        if recorded and recorded[-1].revision <= record.now():
            return recorded
        return events_of(record)

    def _follow_folder(self) -> None:
        """Show what the folder's record says, until the run is live (again)."""
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
        """Take in events. At the first look at a long record, what is read so far is shown."""
        rest, due = iter(events), time.monotonic() + _FIRST
        self.reading = self.view is None
        try:
            while not self._closed.is_set() and (part := list(islice(rest, STEP))):
                for event in part:
                    view.take(event)
                if self.reading and time.monotonic() > due:
                    view.publish_recipe()
                    view.publish(live=False)
                    self.board.put("run", "connection", {"state": "reading", "why": ""})
                    due = time.monotonic() + _NEXT
        finally:
            self.reading = False

    def _show(self, view: RunPage, *, live: bool) -> None:
        if self.view is not view:
            view.publish_recipe()
            self._details_due = 0.0
        view.publish(live=live)
        grown = self.view is not view or len(view.events) != self._detailed
        self.view = view
        if grown and time.monotonic() >= self._details_due:
            began = time.monotonic()
            self._detailed = len(view.events)
            publish_details(self.board, view, self.run.folder, self._manifest_of(view))
            now = time.monotonic()
            self._details_due = now + max(1.0, _SHARE * (now - began))

    def _manifest_of(self, view: RunPage) -> Manifest | None:
        """The manifest of the dataset, read once."""
        if self._manifest is None or self._manifest[0] != view.spec.data:
            self._manifest = (view.spec.data, manifest_of(view.spec))
        return self._manifest[1]


def _soon(stream: EventStream) -> list[Event]:
    """The events of the next ``_PAUSE`` seconds."""
    until = time.monotonic() + _PAUSE
    events: list[Event] = []
    while (left := until - time.monotonic()) > 0:
        events += stream.next(left)
    return events
