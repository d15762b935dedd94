"""Which searches stay the same when a run is extended?

What a search decides in an extended run is what it would have decided in a run of that length from the start,
apart from the times at which results are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cerebro_elastic.core.model.interfaces import Search, SearchContext
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.search.halving import Bracket, Halving
from cerebro_elastic.search.procedure import MedianStopping, Procedure
from cerebro_elastic.system.words import counted


def why_not_longer(search: Search, recipe: Recipe, context: SearchContext, epochs: int) -> str | None:
    """Why configs cannot be trained for ``epochs`` epochs after those of ``context``; ``None`` if nothing of
    the search depends on their number. ``search`` is that of the longer run."""
    method = recipe.search.method
    if isinstance(search, Halving):
        before, after = search.brackets(context), search.brackets(replace(context, epochs=epochs))
        if [bracket.size for bracket in before] == [None]:
            return None  # asha: its rungs are the same, and perhaps further ones; configs wait at those
        if before == after:
            return None
        return (
            f"method {method} puts its rungs at {_rungs(before)}, and would put them at {_rungs(after)} for "
            f"{counted(epochs, 'epoch')}: its brackets would have other sizes, and other configs would go on"
        )
    if type(search) in (Procedure, MedianStopping):
        return None
    return (
        f"method {method} decides by the number of epochs: in a longer run it would have stopped, changed or "
        "copied configs where they have ended now"
    )


def why_not_more(search: Search, recipe: Recipe) -> str | None:
    """Why the search cannot get a greater ``num``."""
    method = recipe.search.method
    if method == "grid":
        return (
            "method grid has tried every point of its space: run a recipe with a larger space, and name this "
            "run in search.known, so that no point is trained twice"
        )
    asynchronous = isinstance(search, Halving) and not search.synchronous
    if type(search) in (Procedure, MedianStopping) or asynchronous:
        return None
    return (
        f"method {method} compares configs in groups of a fixed size, which are decided: a run with more "
        "configs would have decided otherwise"
    )


def _rungs(brackets: Sequence[Bracket]) -> str:
    return ", ".join("-".join(map(str, bracket.rungs)) or "none" for bracket in brackets)
