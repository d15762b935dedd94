"""Where the runs are that a server shows: the folders of a home, or the keys of an etcd."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import RunError, did_you_mean
from cerebro_elastic.runs.attach import runs_in, store_of, with_key
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.store.client.etcd import EtcdStore

_PATIENCE = 5.0
"""Seconds after which an etcd that is silent counts as out of reach."""


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Where one run is."""

    run: str
    home: Path
    """The folder of runs on this machine."""
    etcd: StoreSettings | None
    """The etcd of a run of other machines; ``None``: the run is that of its folder."""

    @property
    def folder(self) -> RunFolder:
        """The run's folder, which need not exist if the run has an ``etcd``."""
        return RunFolder(self.home / self.run)

    def store(self) -> StoreSettings | None:
        """The settings of the store while the run may be live; ``None`` if it surely is not."""
        settings: StoreSettings | None = None
        if self.etcd is not None:
            settings = with_key(self.etcd, self.run, self.home)
        elif self.folder.endpoint.exists():
            settings = store_of(self.folder)
        return settings and replace(settings, patience=min(settings.patience, _PATIENCE))


@dataclass(frozen=True, slots=True)
class Places:
    """Where all runs are that are shown."""

    home: Path
    """The folder of runs on this machine."""
    etcd: StoreSettings | None = None
    """The etcd whose runs are shown, instead of those of ``home``."""

    def runs(self) -> list[str]:
        """The ids of the runs, sorted."""
        if self.etcd is None:
            return sorted(path.parent.name for path in self.home.glob("*/spec.json"))
        with closing(EtcdStore(replace(self.etcd, patience=_PATIENCE))) as store:
            return runs_in(store)

    def place(self, run: str) -> RunPlace:
        """The place of the run with this id. Raises ``RunError`` with the known ids."""
        known = self.runs()
        if run not in known:
            where = self.home.resolve() if self.etcd is None else ", ".join(self.etcd.endpoints)
            raise RunError(f"there is no run {run!r} in {where}; {did_you_mean(run, known)}")
        return self.place_of(run)

    def place_of(self, run: str) -> RunPlace:
        """The place of a run that is known to be there."""
        return RunPlace(run, self.home, self.etcd)
