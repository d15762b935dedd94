"""Sets come back in their order, or it shows that they do not."""

from __future__ import annotations

import pytest

from cerebro_elastic.training.objects import sets


@pytest.mark.parametrize("size", [3, 50, 3000])
def test_a_set_from_which_items_were_taken_goes_on_with_the_next(size: int) -> None:
    taken, present = set(range(100, 100 + size)), set(range(100, 100 + size))
    for _ in range(size // 2):
        taken.pop()
    sets.refill(present, list(taken))
    assert list(present) == list(taken)
    assert [present.pop() for _ in range(3 % len(taken))] == [taken.pop() for _ in range(3 % len(taken))]


@pytest.mark.parametrize("size", [3, 50, 3000])
def test_a_set_that_is_put_back_has_no_past(size: int) -> None:
    new, present = set(range(100, 100 + size)), set(range(100, 100 + size))
    for _ in range(size // 2 + 1):
        present.pop()
    sets.refill(present, list(new), as_new=True)
    assert [present.pop() for _ in range(size)] == [new.pop() for _ in range(size)]


def test_few_items_come_back_in_any_order_that_they_can_have() -> None:
    there = {8, 0, 16}
    present = {0, 8}
    sets.refill(present, list(there))
    assert list(present) == list(there)


def test_only_numbers_have_an_order_that_is_the_same_in_every_process() -> None:
    assert sets.has_order([1, 2.5, (3, True)])
    assert not sets.has_order([1, "a"])
    assert not sets.has_order([(1, "a")])
