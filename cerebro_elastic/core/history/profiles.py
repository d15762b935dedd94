"""What is known of each strategy? The results of profiles, refined by every visit since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from cerebro_elastic.core.model.attempts import ProfileResult, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.state import Estimate, State
from cerebro_elastic.core.model.units import Phase

Profiles: TypeAlias = Mapping[str, tuple[Estimate, ...]]
"""By config: what is known of the strategies that were profiled."""


def estimates_of(config: Config, state: State) -> list[Estimate]:
    """What is known of the strategies for a config: from its own profiles, and for strategies that it has not
    profiled, from its nearest ancestor that found them feasible."""
    estimates = {(e.strategy, e.hardware): e for e in state.profiles.get(config.id, ())}
    while config.parent is not None and config.parent.config in state.configs:
        config = state.configs[config.parent.config]
        for estimate in state.profiles.get(config.id, ()):
            if estimate.refusal is None:
                estimates.setdefault((estimate.strategy, estimate.hardware), estimate)
    return list(estimates.values())


def add_profile(profiles: Profiles, profile: ProfileResult) -> Profiles:
    """``profiles`` after one more result."""
    estimate = Estimate(profile.strategy, profile.hardware, profile.seconds, profile.bytes, profile.refusal)
    others = [e for e in profiles.get(profile.unit.config, ()) if not _same(e, profile)]
    return {**profiles, profile.unit.config: (*others, estimate)}


def refine(profiles: Profiles, visit: Visit) -> Profiles:
    """``profiles`` after a visit, which counts as much as all that was known of its strategy before. Only
    whole training units count."""
    config = visit.unit.config
    if visit.unit.phase is not Phase.TRAIN or visit.skip or not visit.whole or config not in profiles:
        return profiles
    return {**profiles, config: tuple(_refine(e, visit) if _same(e, visit) else e for e in profiles[config])}


def _refine(estimate: Estimate, visit: Visit) -> Estimate:
    seconds = (estimate.seconds + visit.seconds) / 2
    return replace(estimate, seconds=seconds, units=estimate.units + 1)


def _same(estimate: Estimate, other: ProfileResult | Visit) -> bool:
    return (estimate.strategy, estimate.hardware) == (other.strategy, other.hardware)
