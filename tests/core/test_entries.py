"""What a mapping says has changed since an earlier one."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from cerebro_elastic.core.model.entries import _LONGEST, Entries, changed_since, with_entry


def written(entries: Mapping[str, int], pair: tuple[str, int]) -> Mapping[str, int]:
    return with_entry(entries, *pair)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers())), st.data())
def test_changes_lead_from_any_mapping_to_any_later_one(
    pairs: list[tuple[str, int]], data: st.DataObject
) -> None:
    made = list(accumulate(pairs, written, initial=with_entry({}, "a", 0)))
    first = data.draw(st.integers(0, len(made) - 1))
    last = data.draw(st.integers(first, len(made) - 1))
    assert changed_since(made[first], made[last]) == [name for name, _ in pairs[first:last]]
    assert made[last] == {"a": 0, **dict(pairs[:last])}


def test_what_does_not_follow_is_unknown() -> None:
    before = with_entry({}, "a", 0)
    one, other = with_entry(before, "a", 1), with_entry(before, "b", 1)
    assert changed_since(one, other) is None
    assert changed_since(one, before) is None
    assert changed_since(dict(one), one) is None
    assert changed_since(one, copy.deepcopy(one)) is None


def test_a_long_past_is_forgotten() -> None:
    first = with_entry({}, "a", 0)
    now: Entries[int] = first
    for number in range(_LONGEST):
        assert changed_since(first, now) is not None
        now = with_entry(now, "a", number)
    assert changed_since(first, now) is None
    assert changed_since(now, with_entry(now, "b", 1)) == ["b"]
