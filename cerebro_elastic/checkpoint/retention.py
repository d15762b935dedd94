"""Which checkpoints of a config nobody needs any more. Pure: the caller deletes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from cerebro_elastic.core.progress import advance
from cerebro_elastic.core.values import CheckpointRef, Config, Phase, Plan, Visit


def collectable(
    visits: Sequence[Visit], plan: Plan, metric: str, mode: Literal["min", "max"]
) -> tuple[CheckpointRef, ...]:
    """The checkpoints of one config's visit log, oldest first, without those to be kept: the last
    one, the one before it (an attempt may still be reading it), and the best epoch's.

    The best epoch has the least or, by ``mode``, greatest ``metric``, the earliest of equals; one
    without the metric, or with NaN, is never best.
    """
    chain = {visit.output.url: visit.output for visit in visits if visit.unit.phase is Phase.TRAIN}
    kept = set(list(chain)[-2:])
    ends = [(head, value) for head, value in _epoch_ends(visits, plan, metric) if not math.isnan(value)]
    if ends:
        sign = 1 if mode == "min" else -1
        kept.add(min(ends, key=lambda end: sign * end[1])[0].url)
    return tuple(ref for url, ref in chain.items() if url not in kept)


def _epoch_ends(visits: Sequence[Visit], plan: Plan, metric: str) -> list[tuple[CheckpointRef, float]]:
    """Each finished epoch's last checkpoint and its metric (NaN without one)."""
    ends = []
    config = Config(id="", hparams={})
    for visit in visits:
        after = advance(config, visit, plan)
        if after.epoch > config.epoch and after.head is not None:
            ends.append((after.head, after.metrics.get(metric, math.nan)))
        config = after
    return ends
