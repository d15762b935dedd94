"""Which strategies can train a config on a kind of node, and how fast?

Each strategy is profiled before it is used: a profile trains a few batches and measures seconds and memory,
or reports why the strategy is not feasible (the Trial Runner of Saturn: cerebro-platform-thesis-2023, section
3.2.4). ``next_steps`` decides which strategy is profiled or used when. Every visit refines the estimate of
its strategy.

A strategy is refused for good on a kind of node when its profile refuses it, when a unit runs out of memory
with it, or when its profiles keep failing. A config that continues from another's checkpoint inherits the
estimates of feasible strategies; it profiles refused ones itself. With a single strategy in the plan nothing
is profiled, and nothing refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from cerebro_elastic.core.history.estimates import Profiles, estimates_of
from cerebro_elastic.core.model.attempts import Failure, FailureKind
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Phase, Strategy
from cerebro_elastic.system.words import counted


def refusals(config: Config, hardware: str, profiles: Profiles, plan: Plan) -> dict[Strategy, str]:
    """The strategies that are not feasible for the config on this kind of node, and why."""
    if not chooses(plan):
        return {}
    reasons = {
        estimate.strategy: estimate.refusal
        for estimate in profiles.get(config.id, ())
        if estimate.hardware == hardware and estimate.refusal is not None
    }
    failed = [failure for failure in config.failures if failure.hardware == hardware]
    for failure in failed:
        if failure.kind is FailureKind.OUT_OF_MEMORY:
            reasons.setdefault(failure.strategy, failure.story)
    for strategy in plan.strategies:
        failures = [f for f in failed if f.strategy == strategy and _of_profile(f)]
        if len(failures) >= plan.tries or any(f.kind.of_config for f in failures):
            times = counted(len(failures), "time")
            reasons.setdefault(strategy, f"its profile failed {times}, at last with {failures[-1].story}")
    return reasons


def infeasible(config: Config, hardware: Iterable[str], profiles: Profiles, plan: Plan) -> str | None:
    """Why no strategy can train the config on any kind of node; ``None`` if one may.

    Kinds are those of ``hardware`` and those on which it was profiled. Equal reasons are stated once.
    A single strategy is never refused.
    """
    if not chooses(plan):
        return None
    kinds = sorted({*hardware, *(estimate.hardware for estimate in profiles.get(config.id, ()))})
    refused = {kind: refusals(config, kind, profiles, plan) for kind in kinds}
    if not kinds or any(len(refused[kind]) < len(plan.strategies) for kind in kinds):
        return None
    by_reason: dict[str, list[str]] = {}
    for kind in kinds:
        for strategy in plan.strategies:
            by_reason.setdefault(refused[kind][strategy], []).append(f"{strategy} on {kind}")
    return "no strategy is feasible: " + "; ".join(
        f"{', '.join(where)}: {why}" for why, where in by_reason.items()
    )


def chooses(plan: Plan) -> bool:
    """Whether the plan has several strategies."""
    return len(plan.strategies) > 1


def counts(failure: Failure, plan: Plan) -> bool:
    """Whether a failure counts as one of the unit's tries. The node's own trouble does not, nor an
    out-of-memory error that another strategy may avoid."""
    refuses = chooses(plan) and failure.kind is FailureKind.OUT_OF_MEMORY
    return not failure.kind.of_node and not refuses


def expected_seconds(state: State, config: str, strategy: Strategy, hardware: str) -> float | None:
    """The expected seconds of the config's unit with this strategy; ``None`` if it was not profiled."""
    known = estimates_of(state.configs[config], state)
    matching = (e for e in known if (e.strategy, e.hardware) == (strategy, hardware))
    return next((estimate.seconds for estimate in matching if estimate.refusal is None), None)


def _of_profile(failure: Failure) -> bool:
    """Whether a profile failed by its own fault, not its node's."""
    return failure.unit.phase is Phase.PROFILE and not failure.kind.of_node
