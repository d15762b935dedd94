"""Training replaced by a chain of hashes, one a batch: pure, exact, and as fast as can be."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from cerebro_elastic.core.history.progress import position
from cerebro_elastic.core.model.attempts import Attempt, ProfileResult, Visit
from cerebro_elastic.core.model.configs import Config, HParams
from cerebro_elastic.core.model.units import CheckpointRef, Phase, Unit

BATCHES = 3
"""Batches of every partition."""


def digest(source: CheckpointRef | None, unit: Unit, hparams: HParams, batches: range) -> str:
    """A pure function of input, config, epoch, partition and phase, batch after batch."""
    state = source.digest if source else ""
    if unit.phase is Phase.EVALUATE:
        return state
    for batch in batches:
        inputs = [state, dict(hparams), unit.config, unit.epoch, unit.partition, batch]
        state = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]
    return state


@dataclass
class Worker:
    """A rank that trains one attempt. It may be late, or cut off from its registration."""

    attempt: Attempt
    config: Config
    forgets: bool = False
    """Whether its node's cache drops all but the unit's partition now and then, and says so."""

    def train(self, upto: int, seconds: float) -> Visit:
        """Train until ``upto`` batches of the partition are done, each in so many ``seconds``."""
        attempt = self.attempt
        batches = range(attempt.skip, upto)
        result = digest(attempt.input, attempt.unit, self.config.hparams, batches)
        output = CheckpointRef(f"mem:{result}", result, 1)
        if attempt.unit.phase is Phase.EVALUATE and attempt.input is not None:
            output = attempt.input
        return Visit(
            attempt.unit,
            position(self.config),
            attempt.node,
            attempt.token,
            attempt.input,
            output,
            samples=len(batches),
            batches=len(batches),
            seconds=len(batches) * seconds,
            hop_seconds=0.0,
            started=0.0,
            strategy=attempt.strategy,
            skip=attempt.skip,
            whole=upto == BATCHES,
            gang=attempt.nodes[1:],
            hardware=attempt.hardware,
            replicas=attempt.prefetch.replicas[:1] if attempt.prefetch else (),
            cached=(attempt.unit.partition,) if self._has_dropped else None,
        )

    @property
    def _has_dropped(self) -> bool:
        return self.forgets and self.attempt.token % 3 == 0 and not self.attempt.gang

    def profile(self, seconds: float, refusal: str | None = None) -> ProfileResult:
        """Profile the attempt's strategy: its ranks share the ``seconds`` of a batch."""
        attempt, strategy = self.attempt, self.attempt.strategy
        return ProfileResult(
            attempt.unit,
            strategy,
            attempt.hardware,
            attempt.node,
            attempt.token,
            seconds=BATCHES * seconds / strategy.ranks,
            bytes=100,
            refusal=refusal,
        )
