"""Removes runs, and checkpoints of runs that have ended. The removal is announced first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.errors import CerebroError, FolderInUse, RunError, did_you_mean
from cerebro_elastic.reporting.results import ConfigResult
from cerebro_elastic.reporting.tables import bytes_text, day_text
from cerebro_elastic.runs.attach import record_in, with_key
from cerebro_elastic.runs.catalog import disk_bytes, folders, places_of
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.owner import left_alone, owns, refuse_others
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.store.client.base import Delete
from cerebro_elastic.system.files import check_own, exists, locate, redacted, remove, sizes, translated
from cerebro_elastic.system.words import counted, some_of

Kept: TypeAlias = Literal["best", "last", "winner"]
"""The checkpoints that stay: each config's best, each config's last, or the best config's best."""

_PATIENCE = 3.0
"""Seconds of the wait for an etcd that may be gone."""
_KEYS = 100
"""The most keys deleted at once; etcd takes 128."""


def check_kept(names: Sequence[str]) -> tuple[Kept, ...]:
    """The rules of these names. Raises ``RunError`` for another one."""
    rules: dict[str, Kept] = {name: name for name in get_args(Kept)}
    for name in names:
        if name not in rules:
            raise RunError(f"{name!r} is nothing to keep; {did_you_mean(name, rules)}")
    return tuple(dict.fromkeys(rules[name] for name in names))


@dataclass(frozen=True, slots=True)
class Removal:
    """The parts of a run to remove."""

    folder: RunFolder
    spec: Spec | None
    """``None`` if it cannot be read: only the folder is known then."""

    @classmethod
    def of(cls, folder: RunFolder) -> Removal:
        """The removal of the run in this folder. Raises ``RunError`` if it is live, or another user's."""
        check_own(folder.path)
        _refuse_live(folder, "removed")
        try:
            spec: Spec | None = folder.read_spec()
        except CerebroError:
            spec = None
        removal = cls(folder, spec)
        removal._check_ended()
        return removal

    def lines(self) -> Iterator[str]:
        """A sentence for each part to remove, and for each run that depends on it."""
        places = places_of(self.folder, self.spec) if self.spec is not None else [self.folder.path]
        for place in places:
            yield f"{place} ({bytes_text(disk_bytes(place))})"
        if (url := self._storage()) is not None:
            with translated(RunError, f"cannot read {redacted(url)}"):
                count = sizes(locate(url)) if exists(locate(url)) else {}
            yield f"{redacted(url)} ({counted(len(count), 'file')}, {bytes_text(sum(count.values()))})"
        elif (spec := self.spec) and spec.plan.run == self.folder.run and not owns(self.folder, spec.storage):
            yield left_alone(spec.storage)
        if (store := self._etcd()) is not None:
            yield f"the keys of the run in the etcd at {', '.join(store.endpoints)}"
        for name in users_of(self.folder, self.spec):
            yield (
                f"note: run {name} reads a checkpoint or the data of this one: without them it can be "
                "neither replayed nor continued"
            )

    def perform(self) -> None:
        """Remove the run. Raises ``RunError`` if it has become live."""
        try:
            with self.folder.locked():
                if (url := self._storage()) is not None:
                    with translated(RunError, f"cannot delete {redacted(url)}"):
                        remove(locate(url))
                if (store := self._etcd()) is not None:
                    _delete_keys(store, self.folder.run)
                if self.spec is not None:
                    for place in places_of(self.folder, self.spec)[1:]:
                        remove(locate(str(place)))
                self.folder.clear()  # a folder without a run is removed with its lock
        except FolderInUse:
            _refuse_live(self.folder, "removed")

    def _storage(self) -> str | None:
        """The URL of checkpoints and logs, unless they are on this machine or belong to another run."""
        spec = self.spec
        if spec is None or spec.plan.run != self.folder.run or locate(spec.storage).local:
            return None
        if not owns(self.folder, spec.storage):
            return None
        return spec.storage

    def _etcd(self) -> StoreSettings | None:
        """The etcd that the run shares with others and that still has its keys."""
        etcd = self.spec.recipe.get("etcd") if self.spec is not None else None
        if not etcd or self.spec is None or self.spec.plan.run != self.folder.run:
            return None
        settings = with_key(StoreSettings.at(str(etcd)), self.folder.run, self.folder.path.parent)
        return replace(settings, patience=_PATIENCE)

    def _check_ended(self) -> None:
        """Raise ``RunError`` if other machines run it."""
        settings = self._etcd()
        if settings is None:
            return
        with record_in(settings, self.folder.run) as record:
            if record.spec() is not None and not record.ended() and record.state().nodes:
                raise RunError(
                    f"run {self.folder.run!r} is live on other machines: end it first, by "
                    f"`cerebro stop {self.folder.run} --all`"
                )


def _delete_keys(settings: StoreSettings, run: str) -> None:
    with record_in(settings, run) as record:
        store = record.store.bare
        keys = [item.key for item in store.range(record.keys.prefix).items]
        for first in range(0, len(keys), _KEYS):
            store.txn([], [Delete(key) for key in keys[first : first + _KEYS]])


def _refuse_live(folder: RunFolder, what: str) -> None:
    if folder.is_locked():
        raise RunError(
            f"run {folder.run!r} is live, and only one that is not can be {what}: stop the command that runs "
            f"it, or end it by `cerebro stop {folder.run} --all`"
        )


def users_of(folder: RunFolder, spec: Spec | None) -> list[str]:
    """The other runs of the home that read this run's checkpoints or data."""
    storage = spec.storage if spec is not None else str(folder.path)
    prefixes = tuple({f"{storage}/", f"{folder.path}/"})
    return [
        run
        for run, data, start in _other_runs(folder)
        if f"{data}/".startswith(prefixes) or start.startswith(prefixes)
    ]


def _other_runs(folder: RunFolder) -> Iterator[tuple[str, str, str]]:
    """The other readable runs of the home: id, data, and the checkpoint with which they began, if any."""
    for other in folders(folder.path.parent):
        if other.path != folder.path:
            with suppress(CerebroError):
                spec = other.read_spec()
                start = spec.plan.start
                yield other.run, spec.data, start.checkpoint.url if start is not None else ""


@dataclass(frozen=True, slots=True)
class Pruning:
    """The checkpoints of a run to remove."""

    run: str
    keep: tuple[Kept, ...]
    urls: tuple[str, ...]
    """The checkpoints to remove."""
    bytes: int
    """Their size."""
    kept: int
    """The number of checkpoints that stay."""
    configs: int
    """The number of the run's configs."""
    exportable: tuple[str, ...]
    """The configs whose best checkpoint stays: they can be exported, and other runs can begin with them."""
    extendable: tuple[str, ...]
    """The configs whose last checkpoint stays: the run can be extended by them."""
    used_by: tuple[str, ...]
    """The other runs that began with a checkpoint to remove."""

    def lines(self) -> Iterator[str]:
        """A sentence for each part to remove, and for each remaining use."""
        if not self.urls:
            yield f"run {self.run}: nothing to remove"
            return
        yield (
            f"run {self.run}: removes {counted(len(self.urls), 'checkpoint')} ({bytes_text(self.bytes)}), "
            f"keeps {self.kept} ({' and '.join(self.keep)})"
        )
        yield f"export, and the start of other runs: {self._of(self.exportable)}"
        yield f"extend: {self._of(self.extendable)}"
        yield "replay: of all configs, as before: it trains again from the beginning"
        yield "verify: of the whole record, as before; the removed checkpoints are listed as removed"
        for name in self.used_by:
            yield f"note: run {name} began with one of these: it can then be neither replayed nor continued"

    def _of(self, names: tuple[str, ...]) -> str:
        if len(names) == self.configs:
            return "of all configs, as before"
        return f"of {some_of(names, 8)} only" if names else "not any more"


def pruning(result: RunResult, keep: Sequence[str]) -> Pruning:
    """The checkpoints that ``prune`` would remove.

    Raises:
        RunError: The run has not ended, is live, or is another user's.
    """
    folder, kept = result.folder, check_kept(keep)
    check_own(folder.path)
    _refuse_live(folder, "pruned")
    refuse_others(result.spec.storage, folder)
    if result.view.state.outcome is None:
        raise RunError(
            f"run {result.run!r} has not ended, and needs its checkpoints to continue: only a run that has "
            "ended can be pruned"
        )
    rows = result.leaderboard
    stays = {
        ref.url
        for row in rows
        for each in row.trainings
        for ref in _kept(each, kept, row is rows[0])
        if ref is not None
    }
    root = f"{result.spec.storage}/checkpoints"
    found = _checkpoints(root)
    urls = tuple(sorted(set(found) - stays))
    return Pruning(
        run=result.run,
        keep=kept,
        urls=urls,
        bytes=sum(found[url] for url in urls),
        kept=len(set(found) & stays),
        configs=len(rows),
        exportable=_with(rows, found.keys() & stays, lambda row: row.best_checkpoint),
        extendable=_with(rows, found.keys() & stays, lambda row: row.checkpoint),
        used_by=tuple(run for run, _, start in _other_runs(folder) if start in urls),
    )


def _with(
    rows: Sequence[ConfigResult], urls: Set[str], pick: Callable[[ConfigResult], CheckpointRef | None]
) -> tuple[str, ...]:
    """The configs whose picked checkpoint is one of ``urls``."""
    refs = ((row.config, pick(row)) for row in rows)
    return tuple(sorted(config for config, ref in refs if ref is not None and ref.url in urls))


def prune(result: RunResult, planned: Pruning) -> None:
    """Remove the ``planned`` checkpoints; a note stays in the place of each."""
    from cerebro_elastic.hop import checkpoint

    with result.folder.locked():
        keep = " ".join(planned.keep) or "none"
        for url in planned.urls:
            checkpoint.prune(
                url, f"removed by `cerebro rm --checkpoints` on {day_text(time.time())}, keep: {keep}"
            )
        checkpoint.sweep(f"{result.spec.storage}/checkpoints")


def _kept(row: ConfigResult, keep: tuple[Kept, ...], wins: bool) -> Iterator[CheckpointRef | None]:
    if "best" in keep or ("winner" in keep and wins):
        yield row.best_checkpoint
    if "last" in keep:
        yield row.checkpoint


def _checkpoints(root: str) -> dict[str, int]:
    """The URLs of all checkpoints below ``root``, and their sizes."""
    with translated(RunError, f"cannot read the checkpoints in {redacted(root)}"):
        place = locate(root)
        found = sizes(place) if exists(place) else {}
    names = {path.rpartition("/")[0] for path in found if path.endswith("/manifest.json")}
    total = dict.fromkeys(names, 0)
    for path, size in found.items():
        if (name := path.rpartition("/")[0]) in total:
            total[name] += size
    return {f"{root}/{name.removeprefix(place.path).strip('/')}": size for name, size in total.items()}
