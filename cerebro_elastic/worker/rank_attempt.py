"""One attempt on one of its ranks: take part, then commit, or record why nothing is committed.

The rank that leads commits for all. Each rank records its own failure. The first failure counts: it ends the
attempt for all of its nodes.
"""

from __future__ import annotations

import gc
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path

from cerebro_elastic.core.model.attempts import Attempt, FailureKind, Member, ProfileResult, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.errors import GroupBroken, RanksApart, RankUnreachable
from cerebro_elastic.store.ledger.nodes import NodeLedger
from cerebro_elastic.system import devices
from cerebro_elastic.system.explanations import message_of
from cerebro_elastic.system.files import here
from cerebro_elastic.system.logs import EventLog
from cerebro_elastic.training.task import Stopped
from cerebro_elastic.worker import resources
from cerebro_elastic.worker.failure import failure_of
from cerebro_elastic.worker.group_rendezvous import (
    RankAssignment,
    Withdrawn,
    needs_group,
    rank_assignment_of,
    stale,
)
from cerebro_elastic.worker.profiler import profile_attempt
from cerebro_elastic.worker.rank_context import RankContext
from cerebro_elastic.worker.unit_training import SavedUnit, TrainedUnit, train_attempt

_VERDICT = 0.25
"""The part of the hang time that the lead waits, when its group has broken, for the reason to be recorded: by
then a rank that hangs has ended, and its agent has found one that died."""
_AFTER_FORMING_SECONDS = 10.0
"""The lead waits at least this much longer than a group may take to form: until then a sibling of a dead rank
may try to reach it, and not react to its agent."""
_APART_SECONDS = 15.0
"""How long the lead waits for that reason if the group could not be formed: a lost node is known by then."""
_LOOK_SECONDS = 0.1
_STATES_IN_MEMORY = 2
"""This many times the bytes of a state must be free on the host for the next one to come beside it."""


def perform(context: RankContext, attempt: Attempt, own: Node | None = None) -> None:
    """Do this rank's part of the attempt, unless it has none, or the attempt is stale. The rank's ``own``
    node, as it was last seen, is read again if the attempt is of another registration."""
    record, identity = context.ledger.record, context.identity
    log = context.log.bind(
        config=attempt.unit.config,
        unit=[attempt.unit.epoch, attempt.unit.phase.value, attempt.unit.partition],
        attempt=attempt.token,
    )

    def registered(member: Member) -> Node | None:
        if own is not None and (own.name, own.registration) == (member.node, member.registration):
            return own
        return record.node(member.node)

    nodes = {m.node: node for m in attempt.members if (node := registered(m))}
    config = record.config(attempt.unit.config)
    if reason := stale(identity, attempt, nodes):
        log.warning(reason)
    elif config is None or config.revision != attempt.config_revision:
        log.warning("stale: the config has moved on")
    elif rank_assignment := rank_assignment_of(identity, attempt, nodes):
        RankAttempt(context, attempt, config, rank_assignment, log).run()


class RankAttempt:
    """This rank's part in ``attempt`` at a unit of ``config``."""

    def __init__(
        self,
        context: RankContext,
        attempt: Attempt,
        config: Config,
        rank_assignment: RankAssignment,
        log: EventLog,
    ) -> None:
        self.attempt = attempt
        self._context = context
        self._config = config
        self._rank_assignment = rank_assignment
        self._log = log
        self._out_of_memory = False
        self._limits = self._context.unit_runner.recipe.limits
        self._hang_seconds = max(
            self._limits.hang_seconds, self._limits.hang_factor * (attempt.expected or 0.0)
        )

    def run(self) -> None:
        rank, size = self._rank_assignment.rank, self._rank_assignment.size
        self._log.info("began", **({} if size == 1 else {"rank": rank, "of": size}))
        try:
            self._take_part()
        finally:
            if self._out_of_memory or self._context.shares_device:
                gc.collect()  # the unit's tensors may be held by cycles
                devices.give_back(self._context.unit_runner.device)
            if needs_group(self.attempt.strategy) or self._profiles:
                from cerebro_elastic.training.parallel import group

                with self._context.watchdog.watching(self._limits.hang_seconds, self.attempt.token):
                    group.sweep()

    @property
    def _profiles(self) -> bool:
        return self.attempt.unit.phase is Phase.PROFILE

    def _take_part(self) -> None:
        if self._profiles:  # a save in the background would be measured, too
            self._context.writer.wait(self._context.watchdog.beat)
        try:
            with self._context.watchdog.watching(self._hang_seconds, self.attempt.token):
                result = self._perform()
        except Withdrawn:
            self._log.warning("withdrawn before it began")
        except RankUnreachable as error:
            self._give_up(error)
        except GroupBroken as error:
            self._await_reason(error)
        except (Exception, SystemExit, KeyboardInterrupt, Stopped) as error:
            # The user's code may raise anything; a signal raises nothing here.
            self._give_up(error)
        else:
            if isinstance(result, TrainedUnit):
                self._save(result)
            elif result is not None:
                self._record(result)

    def _perform(self) -> TrainedUnit | ProfileResult | None:
        work = profile_attempt if self._profiles else train_attempt
        return work(self._context, self.attempt, self._config, self._rank_assignment, self._hang_seconds)

    def _record(self, profile: ProfileResult) -> None:
        self._context.ledger.record_profile(self.attempt, profile)
        self._log.info(
            "profiled",
            strategy=str(profile.strategy),
            seconds=profile.seconds,
            bytes=profile.bytes,
            refusal=profile.refusal,
        )

    def _save(self, trained: TrainedUnit) -> None:
        """Save and commit: behind the node's next unit, if that waits or if the save takes a while."""
        writer = self._context.writer
        writer.wait(self._context.watchdog.beat)
        save = writer.begin(partial(self._watched_save, trained))
        behind = self._behind(trained, save)
        if behind is None:
            self._finish(save)
            return
        freed_at = self._context.clock.now()
        writer.go_on(partial(behind._finish, save, freed_at), trained.staged_bytes)

    def _behind(self, trained: TrainedUnit, save: Future[SavedUnit]) -> RankAttempt | None:
        """This attempt as it ends behind the node's next unit; ``None`` if that begins after its end.

        If the save takes long, tell the leader, so that it can give the node another unit in that time.
        """
        if not self._may_save_behind(trained):
            return None
        quick_seconds, waits = self._context.quick_save_seconds, self._context.next_waits()
        if waits and self._context.writer.last_save_seconds <= quick_seconds:
            return self
        if wait([save], 0.0 if waits else quick_seconds).done:
            return None
        saving = self._context.ledger.mark_trained(self.attempt, self._context.clock.wall())
        if saving is None:
            return None
        self._log.info("trained", bytes=trained.staged_bytes)
        return RankAttempt(self._context, saving, self._config, self._rank_assignment, self._log)

    def _may_save_behind(self, trained: TrainedUnit) -> bool:
        """Whether the next unit may begin before this one is saved.

        Not if the node must leave, nor in a gang, nor if nothing is left to save, nor without memory for both
        states.
        """
        if self._context.leaving.asked or len(self.attempt.nodes) > 1 or not trained.staged_bytes:
            return False
        return resources.free_bytes("cpu", None) > _STATES_IN_MEMORY * trained.staged_bytes

    def _watched_save(self, trained: TrainedUnit) -> SavedUnit:
        """In the writer's thread."""
        with self._context.watchdog.watching(self._hang_seconds, self.attempt.token):
            saved = trained.save()
        self._context.writer.last_save_seconds = saved.seconds
        return saved

    def _finish(self, save: Future[SavedUnit], freed_at: float | None = None) -> None:
        """Record the outcome when the save is done. The node was free since ``freed_at``, or only then."""
        try:
            visit = save.result().committed(freed_at)
        except (Exception, SystemExit) as error:
            self._give_up(error)
        else:
            self._commit(visit)

    def _commit(self, visit: Visit) -> None:
        fields = {
            "seconds": visit.seconds,
            "hop_seconds": visit.hop_seconds,
            **({"save_seconds": visit.save_seconds} if visit.save_seconds else {}),
            **({"fetch_seconds": visit.fetch_seconds} if visit.fetch_seconds else {}),
            "metrics": visit.metrics,
        }
        if not visit.whole:
            self._announce_leaving()
        if self._context.ledger.commit(self.attempt, self._config, visit, self._context.spec.plan):
            self._log.info("committed" if visit.whole else "committed in part", **fields)
            self._context.cleaner.begin(partial(self._context.collector.committed, visit, self._config))
        else:
            self._log.warning("refused: the assignment was withdrawn")
            self._context.cleaner.begin(partial(self._context.collector.refused, visit))

    def _await_reason(self, error: GroupBroken) -> None:
        """A peer is lost. Its own rank, its agent or the controller has the reason, and ends the attempt with
        it. The lead gives up if none of them does in time."""
        from cerebro_elastic.training.parallel import group

        self._log.warning("broken", why=str(error))
        # A sibling of the rank that was lost may wait for this one, and its agent for that sibling.
        with self._context.watchdog.watching(self._limits.hang_seconds, self.attempt.token):
            group.let_go(error)
        clock, leaving = self._context.clock, self._context.leaving
        if leaving.asked:
            self._give_up(error)
            return
        patience = max(_VERDICT * self._hang_seconds, group.FORM_SECONDS + _AFTER_FORMING_SECONDS)
        deadline = clock.now() + (_APART_SECONDS if isinstance(error, RanksApart) else patience)
        while self._rank_assignment.leads and self._context.rendezvous.is_assigned(self.attempt):
            if clock.now() > deadline or leaving.asked:
                self._give_up(error)
                return
            clock.sleep(_LOOK_SECONDS)

    def _give_up(self, error: BaseException) -> None:
        """When the rank must leave, an exception is no failure of the unit: SIGTERM ends the processes that
        the unit uses, too."""
        context = self._context
        if context.leaving.asked:
            self._log.warning("given up", why=f"{type(error).__name__}: {message_of(error)}")
            self._announce_leaving()
            context.ledger.give_up(self.attempt)
        else:
            failure = failure_of(self.attempt, context.identity.node, error, Path(here(context.spec.root)))
            self._out_of_memory = failure.kind is FailureKind.OUT_OF_MEMORY
            self._log.exception("failed", kind=failure.kind.value)
            context.ledger.fail(self.attempt, self._config, failure)

    def _announce_leaving(self) -> None:
        """Record the node's request to leave before the rest that it leaves undone.

        The thread that announces this otherwise may be slower than this unit. (In a gang another node may be
        the one that leaves.)
        """
        context = self._context
        if context.leaving.asked:
            grace_seconds, identity = max(0.0, context.leaving.left), context.identity
            NodeLedger(context.ledger.record).drain(identity.node, grace_seconds, identity.boot)
