"""The attempts of one rank: which of them it takes part in."""

from __future__ import annotations

from typing import Self

from cerebro_elastic.core.model.attempts import Attempt, Member
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.worker.rank_assignment import rank_assignment_of, stale
from cerebro_elastic.worker.rank_attempt import RankAttempt
from cerebro_elastic.worker.rank_context import RankContext, RankTools


class AttemptRunner:
    """Performs the attempts of one process, one after the other."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        self._tools = RankTools.of(context)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._tools.close()

    @property
    def saving_bytes(self) -> int:
        """Bytes of the state that is being saved in the background; 0 if none is."""
        return self._tools.writer.saving_bytes

    def perform(self, attempt: Attempt, own: Node | None = None) -> None:
        """Do this rank's part of the attempt, unless it has none, or the attempt is stale.

        Args:
            attempt: The attempt.
            own: The rank's node as it was last seen; it is read again if the attempt is of another
                registration.
        """
        record, identity = self._context.ledger.record, self._context.identity
        log = self._context.log.bind(
            config=attempt.unit.config,
            unit=[attempt.unit.epoch, attempt.unit.phase.value, attempt.unit.partition],
            attempt=attempt.token,
        )
        nodes = {m.node: node for m in attempt.members if (node := self._registered(m, own))}
        config = record.config(attempt.unit.config)
        if reason := stale(identity, attempt, nodes):
            log.warning(reason)
        elif config is None or config.revision != attempt.config_revision:
            log.warning("stale: the config has moved on")
        elif rank_assignment := rank_assignment_of(identity, attempt, nodes):
            RankAttempt(self._tools, attempt, config, rank_assignment, log).run()

    def _registered(self, member: Member, own: Node | None) -> Node | None:
        """The node of a member of the attempt."""
        if own is not None and (own.name, own.registration) == (member.node, member.registration):
            return own
        return self._context.ledger.record.node(member.node)
