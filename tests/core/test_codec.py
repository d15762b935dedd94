"""Values survive their JSON; foreign JSON is refused with its kind."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from cerebro_elastic.core.model.attempts import Attempt, FailureKind, Member, Prefetch, ProfileResult
from cerebro_elastic.core.model.codec import UnreadableValue, decode, encode, kind_of
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import KINDS, Event, HomesAssigned, Ordered, StateRead, UnitCommitted
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import Estimate, SpeedFactor, State, Streak
from cerebro_elastic.core.model.units import PartialUnit, Phase, Strategy, Unit
from support.builders import REF, config, failure, visit

UNIT = Unit("c0", 1, 2, Phase.EVALUATE)
CHOICE = Strategy("deepspeed", 2, 2, {"stage": 3, "config": {"zero_optimization": {}}})
VISIT = visit(unit=UNIT, strategy=CHOICE, gang=("m",), hardware="A100", metrics={"val": 0.5}, done=True)
ATTEMPT = Attempt(UNIT, "n", 4, 5, REF, CHOICE, Prefetch(1, REF), gang=(Member("m", 3),), hardware="A100")
BEGUN = config("c0", {"lr": 0.1, "act": "relu"}, partial_unit=PartialUnit(1, 3), failures=(failure(UNIT),))
STATE = State(
    Plan("r", 2, 1, strategies=(Strategy(), CHOICE)),
    {"c0": BEGUN},
    {"n": Node("n", "h", devices=("cuda:0",), cached=(1, 2), drain=2.5)},
    {0: ("n", "m"), 1: ("n",)},
    {"n": ATTEMPT},
    {"n": Streak(2, 7, FailureKind.STORAGE, "boom")},
    timings={"c0": 1.25},
    speed_factors={"n": SpeedFactor(2.0, 4)},
    profiles={"c0": (Estimate(CHOICE, "A100", 1.5, 100, units=2),)},
)
VALUES = [
    UNIT,
    ProfileResult(UNIT, CHOICE, "A100", "n", 9, refusal="out of memory"),
    Config("c0", {}, Status.FAILED, 2, (1, 0), (0,), REF, {"m": 1.0}),
    HomesAssigned(7, {0: ("a", "b"), 1: ("b",)}),
    Ordered(7, (("n", "c0", 1, 2), ("m", "c1", 0, 0))),
    StateRead(9, STATE, (VISIT,)),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_round_trip(value: object) -> None:
    text = encode(value)
    assert decode(text, type(value)) == value
    assert decode(text.encode(), type(value)) == value
    assert encode(decode(text, type(value))) == text
    assert kind_of(text) == type(value).__name__


def test_every_kind_of_event_is_known_by_name() -> None:
    assert KINDS["UnitCommitted"] is UnitCommitted
    assert set(KINDS.values()) == set(Event.__args__)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("nonsense", "is not a Unit"),
        (json.dumps({"v": 2, "kind": "Unit"}), "format version 2"),
        (encode(REF), "expected a Unit, found .*CheckpointRef"),
        (json.dumps({"v": 1, "kind": "Unit", "config": "c"}), "damaged Unit"),
        (encode(UNIT).replace("evaluate", "dance"), "damaged Unit"),
    ],
)
def test_an_invalid_unit_is_refused(text: str, pattern: str) -> None:
    with pytest.raises(UnreadableValue, match=pattern):
        decode(text, Unit)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
TEXTS = [(encode(value).encode(), type(value)) for value in VALUES]


def reads_or_refuses(text: bytes, kind: type) -> None:
    """And what is read can be written."""
    with suppress(UnreadableValue):
        value = decode(text, kind)
        assert decode(encode(value), kind) == value or "NaN" in encode(value)
    assert isinstance(kind_of(text), str)


@given(st.sampled_from(TEXTS), st.data())
def test_values_that_were_changed_are_read_or_refused(
    stored: tuple[bytes, type], data: st.DataObject
) -> None:
    """One field, anywhere in the value, is something else."""
    text, kind = stored
    body = json.loads(text)
    at: Any = body
    while isinstance(at, dict | list) and at:
        place = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if not isinstance(at[place], dict | list) or not at[place] or data.draw(st.booleans()):
            at[place] = data.draw(JSON)
            break
        at = at[place]
    reads_or_refuses(json.dumps(body).encode(), kind)


@given(st.sampled_from(TEXTS), st.integers(0, 2000), st.binary(max_size=3))
def test_values_that_were_damaged_are_read_or_refused(stored: tuple[bytes, type], at: int, by: bytes) -> None:
    text, kind = stored
    at %= len(text)
    reads_or_refuses(text[:at] + by + text[at + len(by) :], kind)


@pytest.mark.parametrize("depth", [900, 100_000])
@pytest.mark.parametrize(
    "wrap", ["%s", '{"v":1,"kind":"Config","id":"c","hparams":{"a":%s}}', '{"v":%s}', '{"kind":%s}']
)
def test_a_value_that_is_nested_too_deep_is_refused(depth: int, wrap: str) -> None:
    text = wrap % ("[" * depth + "]" * depth)
    with pytest.raises(UnreadableValue):
        decode(text, Config)
    assert isinstance(kind_of(text), str)
