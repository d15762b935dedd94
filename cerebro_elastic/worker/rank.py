"""A rank: a service loop that does its task's imports once and then unit after unit, warm."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from cerebro_elastic.config import StoreSettings, cache_folder, seconds_from
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.errors import CerebroError, RunError, StoreUnavailable, TxnUnknown
from cerebro_elastic.hop.spoiled import spoiled
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.client.retrying import PATIENCE, RetryingStore
from cerebro_elastic.store.ledger.foreign import report_once
from cerebro_elastic.store.ledger.nodes import NodeLedger
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.store.ledger.worker import WorkerLedger
from cerebro_elastic.system import logs
from cerebro_elastic.system.addresses import LOOPBACK
from cerebro_elastic.system.clock import Clock, SystemClock
from cerebro_elastic.system.devices import CPU, SHARED, device_of, is_accelerator, kind_here, limit, use
from cerebro_elastic.system.files import private_folder
from cerebro_elastic.system.listening import own_address
from cerebro_elastic.training.unit_runner import UnitRunner
from cerebro_elastic.worker.assignment_watcher import AssignmentWatcher
from cerebro_elastic.worker.group_rendezvous import RankIdentity, needs_group
from cerebro_elastic.worker.leaving import Leaving
from cerebro_elastic.worker.rank_attempt import perform
from cerebro_elastic.worker.rank_context import RankContext
from cerebro_elastic.worker.rendezvous.compatibility import check_compatible
from cerebro_elastic.worker.rendezvous.heartbeats import Heartbeat
from cerebro_elastic.worker.resources import Growth, bytes_of, free_bytes, limit_of
from cerebro_elastic.worker.watchdog import Watchdog


def serve(env: Mapping[str, str], leaving: Leaving, heartbeat: Heartbeat) -> int | None:
    """Serve the node and run that ``env`` names, as the agent has set it, until the run has ended or the rank
    has left.

    Returns:
        The exit code; with 0 the agent ends, too. ``None``: a fresh process must replace this one.
    """
    logs.start()
    log = logs.EventLog(run=env["CEREBRO_RUN"], node=env["CEREBRO_NODE"])
    try:
        patience = seconds_from(env, "CEREBRO_PATIENCE")
        settings = StoreSettings.from_env(env)
        etcd = EtcdStore(settings)
        store = RetryingStore(etcd, PATIENCE if patience is None else patience, log)
        record = Record(store, env["CEREBRO_RUN"], settings.run_key, unreadable=report_once(log))
        try:
            # The times of visits are compared with those of other hosts.
            clock = SystemClock(ahead=lambda: etcd.clock_ahead)
            grown = _serve(record, settings, env, leaving, heartbeat, log, clock)
        finally:
            store.close()
    except CerebroError as error:
        if leaving.asked and isinstance(error, StoreUnavailable | TxnUnknown):
            log.warning("left without a last word: the store does not answer", why=str(error))
            return 0
        # A new start would not help: this machine lacks requirements of the run.
        log.error("this machine cannot be a node of the run", error=f"{type(error).__name__}: {error}")
        os.kill(int(env["CEREBRO_AGENT"]), signal.SIGTERM)
        return 1
    if grown:
        return None
    log.info("left" if leaving.asked else "run ended")
    return 0


def _serve(
    record: Record,
    settings: StoreSettings,
    env: Mapping[str, str],
    leaving: Leaving,
    heartbeat: Heartbeat,
    log: logs.EventLog,
    clock: Clock,
) -> bool:
    """Do unit after unit. Returns whether a fresh process must continue."""
    identity = RankIdentity(env["CEREBRO_NODE"], env["CEREBRO_BOOT"], int(env.get("LOCAL_RANK", "0")))
    ranks, ledger = int(env.get("LOCAL_WORLD_SIZE", "1")), WorkerLedger(record)
    log = log if ranks == 1 else log.bind(local_rank=identity.local_rank)
    with AssignmentWatcher(ledger, identity.node, identity.boot, leaving) as assignments:
        spec = wait_for_spec(record, leaving, log)
        if spec is None or leaving.asked:
            return False
        record.check_signed(settings.trusted)
        check_compatible(spec)
        _check_ranks(record, identity, ranks)
        with (Path(env["CEREBRO_DUMPS"]) / str(identity.local_rank)).open("w") as dump:
            watchdog = Watchdog(dump, clock)
            runner = _unit_runner(spec, env, identity.local_rank, watchdog.beat)

            def home() -> list[int] | None:
                homes = record.homes()
                return [j for j, names in homes.items() if identity.node in names] if homes else None

            with suppress(CerebroError):  # the first unit reports the error
                runner.count_rows(partial(_beat, watchdog, leaving), home)
            context = RankContext(
                ledger=ledger,
                spec=spec,
                unit_runner=runner,
                clock=clock,
                log=log,
                identity=identity,
                leaving=leaving,
                watchdog=watchdog,
                alarm=assignments.alarm,
                # The node's own: its agent is a group of one.
                address=partial(own_address, env.get("MASTER_ADDR", LOOPBACK), settings.servers),
                memory_limit_bytes=limit_of(env),
                shares_device=SHARED in env,
                next_waits=assignments.waits,
            )
            heartbeat.ready(runner.recipe.limits.hang_seconds, watchdog.activity)
            with watchdog.catching_crashes(), context:
                return _do_units(context, assignments, env)


def _unit_runner(spec: Spec, env: Mapping[str, str], local_rank: int, beat: Callable[[], None]) -> UnitRunner:
    """The run's task and data on this rank's device, with the imports of the first units done."""
    cache = cache_folder(env)
    private_folder(cache)
    uses_torch = spec.load_recipe().task.ARRAYS == "torch"  # no task is imported to know that
    device = device_of(kind_here(), local_rank) if uses_torch else CPU
    use(device)
    if is_accelerator(device) and (most := limit_of(env)) is not None:
        limit(device, most)
    runner = UnitRunner(spec, cache, device, bytes_of(env, "CEREBRO_CACHE_BYTES"), beat)
    runner.use_threads()
    runner.share_batches(_batch_bytes(env, runner.recipe, cache))
    if uses_torch:
        _prepare(spec.plan.strategies, device)
    return runner


def _beat(watchdog: Watchdog, leaving: Leaving) -> None:
    watchdog.beat()
    if leaving.asked:
        raise RunError("the node is leaving")


def _do_units(context: RankContext, assignments: AssignmentWatcher, env: Mapping[str, str]) -> bool:
    """Do assigned units until the run ends, the rank must leave, or only a fresh process can continue
    (``True``): this one has grown, or a unit has changed shared variables of configs."""
    runner, identity = context.unit_runner, context.identity
    leads_node = identity.local_rank == 0
    context.log.info("ready", device=runner.device, threads=runner.recipe.node.threads)
    if leads_node:
        assignments.on_queued = context.state_fetcher.queued
        NodeLedger(context.ledger.record).mark_ready(identity.node, identity.boot, runner.cached())
    growth: Growth | None = None
    while (attempt := assignments.next()) is not None:
        perform(context, attempt, assignments.registered)
        # The first unit loads libraries, an accelerator's of gigabytes.
        growth = growth or Growth(runner.device, env)
        why = "a unit has changed variables that configs share" if spoiled() else None
        if why is None and growth.too_much(context.writer.saving_bytes):
            why = "memory has grown"
        if why is not None:
            context.log.info(f"restarting: {why}")
            return True
    if not context.leaving.asked:
        runner.forget_batches()
    if leads_node:
        assignments.give_up()
    return False


def _batch_bytes(env: Mapping[str, str], recipe: Recipe, cache: Path) -> int:
    """The most bytes of made batches that the host keeps: the machine's or the recipe's limit, or a part of
    the room."""
    limits = (bytes_of(env, "CEREBRO_BATCH_CACHE_BYTES"), recipe.node.batch_cache_bytes)
    given = next((limit for limit in limits if limit is not None), None)
    free = min(shutil.disk_usage(cache).free // 4, free_bytes(CPU, None) // 2)
    return max(0, free) if given is None else given


def _prepare(strategies: Sequence[Strategy], device: str) -> None:
    """Do the imports of the first units, so that these are like all others."""
    import torch

    from cerebro_elastic.training.parallel import group
    from cerebro_elastic.training.parallel.base import make_parallelism

    if any(map(needs_group, strategies)):
        group.warm()
    for strategy in strategies:
        with suppress(CerebroError):  # the first unit that needs it reports the error
            make_parallelism(strategy.parallelism, strategy.options).prepare(torch.device(device))


def _check_ranks(record: Record, identity: RankIdentity, ranks: int) -> None:
    node = record.node(identity.node)
    if node is not None and node.boot == identity.boot and node.ranks != ranks:
        raise RunError(
            f"torchrun started {ranks} ranks for the node {node.name}, which registered {node.ranks}: "
            f"give its agent --nproc-per-node={ranks} and --rdzv-conf=ranks={ranks}"
        )


def wait_for_spec(record: Record, leaving: Leaving, log: logs.EventLog) -> Spec | None:
    """The run's spec: a node may exist before the run is opened. ``None`` if it must leave before."""
    revision = record.store.range(record.keys.spec).revision
    spec = record.spec()
    if spec is None:
        log.info("waiting for the run to be opened: if that does not come, is this its id?")
        with record.store.watch(record.keys.spec, revision + 1) as watch:
            while spec is None and not leaving.asked:
                watch.next(0.2)
                spec = record.spec()
    return spec
