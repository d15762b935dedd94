"""What the user's files keep that can be neither carried nor put back: it may only stay as it is."""

from __future__ import annotations

import io
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from cerebro_elastic.errors import TaskError
from cerebro_elastic.training.objects.opaque import Fingerprint, Unseen, fingerprint
from cerebro_elastic.training.objects.value_types import name_of

Watched: TypeAlias = dict[str, tuple[Any, Fingerprint]]
"""By path: an object and its fingerprint."""

_REGISTRIES = (weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
"""They list objects of the process that are alive: each process, and each unit, has others."""

REMEDY = (
    "keep what changes in plain values, tensors or objects of classes of your own, or as an attribute of the "
    "module, where each config has its own"
)


def watch(objects: Mapping[str, Any], carried: Mapping[int, str]) -> Watched:
    """The objects with their fingerprints, which do not look into what is ``carried``, given by id; without
    those whose changes do not matter."""
    prints = {path: (value, fingerprint(value, carried)) for path, value in objects.items()}
    return {
        path: (value, shown)
        for path, (value, shown) in prints.items()
        if shown is not None and not isinstance(value, _REGISTRIES)
    }


def refuse_unseen(watched: Watched) -> None:
    """Raise ``TaskError`` for an object whose changes nothing would show."""
    for path, (value, shown) in watched.items():
        if isinstance(shown, Unseen):
            raise TaskError(
                f"{described(path)} is a {name_of(type(value))}: whether training changes it cannot be seen "
                f"({shown.why}), and all configs of a process share it. Make it inside a function, or "
                f"{REMEDY}; or, if it does not matter to training, keep it in an object whose class has "
                "state_dict and load_state_dict without it"
            )


def changes(watched: Watched, carried: Mapping[int, str]) -> list[str]:
    """What has changed, as sentences."""
    return [
        f"{described(path)}, a {type(value).__qualname__}, has changed during training. It cannot hop to "
        f"another node, and the other configs of the process would begin with the change: {REMEDY}"
        for path, (value, before) in watched.items()
        if not isinstance(before, Unseen) and fingerprint(value, carried) != before
    ]


def rebindings(watched: Watched, bound: Mapping[str, Any], carried: Mapping[int, str]) -> Iterator[str]:
    """The variables, with what they were bound to in a unit, that this spoils, as sentences: if the object
    took the place of one that is watched, or moves whenever it is used. Another one that is made at its first
    use is watched from now on."""
    for path, value in bound.items():
        shown = fingerprint(value, carried)
        if shown is None or (path in watched and watched[path][0] is value):
            continue
        moves = isinstance(shown, Unseen) or hasattr(value, "__next__") or isinstance(value, io.IOBase)
        if path in watched or moves:
            yield (
                f"{described(path)} was set to a {type(value).__qualname__} during training, which cannot "
                f"hop to another node: {REMEDY}"
            )
        else:
            watched[path] = value, shown


def described(path: str) -> str:
    """A path in the graph of objects as its user calls it."""
    owner, _, name = path.partition("/")
    kind, _, of = owner.partition(" ")
    what = "the variable" if kind == "file" else "the attribute"
    return f"{what} {name.replace('/', '.')} of the {kind} {of}"
