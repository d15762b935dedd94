"""Which searches stay the same when a run gets longer, or more configs."""

from __future__ import annotations

from typing import Any

import pytest

from cerebro_elastic.core.model.interfaces import SearchContext
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.runs.from_recipe import make_search
from cerebro_elastic.search.halving import why_not_longer, why_not_more
from support import builders

SPACE = {"lr": {"uniform": [0.0, 1.0]}}


def recipe(epochs: int = 9, **search: Any) -> Recipe:
    return builders.recipe({"space": SPACE, **search}, epochs=epochs)


SEARCHES: dict[str, tuple[dict[str, Any], int, str | None, str | None]] = {
    "grid": ({"method": "grid", "space": {"lr": [0.1, 0.2]}}, 27, None, "every point of its space"),
    "random": ({"method": "random", "num": 4}, 27, None, None),
    "median": ({"method": "median", "num": 4}, 27, None, None),
    "tpe": ({"method": "tpe", "num": 4}, 27, None, None),
    "asha": ({"method": "asha", "num": 27}, 27, None, None),
    "hyperband": ({"method": "hyperband"}, 27, "rungs at 1-3, 3, none", "groups of a fixed size"),
    "hyperband, no further rung": ({"method": "hyperband", "min_resource": 3}, 9, None, "groups of a"),
    "pbt": ({"method": "pbt", "num": 4}, 27, "decides by the number of epochs", "groups of a fixed size"),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_says_which_lengthening_would_change_it(name: str) -> None:
    section, epochs, longer, more = SEARCHES[name]
    before = recipe(8 if "further" in name else 9, **section)
    after = recipe(epochs, **section)
    context = SearchContext(partitions=4, epochs=before.epochs)
    reason = why_not_longer(make_search(after), after, context, after.epochs)
    assert (reason is None) == (longer is None), reason
    assert longer is None or longer in str(reason)
    reason = why_not_more(make_search(after), after)
    assert (reason is None) == (more is None), reason
    assert more is None or more in str(reason)
