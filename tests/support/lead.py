"""``python -m support.lead FOLDER NAME``: a candidate for the lead of the run in FOLDER,
without a node; what it has seen is on record below ``FOLDER/records/NAME``."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import closing
from pathlib import Path

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.controller.candidate import Candidate, Host
from cerebro_elastic.registry import load
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.from_recipe import make_search
from cerebro_elastic.runs.versions import deciding
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.ledger.journal import Journal
from cerebro_elastic.system.process import watch_parent
from support.faulty import wrap_controller
from support.ledger import Ledger


def record_of(folder: RunFolder, candidate: str) -> RunFolder:
    """What a candidate has seen of the run in ``folder``, as the folder of a run."""
    return RunFolder(folder.path / "records" / candidate)


def main() -> None:
    watch_parent(int(os.environ["CEREBRO_PARENT"]), lambda: os.kill(os.getpid(), signal.SIGTERM))
    wrap_controller()
    folder, name = RunFolder(Path(sys.argv[1])), sys.argv[2]
    record = record_of(folder, name)
    record.path.mkdir(parents=True, exist_ok=True)
    record.spec.write_bytes(folder.spec.read_bytes())
    spec = record.read_spec()
    recipe = spec.load_recipe()
    settings = StoreSettings.from_env()
    with closing(EtcdStore(settings)) as store:
        Candidate(
            Ledger(store, folder.run, settings.run_key),
            load("cerebro.schedulers", recipe.scheduler)(),
            make_search(recipe),
            Journal(record.history),
            Host(say=lambda text: print(text, flush=True)),
            name=name,
            versions=deciding(recipe),
        ).run()


if __name__ == "__main__":
    main()
