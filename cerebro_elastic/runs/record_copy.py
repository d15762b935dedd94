"""A copy of a run's record on the storage of its checkpoints, from which a lost etcd is restored.

Whoever leads adds what its journal has gained, in files that are written once:
``<storage>/record/<leader>/<first byte>.jsonl``, and beside them the spec. Each leader begins with its whole
journal, and removes the copies of those before it. The newest copy is the one whose last event is. Each file
ends with a signature by the run's key: who restores from it signs what it says.
"""

from __future__ import annotations

import hmac
import posixpath
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from cerebro_elastic.errors import CerebroError, RunError
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.store.ledger.journal import read_journal
from cerebro_elastic.system.files import (
    Place,
    exists,
    folders,
    is_folder,
    locate,
    read,
    redacted,
    remove,
    sizes,
    write,
    write_text,
)
from cerebro_elastic.system.run_key import FILE_VARIABLE, SIGNATURE, VARIABLE, RunKey

SECONDS = 10.0
"""Between two additions to the copy."""
_FOLDER, _SPEC = "record", "spec.json"


class RecordCopy:
    """Within the block: while this process ``leads``, by its ``name``, a thread copies the record in
    ``folder`` to ``storage``. A storage that fails is said once, and tried again."""

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

    def _run(self) -> None:
        over = False
        while not over:
            over = self._over.wait(SECONDS)
            if self._leads():
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
        """Copy what the journal has gained. What stands in it behind a line's end may be cut off yet."""
        first = self._copied == 0
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
            for other in folders(self._place):
                if other != self._name:
                    remove(self._place / other)

    def _write(self, name: str, content: bytes) -> None:
        signature = self._key.signature(f"{self._folder.run}/{self._name}/{name}", content)
        write(self._place / self._name / name, [content, signature])


def fetch_record(folder: RunFolder, storage: str, key: RunKey) -> None:
    """Write the newest record on ``storage`` to the run's folder, unless the one there is as new. Raises
    ``RunError`` if there is none, or one that is not signed with the ``key``."""
    place = locate(storage) / _FOLDER
    if not exists(place) or not is_folder(place):
        raise RunError(
            f"{redacted(storage)} has no folder `{_FOLDER}`: give the place of the run's checkpoints, as "
            "`cerebro run` names it"
        )
    folder.path.mkdir(parents=True, exist_ok=True)
    known = _revision(folder.history)
    for leader in folders(place):
        files = sorted(path for path in sizes(place / leader) if path.endswith(".jsonl"))
        names = [posixpath.basename(file) for file in files]
        copied = folder.path / ".history-copied"
        copied.write_bytes(b"".join(_read(place, folder.run, leader, name, key) for name in names))
        if _revision(copied) > known:
            known = _revision(copied)
            write_text(folder.spec, _read(place, folder.run, leader, _SPEC, key).decode())
            copied.replace(folder.history)
        with suppress(FileNotFoundError):
            copied.unlink()
    if not known:
        raise RunError(f"{redacted(storage)} has no record of a run yet, and {folder.path} has none")


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


def _revision(history: Path) -> int:
    """That of the last event; 0 without one."""
    events = read_journal(history) if history.exists() else []
    return max((event.revision for event in events), default=0)
