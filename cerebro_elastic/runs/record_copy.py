"""A copy of a run's record on the storage of its checkpoints, from which a lost etcd is restored.

The leader adds the new part of its journal, in files that are written once:
``<storage>/record/<leader>/<first byte>.jsonl``, and beside them the spec. Each leader begins with its whole
journal, and removes its predecessors' copies. The newest copy is the one with the newest last event. Each
file ends with a signature by the run's key: a restore signs the file's content.

A restored etcd continues at revisions far above the lost one's. So a leader whose etcd has not reached the
revisions of another copy leads a run that continues elsewhere, and ends.
"""

from __future__ import annotations

import hmac
import posixpath
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Self

from cerebro_elastic.core.model.events import Event
from cerebro_elastic.errors import CerebroError, RunError
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.store.ledger.journal import read_journal
from cerebro_elastic.system.files import (
    Place,
    exists,
    folders,
    in_a_hurry,
    is_folder,
    locate,
    read,
    redacted,
    remove,
    sizes,
    write,
)
from cerebro_elastic.system.run_key import FILE_VARIABLE, SIGNATURE, VARIABLE, RunKey

SECONDS = 10.0
"""Seconds between two additions to the copy."""
_FOLDER, _SPEC = "record", "spec.json"


class RecordCopy:
    """Within the block: while this process ``leads``, by its ``name``, a thread copies the record in
    ``folder`` to ``storage``. A failing storage is reported once, and tried again."""

    def __init__(
        self,
        folder: RunFolder,
        storage: str,
        key: RunKey,
        name: str,
        leads: Callable[[], bool],
        say: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._key = key
        self._place = locate(storage) / _FOLDER
        self._storage = storage
        self._name = name
        self._leads = leads
        self._say = say
        self._copied = 0
        self._later = 0
        self._spec = ""
        self._failed = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="record copy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def check(self, now: Callable[[], int]) -> None:
        """Raise ``RunError`` if the run continues in another etcd. ``now`` gives the revision of this one."""
        if self._later > 0 and self._later > now():
            raise RunError(
                f"run {self._folder.run!r} continues in another etcd, which was restored from its record in "
                f"{redacted(self._storage)}: start this host again with the address of that one"
            )
        self._later = 0

    def _run(self) -> None:
        over = False
        while not over:
            over = self._over.wait(SECONDS)
            if self._leads():
                with in_a_hurry():  # the next time is near, and a leaving process does not wait for a storage
                    self._try()

    def _try(self) -> None:
        try:
            self._add()
            self._failed = False
        except (CerebroError, OSError) as error:
            if not self._failed:
                self._say(
                    f"the record cannot be copied to {redacted(self._storage)}, which is tried again: {error}"
                )
            self._failed = True

    def _add(self) -> None:
        """Copy the new part of the journal. Text after the last line's end may yet be cut off."""
        first = self._copied == 0
        others = [name for name in folders(self._place) if name != self._name] if exists(self._place) else []
        later = max(map(self._last_of, others), default=0)
        if later > 0 and later > last_revision(self._folder.events()):
            self._later = later
            return
        with self._folder.history.open("rb") as file:
            file.seek(self._copied)
            new = file.read()
        new = new[: new.rfind(b"\n") + 1]
        if (spec := self._folder.spec.read_text()) != self._spec:
            self._write(_SPEC, spec.encode())
            self._spec = spec
        if new:
            self._write(f"{self._copied:015d}.jsonl", new)
            self._copied += len(new)
        if first and new:
            for other in others:
                remove(self._place / other)

    def _last_of(self, leader: str) -> int:
        return last_revision(_events(self._place, self._folder.run, leader, self._key))

    def _write(self, name: str, content: bytes) -> None:
        signature = self._key.signature(f"{self._folder.run}/{self._name}/{name}", content)
        write(self._place / self._name / name, [content, signature])


class CopiedRecord(NamedTuple):
    """The content of a copy of a run's record."""

    events: Sequence[Event]
    spec: bytes


def has_record(storage: str) -> bool:
    """Whether a leader has begun a copy of its run's record on ``storage``."""
    place = locate(storage) / _FOLDER
    return exists(place) and is_folder(place)


def fetch_record(run: str, storage: str, key: RunKey) -> CopiedRecord:
    """The newest copy of the run's record on ``storage``. Raises ``RunError`` if none exists, or if it is not
    signed with the ``key``."""
    place = locate(storage) / _FOLDER
    if not has_record(storage):
        raise RunError(
            f"{redacted(storage)} has no folder `{_FOLDER}`: give the place of the run's checkpoints, as "
            "`cerebro run` names it"
        )
    copies = {leader: _events(place, run, leader, key) for leader in folders(place)}
    leader = max(copies, key=lambda name: last_revision(copies[name]), default="")
    if not copies.get(leader):
        raise RunError(f"{redacted(storage)} has no record of run {run!r} yet")
    return CopiedRecord(copies[leader], _read(place, run, leader, _SPEC, key))


def last_revision(events: Sequence[Event]) -> int:
    """The revision of the last event; 0 without one. (After a state read afresh, revisions may be lower.)"""
    return max((event.revision for event in events), default=0)


def _events(place: Place, run: str, leader: str, key: RunKey) -> Sequence[Event]:
    """The events in one leader's copy, up to the first missing piece: another leader may be removing them."""
    content = b""
    for name in sorted(map(posixpath.basename, sizes(place / leader))):
        if name == f"{len(content):015d}.jsonl":
            content += _read(place, run, leader, name, key)
    with TemporaryDirectory() as folder:
        (copy := Path(folder) / "history.jsonl").write_bytes(content)
        return read_journal(copy)


def _read(place: Place, run: str, leader: str, name: str, key: RunKey) -> bytes:
    """A file without its signature."""
    sealed = read(place / leader / name)
    content, signature = sealed[:-SIGNATURE], sealed[-SIGNATURE:]
    if not hmac.compare_digest(signature, key.signature(f"{run}/{leader}/{name}", content)):
        raise RunError(
            f"{place / leader / name} is not signed with this key for run {run!r}: give the run's own "
            f"({VARIABLE}, {FILE_VARIABLE}); the machines that took part have it in the run's folder"
        )
    return content
