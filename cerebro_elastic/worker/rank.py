"""A rank: a service loop that imports torch once and does unit after unit, warm."""

from __future__ import annotations

import importlib
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import torch

from cerebro_elastic import logs
from cerebro_elastic.clock import SystemClock
from cerebro_elastic.config import StoreSettings, seconds_from
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.errors import CerebroError, RunError
from cerebro_elastic.files import private_folder
from cerebro_elastic.parallel import choose, group
from cerebro_elastic.rendezvous.admission import check_admission
from cerebro_elastic.rendezvous.pulses import Pulse
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.client.retrying import PATIENCE, RetryingStore
from cerebro_elastic.store.ledger.foreign import report_once
from cerebro_elastic.store.ledger.nodes import NodeLedger
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.store.ledger.worker import WorkerLedger
from cerebro_elastic.training.unit_runner import UnitRunner
from cerebro_elastic.worker.assignment_watcher import AssignmentWatcher
from cerebro_elastic.worker.attempts import Attempts
from cerebro_elastic.worker.group_rendezvous import needs_group
from cerebro_elastic.worker.leaving import Leaving
from cerebro_elastic.worker.memory import limit_of
from cerebro_elastic.worker.metrics import exposed
from cerebro_elastic.worker.rank_assignment import Identity
from cerebro_elastic.worker.recycling import Growth
from cerebro_elastic.worker.watchdog import Watchdog


def serve(env: Mapping[str, str], leaving: Leaving, pulse: Pulse) -> int | None:
    """Serve the node and run that ``env`` names until the run has ended, or until ``leaving`` is asked and
    what had to be done is done; ``pulse`` is the rank's. The exit code; with 0 the agent ends, too. ``None``:
    to be started anew."""
    logs.start()
    log = logs.EventLog(run=env["CEREBRO_RUN"], node=env["CEREBRO_NODE"])
    try:
        patience = seconds_from(env, "CEREBRO_PATIENCE")
        settings = StoreSettings.from_env(env)
        store = RetryingStore(EtcdStore(settings), PATIENCE if patience is None else patience, log)
        record = Record(store, env["CEREBRO_RUN"], settings.run_key, unreadable=report_once(log))
        try:
            grown = _serve(record, settings.trusted, env, leaving, pulse, log)
        finally:
            store.close()
    except CerebroError as error:
        # Starting anew would not help: this machine has not what the run needs.
        log.error("this machine cannot be a node of the run", error=f"{type(error).__name__}: {error}")
        os.kill(int(env["CEREBRO_AGENT"]), signal.SIGTERM)
        return 1
    if grown:
        return None
    log.info("left" if leaving.asked else "run ended")
    return 0


def _serve(
    record: Record,
    trusted: bool,
    env: Mapping[str, str],
    leaving: Leaving,
    pulse: Pulse,
    log: logs.EventLog,
) -> bool:
    """Whether it ends because the process has grown. What the ledger's store says need not be signed if it is
    ``trusted``."""
    identity = Identity(env["CEREBRO_NODE"], env["CEREBRO_BOOT"], int(env.get("LOCAL_RANK", "0")))
    if env.get("LOCAL_WORLD_SIZE", "1") != "1":
        log = log.bind(local_rank=identity.local_rank)
    with AssignmentWatcher(WorkerLedger(record), identity.node, identity.boot, leaving) as inbox:
        return _work(record, trusted, env, identity, leaving, inbox, pulse, log)


def _work(
    record: Record,
    trusted: bool,
    env: Mapping[str, str],
    identity: Identity,
    leaving: Leaving,
    inbox: AssignmentWatcher,
    pulse: Pulse,
    log: logs.EventLog,
) -> bool:
    warm_up()
    spec = wait_for_spec(record, leaving, log)
    if spec is None or leaving.asked:
        return False
    record.check_signed(trusted)
    check_admission(spec)
    _check_ranks(record, identity, int(env.get("LOCAL_WORLD_SIZE", "1")))
    cache = Path(env.get("CEREBRO_CACHE") or Path.home() / ".cache" / "cerebro")
    private_folder(cache)
    device = f"cuda:{identity.local_rank}" if torch.cuda.is_available() else "cpu"
    clock = SystemClock()
    with (Path(env["CEREBRO_DUMPS"]) / str(identity.local_rank)).open("w") as dump:
        bench, watchdog = UnitRunner(spec, cache, device), Watchdog(dump, clock)
        bench.use_threads()
        _prepare(spec.plan.strategies, torch.device(device))
        address = env.get("MASTER_ADDR", "127.0.0.1")  # the node's own: its agent is a group by itself
        limit = limit_of(env)
        pulse.ready(bench.recipe.limits.hang_seconds, watchdog.doing)
        told = (clock, log, identity, leaving, watchdog, inbox.alarm)
        labels = {"run": spec.plan.run, "node": identity.node}
        with (
            watchdog.catching_crashes(),
            exposed(env, labels, bench.cache, clock.now, log),
            Attempts(WorkerLedger(record), spec, bench, *told, address=address, limit=limit) as attempts,
        ):
            log.info("ready", device=device, threads=torch.get_num_threads())
            if identity.local_rank == 0:
                NodeLedger(record).mark_ready(identity.node, identity.boot, bench.cached())
            growth = Growth(torch.device(device), env)
            while (attempt := inbox.next()) is not None:
                attempts.perform(attempt)
                if growth.too_much(attempts.saving_bytes):
                    log.info("starting anew: memory has grown")
                    return True
            return False


def _prepare(strategies: Sequence[Strategy], device: torch.device) -> None:
    """Import what the first units would import, so that they are like all others."""
    if any(map(needs_group, strategies)):
        group.warm()
    for strategy in strategies:
        with suppress(CerebroError):  # a unit will tell
            choose.prepare(strategy.parallelism, strategy.options, device)


def _check_ranks(record: Record, identity: Identity, ranks: int) -> None:
    node = record.node(identity.node)
    if node is not None and node.boot == identity.boot and node.ranks != ranks:
        raise RunError(
            f"torchrun started {ranks} ranks for the node {node.name}, which says that it has {node.ranks}: "
            f"give its agent --nproc-per-node={ranks} and --rdzv-conf=ranks={ranks}"
        )


def warm_up() -> None:
    """Import behind the wait for the first unit what the first optimizer would import (seconds)."""
    threading.Thread(target=importlib.import_module, args=("torch._dynamo",), daemon=True).start()


def wait_for_spec(record: Record, leaving: Leaving, log: logs.EventLog) -> Spec | None:
    """The run's spec: a node may be there before the run is opened. ``None`` if it is to leave before."""
    revision = record.store.range(record.keys.spec).revision
    spec = record.spec()
    if spec is None:
        log.info("waiting for the run to be opened: if that does not come, is this its id?")
        with record.store.watch(record.keys.spec, revision + 1) as watch:
            while spec is None and not leaving.asked:
                watch.next(0.2)
                spec = record.spec()
    return spec
