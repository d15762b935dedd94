"""The state that a unit leaves, written by its ranks: by the one that leads, or by each its part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from cerebro_elastic import checkpoint
from cerebro_elastic.checkpoint import Part
from cerebro_elastic.core.model.origin import Origin
from cerebro_elastic.core.model.values import CheckpointRef, Choice
from cerebro_elastic.files import Content
from cerebro_elastic.parallel import choose, collectives
from cerebro_elastic.parallel.base import Sharding
from cerebro_elastic.training.task import State


def part_of(choice: Choice, rank: int) -> Part | None:
    """The part of a state that a rank holds, if the choice's parallelism divides it by rows."""
    parallelism = choose.make(choice.parallelism, choice.options)
    divides = choice.ranks > 1 and isinstance(parallelism, Sharding)
    return Part(rank, choice.ranks) if divides else None


def save_part(state: State, url: str, part: Part | None) -> dict[str, Content] | None:
    """Inside the group: what all ranks have written under ``url``, if the state is divided among them, known
    on the rank that leads; ``None`` if it is not."""
    if part is None or not checkpoint.is_divided(state):
        return None
    written = checkpoint.save_part(state, url, part)
    return {file: content for each in collectives.gathered(written) for file, content in each.items()}


def save(state: State, url: str, parts: Mapping[str, Content] | None) -> CheckpointRef:
    """On the rank that leads: the checkpoint under ``url``, of the ``parts`` that are written, or of all."""
    return checkpoint.save(state, url) if parts is None else checkpoint.complete(parts, url)


def staged(
    state: State, url: str, parts: Mapping[str, Content] | None
) -> tuple[Callable[[Origin], CheckpointRef], int]:
    """What ``save`` does, to be called later and in any thread with where the state comes from, and the bytes
    of the state that it holds until then."""
    if parts is not None:
        return partial(checkpoint.complete, parts, url), 0
    ready = checkpoint.stage(state)
    return partial(ready.save, url), ready.bytes
