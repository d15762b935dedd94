"""What the trials of choices have told, refined by every visit since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from cerebro_elastic.core.model.attempts import ProfileResult, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.state import Estimate, State
from cerebro_elastic.core.model.units import Phase

Profiles: TypeAlias = Mapping[str, tuple[Estimate, ...]]
"""By config: what is known of the choices that were tried."""


def estimates_of(config: Config, state: State) -> list[Estimate]:
    """What is known of the choices for a config: from its own trials, and of what it has not tried itself
    from its nearest ancestor's that found it feasible."""
    found = {(e.strategy, e.hardware): e for e in state.profiles.get(config.id, ())}
    while config.parent is not None and config.parent.config in state.configs:
        config = state.configs[config.parent.config]
        for estimate in state.profiles.get(config.id, ()):
            if estimate.refusal is None:
                found.setdefault((estimate.strategy, estimate.hardware), estimate)
    return list(found.values())


def profiled(profiles: Profiles, profile: ProfileResult) -> Profiles:
    """``profiles`` after one more."""
    estimate = Estimate(profile.strategy, profile.hardware, profile.seconds, profile.bytes, profile.refusal)
    others = [e for e in profiles.get(profile.unit.config, ()) if not _same(e, profile)]
    return {**profiles, profile.unit.config: (*others, estimate)}


def refined(profiles: Profiles, visit: Visit) -> Profiles:
    """``profiles`` after a visit: it counts as much as all that was known of its choice before. Only a whole
    training unit teaches something."""
    config = visit.unit.config
    if visit.unit.phase is not Phase.TRAIN or visit.skip or not visit.whole or config not in profiles:
        return profiles
    return {**profiles, config: tuple(_refine(e, visit) if _same(e, visit) else e for e in profiles[config])}


def _refine(estimate: Estimate, visit: Visit) -> Estimate:
    seconds = (estimate.seconds + visit.seconds) / 2
    return replace(estimate, seconds=seconds, units=estimate.units + 1)


def _same(estimate: Estimate, other: ProfileResult | Visit) -> bool:
    return (estimate.strategy, estimate.hardware) == (other.strategy, other.hardware)
