"""Finds why batches differ: what of the user's code that makes them changes while an ordinary fit takes them.

Code that makes data is looked through as far as its names lead: attributes, closures, defaults, the variables
that it names, and those of the user's modules that it names. Numbers, texts and small arrays among them, and
the states of generators, are compared before the fit, at its first batch and at its third."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.registry import is_users, is_users_module

_PLAIN = (bool, int, float, str, bytes, type(None))
_MOST = 200
"""A container with more items is taken for data, and not looked through."""
_LARGEST = 1 << 16
"""In bytes, of an array that is compared."""
_DEEPEST = 12


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
    roots: dict[str, Any] = {f"`{name}`": function for name, function in loader.functions.items()}
    if loader.dataset is not None:
        datasets = loader.dataset.make()
        roots = {"the dataset": [*datasets.by_split.values(), datasets.collate], **roots}
    return {(name, path): text for name, root in roots.items() for path, text in _walk(root, "", set(), 0)}


def _walk(value: Any, path: str, seen: set[int], depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, _PLAIN):
        yield path, repr(value)
        return
    if (state := _state_of(value)) is not None:
        yield path, f"{_GENERATOR}{state!r}"
        return
    if isinstance(getattr(value, "nbytes", None), int):
        if value.nbytes <= _LARGEST:
            yield path, repr(getattr(value, "tolist", lambda: None)())
        return
    if id(value) in seen or depth > _DEEPEST:
        return
    seen.add(id(value))
    for name, part in _parts(value, path):
        yield from _walk(part, name, seen, depth + 1)


def _state_of(value: Any) -> Any:
    """The state of a random generator; ``None`` of anything else."""
    match value:
        case random.Random():
            return value.getstate()
        case np.random.Generator():
            return value.bit_generator.state
        case np.random.RandomState():
            return value.get_state()
    if type(value).__module__.startswith("torch") and type(value).__name__ == "Generator":
        return value.get_state().tolist()
    return None


def _parts(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """What a value leads to, by names that people know."""
    match value:
        case partial():
            yield path, [value.func, value.args, value.keywords]
        case MethodType():
            yield path, value.__self__
            yield path, value.__func__
        case FunctionType():
            yield from _parts_of_function(value)
        case dict():
            yield from ((f"{path}[{key!r}]", item) for key, item in islice(value.items(), _MOST))
        case list() | tuple():
            if len(value) <= _MOST:
                yield from ((f"{path}[{at}]" if path else "", item) for at, item in enumerate(value))
        case type() | ModuleType():
            return
        case _:
            yield from ((f"{path}.{name}", item) for name, item in _attributes(value).items())
            for kind in type(value).__mro__:
                if is_users(kind):
                    yield from ((f"{kind.__name__}.{name}", item) for name, item in _attributes(kind).items())


def _attributes(value: Any) -> Mapping[str, Any]:
    names = getattr(value, "__dict__", {})
    return {
        name: item
        for name, item in names.items()
        if not (name[:2] == name[-2:] == "__" and name not in _CALLED)
    }


_CALLED = ("__call__", "__getitem__", "__getitems__")


def _parts_of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    if not is_users_module(function.__module__):
        return
    file = Path(function.__code__.co_filename).stem
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"{file}.{function.__name__}.{name}", cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    yield f"a default of {function.__name__}", [function.__defaults__, function.__kwdefaults__]
    yield from ((f"{function.__name__}.{name}", item) for name, item in vars(function).items())
    names = _names(function.__code__)
    for name in names:
        if name in os.environ:
            yield f"the environment variable {name}", os.environ[name]
        item = function.__globals__.get(name)
        if not isinstance(item, ModuleType):
            yield f"{file}.{name}", item
        elif is_users_module(item.__name__):
            owned = vars(item)
            yield from ((f"{item.__name__}.{each}", owned[each]) for each in names if each in owned)


def _names(code: CodeType) -> list[str]:
    """The names of variables and attributes, and the texts, in it and the functions inside it."""
    inside = [name for each in code.co_consts if isinstance(each, CodeType) for name in _names(each)]
    return [*code.co_names, *(each for each in code.co_consts if isinstance(each, str)), *inside]
