"""How long do units take? The estimates that decisions use, learned from visits.

A unit's seconds are modelled as a product: the config's seconds (``State.timings``) times the factor of its
node (``State.speed_factors``). Both are learned from the same visits, each from the other's residual, so that
a slow node does not make a config look large, nor a large config its node slow. Only ratios between nodes
matter: a scale common to all cancels out. Where a plan has several strategies, profiles give the costs of
each, refined by every visit since.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from cerebro_elastic.core.model.attempts import Attempt, ProfileResult, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.state import EpochSeconds, Estimate, SpeedFactor, State
from cerebro_elastic.core.model.units import Phase

Profiles: TypeAlias = Mapping[str, tuple[Estimate, ...]]
"""By config: the known costs of the profiled strategies."""

KNOWN = 3
"""The number of visits after which a node's factor is used."""
FORGOTTEN = 100
"""The number of visits of other nodes after which it is no longer used: a node that was too slow to be home
to a partition gets another chance."""
MEMORY = 8
"""A node's factor is the geometric mean over this number of visits, as a single one may be chance."""
OUTLIER = 4.0
"""A visit counts as at most this multiple of the expected seconds, and at least their inverse share: ranks
may have restarted, or the machine may have been busy with something else."""
EVALUATION = 1 / 3
"""The seconds of an evaluation until one is measured, as a share of those of training, which also runs
backward, at twice the cost."""
_FACTORS = (1 / 32, 32.0)
_SPARE = 1.25
_SLACK = 0.5


def begun_at(state: State, attempt: Attempt) -> float | None:
    """When the attempt began, according to visits: at the end of the run's last visit before its assignment
    or, if it was queued, of its node's last visit; wall-clock seconds. ``None`` before the first visit."""
    at = state.usage.began if attempt.last_visit_ended is None else attempt.last_visit_ended
    node = state.usage.nodes.get(attempt.node)
    return at if at is None or node is None else max(at, node.until)


def learn(
    timings: Mapping[str, float], speed_factors: Mapping[str, SpeedFactor], visit: Visit
) -> tuple[Mapping[str, float], Mapping[str, SpeedFactor]]:
    """``timings`` and ``speed_factors`` after one more visit. Only whole training units count.

    - For a config, each visit counts half as much as the one after it. For a node, the last visits count
    alike.
    - A node's first unit is slow for passing reasons (imports, a cold cache) and is ignored.
    - A config's first visit does not change the node's factor: nothing compares with it.
    - Outliers count as ``OUTLIER`` times the expected seconds.
    - A gang is as fast as its slowest node, which is unknown, so its visits change only the config's
    estimate.
    """
    if visit.unit.phase is not Phase.TRAIN or visit.skip or not visit.whole:
        return timings, speed_factors
    config, seconds = visit.unit.config, visit.seconds + visit.hop_seconds
    speed_factor = SpeedFactor() if visit.gang else speed_factors.get(visit.node, SpeedFactor())
    at = _visits(speed_factors) + 1
    if not speed_factor.units and not visit.gang:
        return timings, {**speed_factors, visit.node: SpeedFactor(units=1, at=at)}
    usual = timings.get(config, 0.0)
    if not usual or not seconds:
        timings = {**timings, config: seconds / speed_factor.factor}
        later = {} if visit.gang else {visit.node: replace(speed_factor, at=at)}
        return timings, {**speed_factors, **later}
    expected = usual * speed_factor.factor
    seconds = min(max(seconds, expected / OUTLIER), expected * OUTLIER)
    if visit.gang:
        return {**timings, config: (usual + seconds) / 2}, speed_factors
    share = 1 / min(speed_factor.units + 1, MEMORY)
    factor = _bounded(speed_factor.factor ** (1 - share) * (seconds / usual) ** share)
    timings = {**timings, config: (usual + seconds / factor) / 2}
    return timings, {**speed_factors, visit.node: SpeedFactor(factor, speed_factor.units + 1, at)}


def learn_epoch(
    known: Mapping[str, EpochSeconds], speed_factors: Mapping[str, SpeedFactor], visit: Visit, *, ends: bool
) -> Mapping[str, EpochSeconds]:
    """``known`` after one more visit, which counts half, and whether it ``ends`` an epoch. As in ``learn``
    only whole units count, not a node's first one, and outliers count as ``OUTLIER`` times the expected
    seconds."""
    first = not visit.gang and not speed_factors.get(visit.node, SpeedFactor()).units
    if visit.unit.phase is Phase.PROFILE or visit.skip or not visit.whole or first:
        return known
    factor = 1.0 if visit.gang else speed_factors[visit.node].factor
    seconds = (visit.seconds + visit.hop_seconds) / factor
    before = known.get(visit.unit.config, EpochSeconds())
    if visit.unit.phase is Phase.EVALUATE:
        after = replace(before, evaluation=_half(before.evaluation, seconds))
    elif ends:
        after = replace(before, last=_half(before.last, seconds))
    else:
        after = replace(before, usual=_half(before.usual, seconds))
    return {**known, visit.unit.config: after}


def _half(before: float | None, seconds: float) -> float:
    if not before:
        return seconds
    return (before + min(max(seconds, before / OUTLIER), before * OUTLIER)) / 2


def mean_epoch_seconds(known: Collection[EpochSeconds]) -> EpochSeconds:
    """The known costs of all configs' units."""
    return EpochSeconds(
        _known_mean(each.usual for each in known),
        _known_mean(each.last for each in known),
        _known_mean(each.evaluation for each in known),
    )


def evaluation_seconds(own: EpochSeconds, of_all: EpochSeconds, unit: float) -> float:
    """The expected seconds of an evaluation of a config whose training units take ``unit`` seconds."""
    return own.evaluation or of_all.evaluation or EVALUATION * unit


def _known_mean(seconds: Iterable[float | None]) -> float | None:
    known = [each for each in seconds if each is not None]
    return math.fsum(known) / len(known) if known else None


def add_fetch(fetches: tuple[float, ...], visit: Visit) -> tuple[float, ...]:
    """``fetches`` after one more visit: the waits of the last units whose training partition was fetched."""
    if visit.unit.phase is not Phase.TRAIN or not visit.fetch_seconds:
        return fetches
    return (*fetches, visit.fetch_seconds)[-MEMORY:]


def fetch_seconds(fetches: tuple[float, ...]) -> float:
    """The expected seconds to fetch a partition (all have about one size); infinite before the first fetch.

    It is the third quartile of the waits: some are shorter because the fetch began behind the previous unit,
    and some are long by chance.
    """
    known = sorted(fetches)
    return known[3 * len(known) // 4] if known else math.inf


def add_hop(hops: tuple[float, ...], visit: Visit) -> tuple[float, ...]:
    """``hops`` after one more visit. A load behind another unit takes no time of the visit; a save always
    does, and takes about as long."""
    if visit.unit.phase is not Phase.TRAIN:
        return hops
    return (*hops, max(visit.hop_seconds, visit.save_seconds))[-MEMORY:]


def hop_seconds(hops: tuple[float, ...]) -> float:
    """The expected seconds to load or save a state: the median of the last hops; 0 before the first."""
    return sorted(hops)[len(hops) // 2] if hops else 0.0


def speed_factors(state: State, nodes: Iterable[str]) -> dict[str, float]:
    """The nodes' factors; for unknown or outdated ones, the geometric mean of the known ones, else 1."""
    oldest = _visits(state.speed_factors) - FORGOTTEN
    known = {name: p.factor for name, p in state.speed_factors.items() if p.units >= KNOWN and p.at >= oldest}
    usual = math.exp(math.fsum(map(math.log, known.values())) / len(known)) if known else 1.0
    return {name: known.get(name, usual) for name in nodes}


def speed_factor(state: State, node: str) -> float:
    return speed_factors(state, (node,))[node]


def unit_seconds(state: State, config: str) -> float:
    """The estimate for the config's units on a node of factor 1: from its visits, else from its profiles,
    else the mean of all configs, else the mean of all units so far, else 1."""
    seconds = _measured(state, config)
    return _mean(state) if seconds is None else seconds


def all_unit_seconds(state: State, configs: Iterable[str]) -> dict[str, float]:
    """The ``unit_seconds`` of these configs."""
    mean = _mean(state)
    if not state.profiles:
        return {config: state.timings.get(config, mean) for config in configs}
    measured = {config: _measured(state, config) for config in configs}
    return {config: mean if seconds is None else seconds for config, seconds in measured.items()}


def estimates_of(config: Config, state: State) -> list[Estimate]:
    """The known costs of strategies for a config: from its own profiles, and for strategies without a
    profile, from its nearest ancestor that found them feasible."""
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


def without_refusals(profiles: Profiles, config: str) -> Profiles:
    """``profiles`` without the strategies refused for the config: it profiles them again."""
    feasible = tuple(e for e in profiles.get(config, ()) if e.refusal is None)
    others = {name: known for name, known in profiles.items() if name != config}
    return {**others, config: feasible} if feasible else others


def refine(profiles: Profiles, visit: Visit) -> Profiles:
    """``profiles`` after a visit, which counts as much as the strategy's whole previous estimate. Only whole
    training units count."""
    config = visit.unit.config
    if visit.unit.phase is not Phase.TRAIN or visit.skip or not visit.whole or config not in profiles:
        return profiles
    return {**profiles, config: tuple(_refine(e, visit) if _same(e, visit) else e for e in profiles[config])}


def _refine(estimate: Estimate, visit: Visit) -> Estimate:
    seconds = (estimate.seconds + visit.seconds) / 2
    return replace(estimate, seconds=seconds, units=estimate.units + 1)


def _same(estimate: Estimate, other: ProfileResult | Visit) -> bool:
    return (estimate.strategy, estimate.hardware) == (other.strategy, other.hardware)


def fits(rest: float, save: float, left: float) -> bool:
    """Whether a unit that needs ``rest`` seconds for its batches and ``save`` for its checkpoint will
    probably be committed within ``left`` seconds, with a margin of a quarter and half a second."""
    return _SPARE * (rest + save) + _SLACK <= left


def _measured(state: State, config: str) -> float | None:
    if config in state.timings:
        return state.timings[config]
    return min((e.seconds for e in state.profiles.get(config, ()) if e.refusal is None), default=None)


def _mean(state: State) -> float:
    if state.timings:
        return math.fsum(state.timings.values()) / len(state.timings)
    return state.usage.seconds / state.usage.units if state.usage.units else 1.0


def _visits(speed_factors: Mapping[str, SpeedFactor]) -> int:
    """The number of visits from which the factors were learned."""
    return sum(speed_factor.units for speed_factor in speed_factors.values())


def _bounded(factor: float) -> float:
    least, most = _FACTORS
    return min(max(factor, least), most)
