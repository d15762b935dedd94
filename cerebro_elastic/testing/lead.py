"""``python -m cerebro_elastic.testing.lead FOLDER NAME``: a candidate for the lead of the run in FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.controller.controller import Controller, Deposed
from cerebro_elastic.errors import LeaseLost
from cerebro_elastic.process import watch_parent
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.registry import load
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.launch import make_search
from cerebro_elastic.store.etcd import EtcdStore
from cerebro_elastic.store.journal import Journal
from cerebro_elastic.store.lease import LeaseKeeper
from cerebro_elastic.store.ledger import Ledger
from cerebro_elastic.testing.faulty import wrap_controller


def main() -> None:
    import os
    import signal

    watch_parent(int(os.environ["CEREBRO_PARENT"]), lambda: os.kill(os.getpid(), signal.SIGTERM))
    wrap_controller()
    folder, name = RunFolder(Path(sys.argv[1])), sys.argv[2]
    spec = folder.read_spec()
    recipe = load_recipe(spec.recipe, root=spec.root)
    store = EtcdStore(StoreSettings.from_env())
    ledger = Ledger(store, folder.run)
    policy = load("cerebro.schedulers", recipe.scheduler)()
    while not ledger.ended():
        try:
            with LeaseKeeper(store, 5.0) as keeper:
                while True:
                    snapshot = store.range(ledger.keys.leader)
                    leader = ledger.lead(name, keeper.lease)
                    if leader is not None or ledger.ended():
                        break
                    with store.watch(ledger.keys.leader, snapshot.revision + 1) as watch:
                        watch.next(5.0)
                if leader is None:
                    break
                journal = Journal(folder.history)
                with Controller(
                    ledger,
                    policy,
                    make_search(recipe),
                    name=name,
                    leader=leader,
                    observe=lambda events, _state: journal.append(events),
                ) as controller:
                    journal.catch_up(ledger, controller.state, leader)
                    while controller.state.outcome is None:
                        controller.step(0.5)
        except (Deposed, LeaseLost) as error:
            print(error, flush=True)


main()
