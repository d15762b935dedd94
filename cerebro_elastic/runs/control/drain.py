"""``cerebro drain``: a node is asked to leave a run."""

from __future__ import annotations

from pathlib import Path

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import RunError, did_you_mean
from cerebro_elastic.runs.attach import live_run, locate
from cerebro_elastic.store.ledger.nodes import NodeLedger

A_DAY = 86_400.0
"""Seconds within which any unit is finished."""


def drain(
    run: str | Path,
    node: str,
    *,
    grace: float = A_DAY,
    home: str | Path | None = None,
    store: StoreSettings | None = None,
) -> None:
    """Ask ``node`` to leave ``run``: it gets no more units, and finishes the one that it has if that takes no
    longer than ``grace`` seconds; else it hands it on at a batch boundary. Then it ends.

    Raises ``RunError`` if the run is not live or has no such node.
    """
    if grace < 0:
        raise RunError(f"grace is {grace:g}: give a number of seconds from 0 on")
    with live_run(*locate(run, home, store)) as (record, _):
        if not NodeLedger(record).drain(node, grace):
            nodes = record.state().nodes
            raise RunError(
                f"no node {node!r} is registered in run {record.keys.run!r}; {did_you_mean(node, nodes)}"
            )
