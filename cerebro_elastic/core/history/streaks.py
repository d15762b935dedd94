"""Each node's failures since it last committed, in the order of their attempts.

That is nearly the order in which they were told: only what is being saved behind a node's next unit may end
after a failure of that one. The order of tokens is in the values themselves, so that the fold of a history
and a snapshot of the store tell the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cerebro_elastic.core.model.state import State, Streak
from cerebro_elastic.core.model.values import Config, Failure


def lengthen(streaks: Mapping[str, Streak], failure: Failure) -> Mapping[str, Streak]:
    """``streaks`` after one more failure. One that is the config's own says nothing of the node."""
    if failure.kind.of_config:
        return streaks
    streak = Streak(1, failure.attempt, failure.kind, failure.story)
    before = streaks.get(failure.node)
    if before is not None:
        last = streak if failure.attempt > before.last else before
        streak = Streak(before.failures + 1, last.last, last.kind, last.story)
    return {**streaks, failure.node: streak}


def repeated(failure: Failure, config: Config) -> bool:
    """Whether the same exception at the same place ended the same unit on another node, too: then it is the
    config's own, and says nothing of the node."""
    return any(
        f.unit == failure.unit and f.node != failure.node and f.place == failure.place != ""
        for f in config.failures
    )


def suspicious(state: State, node: str) -> list[Failure]:
    """The failures in the node's streak that speak against it."""
    committed = state.committed.get(node, 0)
    return [
        failure
        for config in state.configs.values()
        for failure in config.failures
        if failure.node == node and failure.attempt > committed
        if not (failure.kind.of_config or repeated(failure, config))
    ]


def streaks_of(configs: Iterable[Config], committed: Mapping[str, int]) -> Mapping[str, Streak]:
    """All streaks, by the failures that the ``configs`` remember and the token of the attempt that each node
    last ``committed``."""
    streaks: Mapping[str, Streak] = {}
    for config in configs:
        for failure in config.failures:
            if failure.attempt > committed.get(failure.node, 0):
                streaks = lengthen(streaks, failure)
    return streaks
