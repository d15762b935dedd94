"""How long units take: learned from the visits, and told to whoever decides.

The seconds of a unit are taken to be a product: what the config needs (``State.timings``) times how its
node compares with the others (``State.paces``). Both factors are learned from the same visits, each from
what the other leaves unexplained, so that a slow node does not make a config look large, nor a large
config its node slow. Only ratios between nodes are used: a scale common to all cancels out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from cerebro_elastic.core.state import Pace, State
from cerebro_elastic.core.values import Phase, Visit

KNOWN = 3
"""Visits after which a node's pace is believed."""
FORGOTTEN = 100
"""Visits of others after which it no longer is: who was too slow to be home to a partition is tried again."""
MEMORY = 8
"""Visits over which a node's factor is the (geometric) mean: what one of them took may be chance."""
_FACTORS = (1 / 32, 32.0)
_SPARE = 1.25
_SLACK = 0.5


def learn(
    timings: Mapping[str, float], paces: Mapping[str, Pace], visit: Visit
) -> tuple[Mapping[str, float], Mapping[str, Pace]]:
    """``timings`` and ``paces`` after one more visit; only a whole training unit teaches something.

    For a config each visit counts half as much as the one after it, a node's factor is the mean of what its
    last visits say. A node's first unit is slow for reasons that pass (imports, a cold cache), so it does
    not count for the node; nor does a config's first visit, which there is nothing to compare with. A gang is
    as fast as its slowest node, whichever that is: its visits teach what the config needs.
    """
    if visit.unit.phase is not Phase.TRAIN or visit.skip or not visit.whole:
        return timings, paces
    config, seconds = visit.unit.config, visit.seconds + visit.hop_seconds
    pace = Pace() if visit.gang else paces.get(visit.node, Pace())
    usual = timings.get(config, seconds / pace.factor)
    compares = pace.units > 0 and config in timings
    if compares and seconds > 0 and usual > 0:
        share = 1 / min(pace.units + 1, MEMORY)
        pace = replace(pace, factor=_bounded(pace.factor ** (1 - share) * (seconds / usual) ** share))
    timings = {**timings, config: (usual + seconds / pace.factor) / 2}
    if visit.gang:
        return timings, paces
    units = pace.units + 1 if compares else max(pace.units, 1)
    return timings, {**paces, visit.node: replace(pace, units=units, at=_visits(paces) + 1)}


def pace(state: State, node: str) -> float:
    """The node's factor; of one that is not known yet, or no longer, the (geometric) mean of those that are,
    else 1."""
    oldest = _visits(state.paces) - FORGOTTEN
    known = {name: p.factor for name, p in state.paces.items() if p.units >= KNOWN and p.at >= oldest}
    if node in known or not known:
        return known.get(node, 1.0)
    return math.exp(sum(map(math.log, known.values())) / len(known))


def unit_seconds(state: State, config: str) -> float:
    """The estimate for the config's units on a node of factor 1: from its visits, else from its trials; the
    mean of all configs' if it has had none; else 1."""
    if config in state.timings:
        return state.timings[config]
    trials = [e.seconds for e in state.trials.get(config, ()) if e.refusal is None]
    if trials:
        return min(trials)
    known = state.timings.values()
    return sum(known) / len(known) if known else 1.0


def fits(rest: float, save: float, left: float) -> bool:
    """Whether a unit that needs ``rest`` seconds for its batches and ``save`` for its checkpoint will
    probably be committed within ``left`` seconds: a quarter more than that, and a bit."""
    return _SPARE * (rest + save) + _SLACK <= left


def _visits(paces: Mapping[str, Pace]) -> int:
    """From how many visits the paces were learned."""
    return sum(pace.units for pace in paces.values())


def _bounded(factor: float) -> float:
    least, most = _FACTORS
    return min(max(factor, least), most)
