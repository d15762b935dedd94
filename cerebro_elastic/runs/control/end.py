"""Ends a live run early: stops all its configs, also those that the search proposes in their place."""

from __future__ import annotations

import time
from pathlib import Path

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.attach import live_run, locate
from cerebro_elastic.store.ledger.operators import OperatorLedger

_SECONDS = 30.0
_PAUSE = 0.1


def end(
    run: str | Path,
    *,
    reason: str = "the run was ended by hand",
    home: str | Path | None = None,
    store: StoreSettings | None = None,
) -> int:
    """Stop all live configs of a run until its leader ends it. What they have committed stays.

    Args:
        run: The run's id, or its folder on this machine.
        reason: Why, for the record of each config.
        home: The folder of runs, by default ``$CEREBRO_HOME``, else ``./runs``.
        store: The etcd of a run of other machines.

    Returns:
        The number of configs that were stopped.

    Raises:
        RunError: The run is not live, or has not ended after 30 seconds.
    """
    stopped: set[str] = set()
    until = time.monotonic() + _SECONDS
    with live_run(*locate(run, home, store)) as (record, _):
        while not record.ended():
            state = record.state()
            live = [name for name, config in state.configs.items() if config.status is Status.LIVE]
            for name in live:
                OperatorLedger(record).stop(name, reason)
            stopped.update(live)
            if state.leader is None and not live:
                raise RunError(
                    f"all configs of run {record.keys.run!r} are stopped, but no controller leads it: it "
                    "ends once one does"
                )
            if time.monotonic() > until:
                raise RunError(
                    f"run {record.keys.run!r} has not ended after {_SECONDS:g} s, in which {len(stopped)} "
                    "configs were stopped: its search proposes new ones. Stop the command that runs it"
                )
            time.sleep(_PAUSE)
    return len(stopped)
