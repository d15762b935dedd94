"""Finds why batches differ: what of the user's code that makes them changes while an ordinary fit takes them.

Numbers, texts, small arrays and generators that it leads to, wherever ``data/user_state.py`` looks for
generators, are compared before the fit, at its first batch and at its third."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.user_state import generator_state, is_generator, reached

_PLAIN = (bool, int, float, str, bytes, type(None))
_LARGEST = 1 << 16
"""In bytes, of an array that is compared."""


class _Enough(BaseException):
    """Leaves the fit."""


def why_batches_differ(loader: LoaderSettings, fit: Callable[[Callable[[Any], None]], object]) -> str:
    """What changes, as the subject and verb of a sentence, by the name of the function that has it; "" if
    nothing does. ``fit`` makes an ordinary fit, and calls its argument with each batch."""
    seen = [_kept_by(loader)]

    def watch(_batch: Any) -> None:
        seen.append(_kept_by(loader))
        if len(seen) > 3:
            raise _Enough

    with suppress(_Enough):
        fit(watch)
    if len(seen) < 3:
        return ""
    before, first, *_, later = seen
    draws = [name for name in _changed(before, later) if later[name].startswith(_GENERATOR)]
    counts = [name for name in _changed(first, later) if name not in draws]
    is_set = [name for name in _changed(before, first) if name not in (*draws, *counts)]
    for names, text in (
        (draws, "draws from a generator of its own, {}"),
        (counts, "changes {} from batch to batch"),
        (is_set, "reads {}, which is set after its import, as while the model is made"),
    ):
        if names:
            function, what = names[0]
            return f"{function} {text.format(f'its {what[1:]}' if what.startswith('.') else what)}"
    return ""


_Name = tuple[str, str]
"""The function, and what it has."""
_GENERATOR = "generator "


def _changed(before: Mapping[_Name, str], after: Mapping[_Name, str]) -> list[_Name]:
    return [name for name, text in after.items() if name in before and before[name] != text] + [
        name for name in after if name not in before
    ]


def _kept_by(loader: LoaderSettings) -> dict[_Name, str]:
    """What the code that makes batches keeps and reads, as texts."""
    roots = [(f"`{name}`", function) for name, function in loader.functions.items()]
    if loader.dataset is not None:
        datasets = loader.dataset.make()
        roots = [("the dataset", each) for each in (*datasets.by_split.values(), datasets.collate)] + roots
    return {
        (name, path.removeprefix(name)): _text(value)
        for name, root in roots
        for path, value in reached({name: root}, _is_compared)
    }


def _is_compared(value: Any) -> bool:
    size = getattr(value, "nbytes", None)
    small = isinstance(size, int) and size <= _LARGEST and hasattr(value, "tolist")
    return small or isinstance(value, _PLAIN) or is_generator(value)


def _text(value: Any) -> str:
    if is_generator(value):
        return f"{_GENERATOR}{generator_state(value)!r}"
    return repr(value if isinstance(value, _PLAIN) else value.tolist())
