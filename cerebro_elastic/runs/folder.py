"""The folder of a run, ``<home>/<run id>/``: all files of the run on this machine."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import tenacity

from cerebro_elastic.core.model.codec import UnreadableValue, decode
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.errors import FolderInUse, RunError, did_you_mean
from cerebro_elastic.recipes.fields import NAME_RULE, RUN_ID
from cerebro_elastic.system.files import (
    as_its_folder,
    disk_full_raised,
    note_place,
    private_folder,
    redacted,
    translated,
    understood,
)
from cerebro_elastic.system.ownership import distrust_folder
from cerebro_elastic.system.process import is_locked
from cerebro_elastic.system.run_key import RunKey
from cerebro_elastic.system.words import for_reader, option

_LOCK, _SPEC = "lock", "spec.json"
_FORMER, _MOVING = ".former", ".former-moving"
"""Folders in a run's folder: of the run put aside, and of files on their way there or back."""
_LOOKED_AT = tenacity.Retrying(
    stop=tenacity.stop_after_delay(0.2),
    wait=tenacity.wait_fixed(0.01),
    retry=tenacity.retry_if_exception_type(BlockingIOError),
    reraise=True,
)
"""Retries for a moment: others may be checking whether the folder is locked."""


def home_of(home: str | Path | None = None) -> Path:
    """The folder of runs: the given one, else ``$CEREBRO_HOME``, else ``./runs``. Raises ``RunError`` for a
    URL."""
    text = str(home or os.environ.get("CEREBRO_HOME", "runs"))
    if "://" in text:
        raise RunError(
            f"the folder of runs is one of this machine, and {redacted(text)} is a URL: `checkpoints` of the "
            "recipe, or --checkpoints, may be one"
        )
    return Path(understood(text))


class _Within:
    """The path of this name in a run's folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: RunFolder, _class: type[RunFolder]) -> Path:
        return folder.path / self._name


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files in a run's folder."""

    path: Path

    @property
    def run(self) -> str:
        """The run's id."""
        return self.path.name

    @property
    def argument(self) -> str:
        """The run as an argument of a command: its id, or its folder if commands look elsewhere."""
        here = self.path.parent == home_of().resolve()
        return shlex.quote(self.run if here else str(self.path))

    etcd = _Within("etcd")
    """The data of the run's own etcd."""
    endpoint = _Within("endpoint")
    """The endpoint of the run's store while it is live."""
    key = _Within("key")
    """The run's key, if its values in the store are signed."""
    spec = _Within(_SPEC)
    """A copy of the run's spec, to read the folder when the store is gone."""
    history = _Within("history.jsonl")
    """The run's record: a line for each event, with its digest."""
    curves = _Within("metrics.csv")
    """Metrics per config and epoch, as CSV."""
    report = _Within("report.html")
    """The report, one page for a browser."""
    check = _Within("check.json")
    """The results of the check whether units equal one ordinary fit."""
    tensorboard = _Within("tensorboard")
    """TensorBoard's files."""
    logged = _Within("logged.json")
    """The part of the history that the loggers have."""
    logs = _Within("logs")
    """The output and logs of the nodes' processes."""
    cache = _Within("cache")
    """The partitions and states cached by this machine's nodes."""
    summary = _Within("summary.json")
    """The run in few values, kept for the list of runs: its record may take seconds to read."""
    owner = _Within("owner")
    """The token by which the place of its checkpoints recognises this folder, if they are elsewhere."""
    former = _Within(_FORMER)
    """The folder of the run that is temporarily put aside (``emptied``)."""
    data = _Within("data")
    """The dataset, if the run prepared it itself."""

    def events(self) -> list[Event]:
        """The history so far, according to the record here."""
        from cerebro_elastic.store.ledger.journal import read_journal

        return read_journal(self.history) if self.history.exists() else []

    def read_spec(self) -> Spec:
        """The run's spec, with its paths moved to the folder's present place. Raises ``RunError`` if its copy
        cannot be read."""
        try:
            spec = decode(self.spec.read_bytes(), Spec)
            named, own = _named_in(spec), (self.path / "checkpoints", self.data, self.etcd)
            # The folder of a machine that joined the run has none of these.
            if named is not None and any(place.is_dir() for place in own):
                note_place(named, self.path.resolve())
            return spec
        except (UnreadableValue, OSError) as exc:
            raise RunError(
                f"{self.spec} is damaged: {exc}; restore it, or start the run anew with "
                f"{option('fresh', 'fresh=True')}"
            ) from exc

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for one ``cerebro run`` at a time; the lock ends with its process. A folder without
        a run at the end is removed, so that the next try finds none. Raises ``FolderInUse``, and ``DiskFull``
        if the block finds no space."""
        with self._lock() as lock:
            try:
                _LOOKED_AT(fcntl.flock, lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not os.fstat(lock.fileno()).st_nlink:
                    raise BlockingIOError("its holder has removed it meanwhile")
            except BlockingIOError as exc:
                watch = for_reader(f"`cerebro status {self.run}`", f"Run.open({self.run!r})")
                raise FolderInUse(
                    f"run {self.run!r} is being run already: watch it with {watch}, or choose another id "
                    f"with {option('run-id')}"
                ) from exc
            try:
                with disk_full_raised(self.path):
                    self._restore()  # a process that had emptied the folder was killed
                    yield
            finally:
                if not self.spec.exists():
                    shutil.rmtree(self.path)

    def is_locked(self) -> bool:
        """Whether another process takes part in the run from this folder."""
        return is_locked(self.path / _LOCK)

    @contextmanager
    def emptied(self) -> Iterator[Callable[[], None]]:
        """Put aside all of the run's files, except this process's lock. The block gets a function that
        deletes them; if the block does not call it, all are put back at the end."""
        former, moving = self.path / _FORMER, self.path / _MOVING
        _delete([former] if former.exists() else [])
        moving.mkdir()
        _move(self._left(), moving)
        moving.rename(former)
        try:
            yield lambda: shutil.rmtree(former)
        finally:
            self._restore()

    def _restore(self) -> None:
        """Put back the files that were put aside, unless another run has begun in their place. It may be
        killed between any two lines, and called again."""
        former, moving = self.path / _FORMER, self.path / _MOVING
        if former.exists() and not self.spec.exists():
            self.clear()
            former.rename(moving)
        if moving.exists():
            _move(list(moving.iterdir()), self.path)
            moving.rmdir()

    def clear(self) -> None:
        """Remove all of the run's files, except this process's lock."""
        _delete(self._left())

    def _left(self) -> list[Path]:
        """The run's files in the folder. The spec is the last one: as long as it exists, so does the run."""
        ours = (_LOCK, _FORMER, _MOVING)
        left = [path for path in self.path.iterdir() if path.name not in ours]
        return sorted(left, key=lambda path: path.name == _SPEC)

    def _lock(self) -> TextIO:
        """The lock's file. It also marks the folder as a run's."""
        lock = self.path / _LOCK
        with translated(RunError, f"cannot keep a run in {self.path}; choose another {option('home')}"):
            private_folder(self.path)
            if not lock.exists() and not self.spec.exists() and any(self.path.iterdir()):
                raise RunError(
                    f"{self.path} exists and is no run's folder: choose another id with {option('run-id')}, "
                    f"or another {option('home')}"
                )
            return open(lock, "w", opener=as_its_folder)


def _named_in(spec: Spec) -> Path | None:
    """The folder's path in the run's record; ``None`` if no path of the record is inside it."""
    own_data = not ({"url", "shards"} & spec.recipe.get("data", {}).keys())
    if spec.recipe.get("checkpoints") is None:
        return Path(spec.storage)
    return Path(spec.data).parent if own_data else None


def _delete(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _move(paths: Iterable[Path], folder: Path) -> None:
    for path in paths:
        path.rename(folder / path.name)


def run_folder(run: str, home: str | Path | None) -> RunFolder:
    """The folder of a run, which may not exist yet. Raises ``RunError`` for an invalid run id."""
    check_id(run)
    return RunFolder(home_of(home).resolve() / run)


def how_to_retry(folder: RunFolder) -> str:
    """Instructions for trying failed configs of the run in this folder again."""
    command = for_reader(f"cerebro retry {folder.argument}", f"Run.open({folder.run!r}).retry()")
    return f"to train what failed again, with the code as it is now: {command}"


def check_id(name: str, what: str = "the run id") -> None:
    """Raise ``RunError`` for an invalid run id, which cannot name a node either."""
    if re.fullmatch(RUN_ID, name) is None:
        raise RunError(f"{what} {name!r} names a folder and keys in etcd: {NAME_RULE}")


def etcd_folder(run: str, home: str | Path | None) -> Path:
    """The folder of the etcd served by ``cerebro etcd`` for the run, with the run's key."""
    return home_of(home).resolve() / f"{run}.etcd"


def known_key(run: str, home: str | Path | None) -> RunKey | None:
    """The run's key, if it is in the environment or in ``home``: beside the run's record, or its etcd."""
    key = RunKey.from_env(os.environ)
    if key is not None:
        return key
    files = (home_of(home) / run / "key", etcd_folder(run, home) / "key")
    return next((RunKey.read(file) for file in files if file.exists()), None)


def find_run(run: str | Path, home: str | Path | None = None) -> RunFolder:
    """The folder of a run by id or path. Raises ``RunError``, with the runs in ``home``, if none exists."""
    home = home_of(home)
    for path in (Path(run).expanduser(), home / str(run)):
        if _holds_run(path):
            return RunFolder(path.resolve())
    refuse_recipe(str(run))
    known = [path.parent.name for path in home.glob("*/spec.json")]
    near = did_you_mean(str(run), known)
    raise RunError(
        f"there is no run {str(run)!r} in {home.resolve()}; {near}; one of other machines is found by "
        f"its etcd: give {option('etcd', 'store')}"
    )


def _holds_run(path: Path) -> bool:
    """Whether the folder holds a readable run. In another user's folder no file may be a pipe, which would
    never open."""
    try:
        if not (path / "spec.json").is_file():
            return False
        if why := distrust_folder(path):
            for file in path.iterdir():
                if not (file.is_file() or file.is_dir()):
                    raise RunError(f"{path} {why}, and {file.name} in it is no ordinary file: it is not read")
    except PermissionError as exc:
        raise RunError(
            f"this user may not read {exc.filename}: its owner can share the run with a group by "
            f"`chmod -R g+rX {path} && chmod go-rwx {path}/key`"
        ) from exc
    return True


def refuse_recipe(run: str) -> None:
    """Raise ``RunError`` if a recipe is named in place of a run."""
    if run.endswith((".yaml", ".yml")):
        raise RunError(
            f"{run} is a recipe, and this command takes a run: its id is the recipe's `name`, by default "
            f"{Path(run).stem!r}"
        )
