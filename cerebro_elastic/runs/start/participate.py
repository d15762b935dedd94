"""Lets a machine take part in a live run: with nodes, and as a candidate for the lead. An etcd that serves
one run ends when no machine is present."""

from __future__ import annotations

import json
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import TypeAlias

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.controller.candidate import Candidate, Host
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.interfaces import Policy
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import CerebroError, StoreError, TxnUnknown
from cerebro_elastic.registry import load
from cerebro_elastic.runs import counting
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.from_recipe import make_search
from cerebro_elastic.runs.logging.loggers import Loggers
from cerebro_elastic.runs.record_copy import RecordCopy
from cerebro_elastic.runs.start.agents import LocalAgents
from cerebro_elastic.runs.start.machine import Accelerators
from cerebro_elastic.runs.start.reuse import read_reusable
from cerebro_elastic.runs.terminal_view import Watcher
from cerebro_elastic.runs.versions import on_record
from cerebro_elastic.store.client.base import Put
from cerebro_elastic.store.client.lease import LeaseKeeper
from cerebro_elastic.store.client.retrying import PATIENCE
from cerebro_elastic.store.ledger.journal import Journal
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.departure import interrupts_at_rest, within
from cerebro_elastic.system.files import locate, write_text

_END_SECONDS = 20.0
"""Ranks take seconds to end: they have torch to unload."""


StopCondition: TypeAlias = Callable[[LocalAgents, list[Event], State], None]
"""Raises if this machine should stop taking part with its agents."""


def take_part(
    record: Record,
    spec: Spec,
    folder: RunFolder,
    settings: StoreSettings,
    names: Sequence[str],
    stop_condition: StopCondition,
    *,
    journal: Journal,
    grace: float,
    watcher: Watcher,
    env: Mapping[str, str],
    accelerators: Accelerators,
) -> None:
    """Take part until the run has ended: with nodes of these ``names``, which are restarted as needed, and as
    its leader whenever elected.

    The stop condition is called after each event and about twice a second; this machine stops taking part
    when it raises, and on Ctrl-C and SIGTERM. The ``journal`` also records the nodes' events during their
    stop. The nodes have ``grace`` seconds to leave and ``env`` in their environment, and share the
    ``accelerators``.
    """
    recipe = spec.load_recipe()
    agents = LocalAgents(
        spec.plan.run,
        folder,
        settings,
        names,
        ranks=recipe.node.ranks,
        accelerators=accelerators,
        grace=grace,
        since=record.now(),
        say=watcher.say,
        env=env,
    )
    loggers = Loggers(recipe, spec, folder, env)
    with interrupts_at_rest(grace, agents.ask) as look:

        def observe(events: list[Event], state: State) -> None:
            agents.observe(events)
            watcher.show(events, state)
            look()
            stop_condition(agents, events, state)

        def pause(state: State) -> None:
            agents.keep()
            watcher.show([], state)
            look()
            if copied is not None:
                copied.check(record.now)
            stop_condition(agents, [], state)

        policy: Policy = load("cerebro.schedulers", recipe.scheduler)()
        candidate = Candidate(
            record,
            policy,
            make_search(recipe),
            journal,
            Host(observe=observe, say=watcher.say, pause=pause),
            versions=on_record(spec),
            reusable=read_reusable(spec, watcher.say).steps,
        )
        copied = copy_of_record(folder, spec, settings, candidate, watcher.say)
        counting_said = counting.saying(spec, watcher.say)
        with copied or nullcontext(), loggers.written(record, candidate, watcher.say), counting_said:
            try:
                with agents:
                    candidate.run()
                    agents.wait(_END_SECONDS)
            except BaseException:  # Ctrl-C, too
                with suppress(CerebroError):  # such as one more DiskFull
                    candidate.catch_up()
                raise


def copy_of_record(
    folder: RunFolder,
    spec: Spec,
    settings: StoreSettings,
    candidate: Candidate,
    say: Callable[[str], None],
) -> RecordCopy | None:
    """The copy of the record on the storage of checkpoints, kept while the candidate leads; ``None`` if that
    storage is the run's folder, which has the record."""
    if settings.run_key is None or locate(spec.storage).path == str(folder.path):
        return None
    return RecordCopy(folder, spec.storage, settings.run_key, candidate.name, lambda: candidate.leads, say)


@contextmanager
def publish_endpoint(folder: RunFolder, settings: StoreSettings) -> Iterator[None]:
    """Write the endpoint of the run's store to the folder, as long as this machine takes part."""
    write_text(folder.endpoint, ",".join(settings.endpoints))
    try:
        yield
    finally:
        folder.endpoint.unlink(missing_ok=True)


PRESENT_SECONDS = 1.5 * PATIENCE
"""Seconds for which a silent machine counts as present. One that leaves says so. Presence is renewed each
third of this, so it outlasts any outage for which machines wait for etcd."""
_LOOK_SECONDS, _LEAVE_SECONDS, _LEAST_SECONDS = 1.0, 2.0, 0.5


@contextmanager
def present(record: Record, seconds: float = PRESENT_SECONDS) -> Iterator[None]:
    """Register this machine for the block as a participant of the run; again, if that is lost."""
    key, host = record.keys.hosts + uuid.uuid4().hex, json.dumps({"host": socket.gethostname()}).encode()
    left = threading.Event()

    def register() -> LeaseKeeper:
        keeper = LeaseKeeper(record.store, seconds)
        while True:
            with suppress(TxnUnknown):  # writing it twice does no harm
                record.store.txn([], [Put(key, host, keeper.lease)])
                return keeper

    def stay(keeper: LeaseKeeper) -> None:
        while not left.wait(_LOOK_SECONDS):
            if keeper.lost.is_set():
                with suppress(StoreError):
                    keeper = register()
        with suppress(StoreError):
            keeper.revoke()

    thread = threading.Thread(target=stay, args=(register(),), name="presence", daemon=True)
    thread.start()
    try:
        yield
    finally:
        left.set()
        # Without etcd it takes longer and is useless.
        thread.join(within(_LEAVE_SECONDS, _LEAST_SECONDS))
