"""Records of version 0.1, written by its code, are read, and digests over values are what they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from cerebro_elastic.core.model.attempts import ProfileResult
from cerebro_elastic.core.model.codec import decode, encode, kind_of
from cerebro_elastic.core.model.events import KINDS, ProfileDone, RecordMended, StateRead
from cerebro_elastic.core.model.origin import basis_of
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.core.model.state import Estimate, NodeUsage, SpeedFactor
from cerebro_elastic.core.model.units import Phase, Strategy, Unit

LINES = (Path(__file__).parent / "records" / "history-0.1.jsonl").read_text().splitlines()
TWO = Strategy("ddp", 2)
SPEC_DIGEST = "e584e610d3883191af4894a98a954abbe278863e11fc3b9291d6baf72f8ed09e"


@pytest.mark.parametrize("line", LINES, ids=[kind_of(line) for line in LINES])
def test_a_line_is_read_and_written_as_it_was(line: str) -> None:
    event = decode(line, KINDS[kind_of(line)])
    assert encode(event).replace('"phase":"profile"', '"phase":"trial"') == line


def test_former_lines_decode_to_todays_events() -> None:
    events = [decode(line, KINDS[kind_of(line)]) for line in LINES]
    unit = Unit("c0", 0, 1, Phase.PROFILE)
    assert ProfileDone(6, ProfileResult(unit, TWO, "cpu", "n", 7, 1.5, 100)) in events
    (mended,) = (event for event in events if isinstance(event, RecordMended))
    assert mended.names("quarantined") == {"n"}
    (state,) = (event.state for event in events if isinstance(event, StateRead))
    assert (state.quarantined, state.quarantined_for) == ({"n": "why"}, {"n": 2})
    assert state.speed_factors == {"n": SpeedFactor(2.0, 3, 4)}
    assert state.profiles == {"c0": (Estimate(TWO, "cpu", 1.5, 100),)}
    assert state.usage.nodes == {"n": NodeUsage(1.0, 2.0)}


def test_the_digest_of_a_spec_stays() -> None:
    plan = Plan("r", 2, 2, strategies=(Strategy(), TWO))
    assert basis_of(Spec(plan, {}, "", "", "", "", {}, "", "0.1.0")).spec == SPEC_DIGEST
