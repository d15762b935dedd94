"""Where the runs are that a server shows: the folders of a home, or the keys of an etcd."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import RunError, did_you_mean
from cerebro_elastic.runs.attach import runs_in
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.run import Run
from cerebro_elastic.store.client.etcd import EtcdStore

PATIENCE = 5.0
"""Seconds after which an etcd that is silent counts as out of reach."""


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
        """A run that is known to be there."""
        return Run(RunFolder(self.home / run), self.etcd)
