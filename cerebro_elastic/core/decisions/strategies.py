"""By which choice a config is trained on a kind of node.

Each choice is tried before it is used: a trial trains a few batches and tells seconds and memory, or why it
is not feasible (the Trial Runner of Saturn: cerebro-platform-thesis-2023, section 3.2.4). Which of those that
are feasible is used, and when which is tried, ``next_steps`` says. Every visit refines what is known of its
choice. A choice is refused on a kind of node for good when its trial says so, when a unit runs out of memory
under it, or when its trials keep failing. A config that goes on from another's checkpoint, whose tensors it
has, begins with what was feasible there; what was refused there it tries itself. With one choice in the plan
nothing is tried, and nothing refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from cerebro_elastic.core.history.profiles import Profiles, estimates_of
from cerebro_elastic.core.model.attempts import Failure, FailureKind
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Phase, Strategy
from cerebro_elastic.words import counted


def refusals(config: Config, hardware: str, profiles: Profiles, plan: Plan) -> dict[Strategy, str]:
    """The choices that are not feasible for the config on this kind of node, and why."""
    if not chooses(plan):
        return {}
    told = {
        estimate.strategy: estimate.refusal
        for estimate in profiles.get(config.id, ())
        if estimate.hardware == hardware and estimate.refusal is not None
    }
    failed = [failure for failure in config.failures if failure.hardware == hardware]
    for failure in failed:
        if failure.kind is FailureKind.OUT_OF_MEMORY:
            told.setdefault(failure.strategy, failure.story)
    for strategy in plan.strategies:
        tries = [f for f in failed if f.strategy == strategy and _of_trial(f)]
        if len(tries) >= plan.tries or any(f.kind.of_config for f in tries):
            times = counted(len(tries), "time")
            told.setdefault(strategy, f"its trial failed {times}, at last with {tries[-1].story}")
    return told


def infeasible(config: Config, hardware: Iterable[str], profiles: Profiles, plan: Plan) -> str | None:
    """Why the config can be trained nowhere: each choice is refused on each kind of node that there is, and
    that it was tried on. Equal reasons are told once. ``None`` if it is not so."""
    kinds = sorted({*hardware, *(estimate.hardware for estimate in profiles.get(config.id, ()))})
    refused = {kind: refusals(config, kind, profiles, plan) for kind in kinds}
    if not kinds or any(len(refused[kind]) < len(plan.strategies) for kind in kinds):
        return None
    alike: dict[str, list[str]] = {}
    for kind in kinds:
        for strategy in plan.strategies:
            alike.setdefault(refused[kind][strategy], []).append(f"{strategy} on {kind}")
    return "no choice is feasible: " + "; ".join(f"{', '.join(who)}: {why}" for why, who in alike.items())


def chooses(plan: Plan) -> bool:
    """Whether there is anything to choose."""
    return len(plan.strategies) > 1


def counts(failure: Failure, plan: Plan) -> bool:
    """Whether a unit's failure is one of its tries: not if it is the node's trouble, nor if another choice
    takes the place of the one that had not memory enough."""
    refuses = chooses(plan) and failure.kind is FailureKind.OUT_OF_MEMORY
    return not failure.kind.of_node and not refuses


def expected_seconds(state: State, config: str, strategy: Strategy, hardware: str) -> float | None:
    """What a unit of the config is expected to take by this choice, if that was tried."""
    known = estimates_of(state.configs[config], state)
    found = (e for e in known if (e.strategy, e.hardware) == (strategy, hardware))
    return next((estimate.seconds for estimate in found if estimate.refusal is None), None)


def _of_trial(failure: Failure) -> bool:
    """A trial's own trouble, not its node's."""
    return failure.unit.phase is Phase.PROFILE and not failure.kind.of_node
