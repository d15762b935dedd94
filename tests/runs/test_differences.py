"""Explanations of differences between two trainings."""

from __future__ import annotations

from collections.abc import Mapping

from cerebro_elastic.runs.exactness.differences import Moment, differences, explain, is_chance, steady


def moment(values: Mapping[str, str], hops: int = 0, parts: int = 0, when: str = "after") -> Moment:
    return Moment(when, f"{when} batch 1 of unit {hops + 1}", hops, parts, values)


def test_equal_trainings_have_no_differences() -> None:
    course = [moment({"weight a": "1"}), moment({"weight a": "2"}, hops=1)]
    assert differences(course, course) == []


def test_each_name_is_listed_once_where_it_differs_first_with_likely_causes_on_top() -> None:
    ordinary = [
        moment({"weight a": "#1", "attribute n": "1"}),
        moment({"weight a": "#2", "attribute n": "2"}),
    ]
    units = [
        moment({"weight a": "#1", "attribute n": "1"}),
        moment({"weight a": "#3", "attribute n": "0"}, 1),
    ]
    found = differences([*ordinary, ordinary[1]], [*units, units[1]])
    assert [(d.name, d.at) for d in found] == [("attribute n", units[1]), ("weight a", units[1])]
    explanation = explain(found)
    assert explanation.startswith(
        "attribute n is 2 in one ordinary fit and 0 in units, after batch 1 of unit 2"
    )
    assert "1 value of weight" in explanation
    assert "then the config hopped" in explanation
    assert "#" not in explanation


def test_a_training_that_takes_another_course_is_not_compared_further() -> None:
    start, end = moment({"weight a": "1"}), moment({"weight a": "2"}, when="at the end of")
    (longer,) = differences([start, start], [start])
    assert "when units are over" in explain([longer])
    (other,) = differences([start, start, end], [start, end, end])
    assert other.name == "course"


def test_a_value_that_varies_by_itself_is_not_blamed_on_hopping() -> None:
    found = differences(
        [moment({"logged seconds": "1", "weight a": "1"})], [moment({"logged seconds": "2", "weight a": "2"})]
    )
    assert [difference.name for difference in steady(found, ["logged seconds"])] == ["weight a"]
    assert not is_chance(["logged seconds", "attribute began"])
    assert is_chance(["logged seconds", "weight a"])
