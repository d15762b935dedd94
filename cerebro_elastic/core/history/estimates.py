"""How long units take: learned from the visits, and told to whoever decides.

The seconds of a unit are taken to be a product: what the config needs (``State.timings``) times how its
node compares with the others (``State.speed_factors``). Both factors are learned from the same visits, each from
what the other leaves unexplained, so that a slow node does not make a config look large, nor a large
config its node slow. Only ratios between nodes are used: a scale common to all cancels out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.state import SpeedFactor, State
from cerebro_elastic.core.model.units import Phase

KNOWN = 3
"""Visits after which a node's pace is believed."""
FORGOTTEN = 100
"""Visits of others after which it no longer is: who was too slow to be home to a partition is tried again."""
MEMORY = 8
"""Visits over which a node's factor is the (geometric) mean: what one of them took may be chance."""
OUTLIER = 4.0
"""How many times the expected seconds, or what part of them, a visit counts at most: ranks that began anew, a
machine that was busy with something else."""
_FACTORS = (1 / 32, 32.0)
_SPARE = 1.25
_SLACK = 0.5


def learn(
    timings: Mapping[str, float], speed_factors: Mapping[str, SpeedFactor], visit: Visit
) -> tuple[Mapping[str, float], Mapping[str, SpeedFactor]]:
    """``timings`` and ``speed_factors`` after one more visit; only a whole training unit teaches something.

    For a config each visit counts half as much as the one after it, a node's factor is the mean of what its
    last visits say. A node's first unit is slow for reasons that pass (imports, a cold cache) and teaches
    nothing; a config's first visit tells nothing of the node, as there is nothing to compare it with. What
    took much more or less than was expected counts as ``OUTLIER`` times that. A gang is as fast as its
    slowest node, whichever that is: its visits teach what the config needs.
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
        return timings, speed_factors if visit.gang else {
            **speed_factors,
            visit.node: replace(speed_factor, at=at),
        }
    expected = usual * speed_factor.factor
    seconds = min(max(seconds, expected / OUTLIER), expected * OUTLIER)
    if visit.gang:
        return {**timings, config: (usual + seconds) / 2}, speed_factors
    share = 1 / min(speed_factor.units + 1, MEMORY)
    factor = _bounded(speed_factor.factor ** (1 - share) * (seconds / usual) ** share)
    timings = {**timings, config: (usual + seconds / factor) / 2}
    return timings, {**speed_factors, visit.node: SpeedFactor(factor, speed_factor.units + 1, at)}


def waited(fetches: tuple[float, ...], visit: Visit) -> tuple[float, ...]:
    """``fetches`` after one more visit: what the last units waited whose training partition was fetched."""
    if visit.unit.phase is not Phase.TRAIN or not visit.fetch_seconds:
        return fetches
    return (*fetches, visit.fetch_seconds)[-MEMORY:]


def fetch_seconds(fetches: tuple[float, ...]) -> float:
    """What it takes to fetch a partition (all have about one size); infinite as long as nobody knows. A wait
    is shorter where the fetch had begun behind the unit before, and may be long by chance: so it is what
    three of four took at most."""
    known = sorted(fetches)
    return known[3 * len(known) // 4] if known else math.inf


def speed_factor(state: State, node: str) -> float:
    """The node's factor; of one that is not known yet, or no longer, the (geometric) mean of those that are,
    else 1."""
    oldest = _visits(state.speed_factors) - FORGOTTEN
    known = {name: p.factor for name, p in state.speed_factors.items() if p.units >= KNOWN and p.at >= oldest}
    if node in known or not known:
        return known.get(node, 1.0)
    return math.exp(sum(map(math.log, known.values())) / len(known))


def unit_seconds(state: State, config: str) -> float:
    """The estimate for the config's units on a node of factor 1: from its visits, else from its trials; if it
    has had none the mean of all configs', else that of all units so far, else 1."""
    seconds = _measured(state, config)
    return _mean(state) if seconds is None else seconds


def all_unit_seconds(state: State) -> dict[str, float]:
    """The ``unit_seconds`` of all configs."""
    mean = _mean(state)
    measured = {config: _measured(state, config) for config in state.configs}
    return {config: mean if seconds is None else seconds for config, seconds in measured.items()}


def fits(rest: float, save: float, left: float) -> bool:
    """Whether a unit that needs ``rest`` seconds for its batches and ``save`` for its checkpoint will
    probably be committed within ``left`` seconds: a quarter more than that, and a bit."""
    return _SPARE * (rest + save) + _SLACK <= left


def _measured(state: State, config: str) -> float | None:
    if config in state.timings:
        return state.timings[config]
    return min((e.seconds for e in state.profiles.get(config, ()) if e.refusal is None), default=None)


def _mean(state: State) -> float:
    if state.timings:
        return sum(state.timings.values()) / len(state.timings)
    return state.usage.seconds / state.usage.units if state.usage.units else 1.0


def _visits(speed_factors: Mapping[str, SpeedFactor]) -> int:
    """From how many visits the paces were learned."""
    return sum(speed_factor.units for speed_factor in speed_factors.values())


def _bounded(factor: float) -> float:
    least, most = _FACTORS
    return min(max(factor, least), most)
