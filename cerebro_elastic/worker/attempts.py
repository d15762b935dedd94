"""One attempt, on one of its ranks: take part, and tell what becomes of it; or why nothing does.

The rank that leads commits for all. A failure is told by the rank that has it; the first one counts, since
with it the attempt ends for all of its nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from typing import Self

import torch

from cerebro_elastic.clock import Clock
from cerebro_elastic.core.model.attempts import Attempt, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.errors import CerebroError, GroupBroken
from cerebro_elastic.logs import EventLog
from cerebro_elastic.parallel import group
from cerebro_elastic.store.ledger.meetings import Meetings
from cerebro_elastic.store.ledger.nodes import NodeLedger
from cerebro_elastic.store.ledger.worker import WorkerLedger
from cerebro_elastic.training.task import Stopped
from cerebro_elastic.training.unit_runner import UnitRunner
from cerebro_elastic.worker import memory
from cerebro_elastic.worker.checkpoint_collector import CheckpointCollector
from cerebro_elastic.worker.failure import failure_of
from cerebro_elastic.worker.group_rendezvous import GroupRendezvous, Withdrawn, needs_group
from cerebro_elastic.worker.leaving import Leaving
from cerebro_elastic.worker.profiles import Profiles
from cerebro_elastic.worker.rank_assignment import Identity, RankAssignment, seat_of, stale
from cerebro_elastic.worker.repair import Repairs
from cerebro_elastic.worker.saving import Writer
from cerebro_elastic.worker.state_fetcher import StateFetcher
from cerebro_elastic.worker.units import Saved, Trained, Units
from cerebro_elastic.worker.watchdog import Watchdog

_VERDICT = 0.25
"""The part of the time after which a rank counts as hanging that the lead waits, when its group has broken,
for somebody to say why: who hangs is ended by then, who died was found by its agent."""
_LOOK_SECONDS = 0.1

QUICK = 0.05
"""Seconds in which a state is saved without that being worth telling: the node goes on when it is done."""
_ROOM = 2
"""So many times the bytes of a state must be free on the host for the next one to come beside it."""


class Attempts:
    """Performs the attempts of one process, one after the other. Others reach it at ``address``; a unit may
    take ``limit`` bytes (``None``: what there is). A unit of one node whose save takes longer than ``quick``
    seconds is saved behind the next one; ``alarm`` is told what ends the saving of all."""

    def __init__(
        self,
        ledger: WorkerLedger,
        spec: Spec,
        bench: UnitRunner,
        clock: Clock,
        log: EventLog,
        identity: Identity,
        leaving: Leaving,
        watchdog: Watchdog,
        alarm: Callable[[BaseException], None],
        *,
        address: str = "127.0.0.1",
        limit: int | None = None,
        quick: float = QUICK,
    ) -> None:
        self._ledger = ledger
        self._spec = spec
        self._bench = bench
        self._clock = clock
        self._log = log
        self._identity = identity
        self._leaving = leaving
        self._watchdog = watchdog
        self._quick = quick
        self._writer = Writer(alarm)
        self._saving_bytes = 0
        repairs = Repairs(ledger.record, spec, bench, log, watchdog.beat)
        self._hopper = StateFetcher(self._fetch_ahead, repairs.repair)
        self._gathering = GroupRendezvous(Meetings(ledger.record), identity.node, address, bench.device)
        hops = (bench, self._hopper, self._gathering, clock)
        self._units = Units(spec, *hops, leaving, watchdog.beat, lambda: self._writer.busy)
        self._trials = Profiles(*hops, watchdog.beat, limit)
        self._sweeper = CheckpointCollector(ledger.record, spec.storage, spec.plan, bench.recipe, log)

    def __enter__(self) -> Self:
        return self

    def _fetch_ahead(self, partition: int, beat: Callable[[], None]) -> None:
        """Whether a full disk, say, is anybody's trouble is seen when the partition is needed."""
        try:
            self._bench.fetch(Phase.TRAIN, partition, beat)
        except CerebroError as error:
            self._log.warning("not fetched ahead", partition=partition, why=str(error))
            raise

    def __exit__(self, *_: object) -> None:
        self._writer.close()
        self._hopper.close()

    @property
    def saving_bytes(self) -> int:
        """How large the state is that is being saved behind what is done next; 0 if none is."""
        return self._saving_bytes if self._writer.busy else 0

    def perform(self, attempt: Attempt) -> None:
        """Do this rank's part of the attempt, unless it has none, or the attempt was fenced off before."""
        log = self._log.bind(
            config=attempt.unit.config,
            unit=[attempt.unit.epoch, attempt.unit.phase.value, attempt.unit.partition],
            attempt=attempt.token,
        )
        nodes = {name: node for name in attempt.nodes if (node := self._ledger.record.node(name))}
        config = self._ledger.record.config(attempt.unit.config)
        if why := stale(self._identity, attempt, nodes):
            log.warning(why)
        elif config is None or config.revision != attempt.config_revision:
            log.warning("stale: the config has moved on")
        elif seat := seat_of(self._identity, attempt, nodes):
            self._perform(attempt, config, seat, log)

    def _perform(self, attempt: Attempt, config: Config, seat: RankAssignment, log: EventLog) -> None:
        log.info("began", **({} if seat.size == 1 else {"rank": seat.rank, "of": seat.size}))
        try:
            self._take_part(attempt, config, seat, log)
        finally:
            if needs_group(attempt.strategy) or attempt.unit.phase is Phase.PROFILE:
                with self._watchdog.watching(self._bench.recipe.limits.hang_seconds, attempt.token):
                    group.sweep()

    def _take_part(self, attempt: Attempt, config: Config, seat: RankAssignment, log: EventLog) -> None:
        limits = self._bench.recipe.limits
        hang = max(limits.hang_seconds, limits.hang_factor * (attempt.expected or 0.0))
        if attempt.unit.phase is Phase.PROFILE:  # its time and memory are measured
            self._writer.wait(self._watchdog.beat)
        try:
            with self._watchdog.watching(hang, attempt.token):
                made = self._does(attempt).do(attempt, config, seat, hang)
        except Withdrawn:
            log.warning("withdrawn before it began")
        except GroupBroken as error:
            self._broken(attempt, config, seat, hang, error, log)
        except (Exception, SystemExit, Stopped) as error:  # whatever the user's code raises
            self._give_up(attempt, config, error, log)
        else:
            if isinstance(made, Trained):
                self._save(attempt, config, made, hang, log)
            elif made is not None:
                told = {"seconds": made.seconds, "bytes": made.bytes, "refusal": made.refusal}
                self._ledger.record_profile(attempt, made)
                log.info("tried", strategy=made.strategy.label, **told)

    def _does(self, attempt: Attempt) -> Units | Profiles:
        return self._trials if attempt.unit.phase is Phase.PROFILE else self._units

    def _save(self, attempt: Attempt, config: Config, trained: Trained, hang: float, log: EventLog) -> None:
        """Save and commit. If that takes a while, the node is free for its next unit meanwhile."""
        self._writer.wait(self._watchdog.beat)
        save = self._writer.begin(partial(self._watched, trained, hang))
        saving = None
        if self._may_go_on(trained) and not wait([save], self._quick).done:
            saving = self._ledger.mark_trained(attempt)
        if saving is None:
            self._end(attempt, config, trained, save, None, log)
            return
        log.info("trained", bytes=trained.bytes)
        self._saving_bytes = trained.bytes
        self._writer.leave(partial(self._end, saving, config, trained, save, self._clock.now(), log))

    def _may_go_on(self, trained: Trained) -> bool:
        """Whether the next unit may begin before this one is saved: not if the node is to leave, nor in a
        gang, nor if there is nothing to save (left), nor without memory for both states."""
        here = trained.bytes > 0 and len(trained.attempt.nodes) == 1
        room = memory.room(torch.device("cpu"), None) > _ROOM * trained.bytes
        return here and room and not self._leaving.asked

    def _watched(self, trained: Trained, hang: float) -> Saved:
        with self._watchdog.watching(hang, trained.attempt.token):
            return trained.save()

    def _end(
        self,
        attempt: Attempt,
        config: Config,
        trained: Trained,
        save: Future[Saved],
        freed: float | None,
        log: EventLog,
    ) -> None:
        """Tell what has become of it when it is saved. Its node was free since ``freed``."""
        try:
            visit = trained.visit(save.result(), freed)
        except (Exception, SystemExit) as error:
            self._give_up(attempt, config, error, log)
        else:
            self._commit(attempt, config, visit, log)

    def _commit(self, attempt: Attempt, config: Config, visit: Visit, log: EventLog) -> None:
        told = {
            "seconds": visit.seconds,
            "hop_seconds": visit.hop_seconds,
            **({"save_seconds": visit.save_seconds} if visit.save_seconds else {}),
            **({"fetch_seconds": visit.fetch_seconds} if visit.fetch_seconds else {}),
            "metrics": visit.metrics,
        }
        if not visit.whole:
            self._tell_leaving()
        if self._ledger.commit(attempt, config, visit, self._spec.plan):
            log.info("committed" if visit.whole else "committed in part", **told)
            self._sweeper.committed(visit)
        else:
            log.warning("refused: the assignment was withdrawn")
            self._sweeper.refused(visit)

    def _broken(
        self,
        attempt: Attempt,
        config: Config,
        seat: RankAssignment,
        hang: float,
        error: GroupBroken,
        log: EventLog,
    ) -> None:
        """A peer is lost. Why, others know better: its own rank, its agent, or who sees that its node is
        gone; each of them ends the attempt."""
        log.warning("broken", why=str(error))
        if self._leaving.asked:
            self._give_up(attempt, config, error, log)
            return
        deadline = self._clock.now() + _VERDICT * hang
        while seat.leads and self._gathering.stands(attempt):
            if self._clock.now() > deadline or self._leaving.asked:
                self._give_up(attempt, config, error, log)
                return
            self._clock.sleep(_LOOK_SECONDS)

    def _give_up(self, attempt: Attempt, config: Config, error: BaseException, log: EventLog) -> None:
        """When leaving, an exception says nothing: SIGTERM ends the processes that the unit uses, too."""
        if self._leaving.asked:
            log.warning("given up", why=f"{type(error).__name__}: {error}")
            self._tell_leaving()
            self._ledger.give_up(attempt)
        else:
            failure = failure_of(attempt, self._identity.node, error, Path(self._spec.root))
            log.exception("failed", kind=failure.kind.value)
            self._ledger.fail(attempt, config, failure)

    def _tell_leaving(self) -> None:
        """The history says that a node was asked to leave before it says what the node left undone; who else
        tells it may be slower than this unit. (In a gang another node may be the one that leaves.)"""
        if self._leaving.asked:
            node, left = self._identity, max(0.0, self._leaving.left)
            NodeLedger(self._ledger.record).drain(node.node, left, node.boot)
