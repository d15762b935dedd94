"""The runs that a server shows: a feed for each that somebody looks at, and a summary of each."""

from __future__ import annotations

import threading
from itertools import islice
from typing import Any

from cerebro_elastic.errors import CerebroError
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.store.ledger.journal import read_journal
from cerebro_elastic.ui.board import Board
from cerebro_elastic.ui.feed import STEP, Feed
from cerebro_elastic.ui.places import Places
from cerebro_elastic.ui.view import RunPage

_PAUSE = 1.0
_POLITE = 0.1
_MOST = 8
"""The number of feeds without a viewer that stay open: the next look at their runs is at once complete."""


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
        """Close all feeds."""
        self._closed.set()
        self._thread.join()
        for feed in self._feeds.values():
            feed.close()

    def of(self, run: str) -> Feed:
        """The feed of a run. Raises ``RunError`` if there is no such run."""
        with self._lock:
            if run not in self._feeds:
                self._feeds[run] = Feed(self._places.find(run))
            return self._feeds[run]

    def look(self, run: str) -> Feed:
        """The feed of a run for a page that is opened; it stays open until ``leave``."""
        feed = self.of(run)
        self._looks[run] = self._looks.get(run, 0) + 1
        return feed

    def leave(self, run: str) -> None:
        """A page was closed. The feeds that nobody looks at are closed, but for the latest."""
        with self._lock:
            self._looks[run] -= 1
            idle = [name for name, looks in self._looks.items() if looks == 0 and name in self._feeds]
            for name in idle[:-_MOST]:
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
            self._closed.wait(_PAUSE)

    def _summary(self, name: str) -> dict[str, Any]:
        """How a run stands."""
        run = self._places.known(name)
        try:
            if run.store is not None or (run.folder.endpoint.exists() and run.folder.is_locked()):
                view = self.of(name).view
                known = {"reading": True} if view is None else view.summary(live=True)
            else:
                known = self._of_record(run.folder)
            return {**known, "run": name}  # a folder may have another name than its run
        except Exception as error:  # one damaged run does not hide the others
            return {"run": name, "problem": str(error)}

    def _let_others_read(self) -> None:
        """Wait while a run is read that somebody looks at."""
        while any(feed.reading for feed in list(self._feeds.values())) and not self._closed.is_set():
            self._closed.wait(_POLITE)

    def _of_record(self, folder: RunFolder) -> dict[str, Any]:
        """The summary of a run that is not live, read again when its record has grown."""
        history = folder.history
        stat = history.stat() if history.exists() else None
        mark = (0, 0) if stat is None else (stat.st_mtime_ns, stat.st_size)
        known = self._ended.get(folder.run)
        if known is None or known[0] != mark:
            view = RunPage(Board(), folder.read_spec())
            events = iter(read_journal(history) if stat is not None else ())
            while not self._closed.is_set() and (part := list(islice(events, STEP))):
                for event in part:
                    view.take(event)
                self._let_others_read()
            view.publish(live=False)
            known = self._ended[folder.run] = (mark, view.summary(live=False))
        return known[1]
