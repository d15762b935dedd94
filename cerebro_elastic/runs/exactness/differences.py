"""Finds where two trainings of a config differ, and explains what that means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from cerebro_elastic.runs.exactness.outcome import ALONE, ORDINARY_FIT
from cerebro_elastic.system.words import counted

DIGEST = "#"
"""Begins what stands for a value that is too large to be shown."""
_COURSE = "course"
BATCH = "batch"
"""The kind of the batches that were taken since the moment before, all in one value."""
_KINDS = (
    _COURSE,
    BATCH,
    "attribute",
    "callback",
    "counter",
    "hooks",
    "generator",
    "scheduler",
    "state",
    "weight",
    "buffer",
    "optimizer",
    "logged",
    "metric",
)
"""What training consists of. Of what differs at a moment, the kinds that come first are rather the cause."""
_MAY_VARY = ("attribute", "callback", "logged", "metric")
"""Where a clock that a module reads is harmless. Anywhere else the training itself is not deterministic."""
_TRAINS_NOTHING = ("attribute", "callback")
"""What differs in these alone, to the end, has had no effect: weights, rows and metrics are equal."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The values of a training at one moment."""

    when: str
    """Names the moment among those around it."""
    place: str
    """Where it is, in words."""
    hops: int
    """How often the config had hopped."""
    parts: int
    """How often the present unit was left and taken up again."""
    values: Mapping[str, str]
    """The values by kind and name; equal texts stand for equal bits."""


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first moment at which a value differs."""

    name: str
    """The value's kind and name."""
    first: str | None
    """The value in the first training; ``None`` if that has none."""
    second: str | None
    """The value in the second training; ``None`` if that has none."""
    at: Moment
    """The second training's moment; the first one's if that goes on longer."""

    @property
    def kind(self) -> str:
        """The first word of ``name``."""
        return kind_of(self.name)


def kind_of(name: str) -> str:
    """``weight`` of ``weight layers.0.bias``."""
    return name.partition(" ")[0]


def differences(first: Sequence[Moment], second: Sequence[Moment]) -> list[FirstDifference]:
    """The first difference of each value, in the order of moments, and by kinds within a moment."""
    by_name: dict[str, FirstDifference] = {}
    for one, other in zip_longest(first, second):
        for difference in sorted(_at(one, other), key=lambda d: _KINDS.index(d.kind)):
            by_name.setdefault(difference.name, difference)
        if one is None or other is None or one.when != other.when:
            break  # from here on they are not the same moments
    return list(by_name.values())


def _at(one: Moment | None, other: Moment | None) -> Iterator[FirstDifference]:
    if one is None or other is None or one.when != other.when:
        at = other or one
        assert at is not None
        yield FirstDifference(_COURSE, one.when if one else None, other.when if other else None, at)
        return
    for name in {**one.values, **other.values}:
        values = one.values.get(name), other.values.get(name)
        if values[0] != values[1]:
            yield FirstDifference(name, *values, other)


def steady(differences: Sequence[FirstDifference], varying: Collection[str]) -> list[FirstDifference]:
    """The ``differences`` that are not by chance: the values named ``varying`` differ each time."""
    return [difference for difference in differences if difference.name not in varying]


def names_of(differences: Iterable[FirstDifference]) -> list[str]:
    """The names of the values that differ."""
    return list(dict.fromkeys(difference.name for difference in differences))


def is_chance(varying: Collection[str]) -> bool:
    """Whether the training itself differs each time, and not only the times that it records."""
    return any(kind_of(name) not in _MAY_VARY for name in varying)


def trains_nothing(differences: Sequence[FirstDifference]) -> bool:
    """Whether all ``differences`` are of what has had no effect on what is trained."""
    return all(difference.kind in _TRAINS_NOTHING for difference in differences)


def explain(differences: Sequence[FirstDifference], reference: str = ORDINARY_FIT) -> str:
    """Explain the differences between the ``reference`` and units, and what to do about them."""
    first = differences[0]
    seen = f"{_value(first, reference)}, {first.at.place}{_besides(differences[1:])}"
    if first.kind == BATCH:
        return f"the batches differ: {seen}.\n{_ADVICE_ON_DATA}"
    return f"{seen}.\n{_advice(first.at, first.kind)}"


_ADVICE_ON_DATA = (
    "A batch may depend on its rows, and on what its functions get as arguments; at random it may draw from "
    "the generators of torch, numpy and Python. Do the functions of the data count batches, or read a clock, "
    "a file, a variable that is set after its import, or a setting or a generator of a library?"
)


def explain_scratch(names: Sequence[str], varying: Sequence[str]) -> str:
    """Explain that only values differ that train nothing: those named, and those ``varying`` anyway."""
    texts = [f"two ordinary fits differ in this, too: {names_text(varying)} (a clock?)"] if varying else []
    if names:
        texts.append(
            f"only {names_text(names)} differs, and nothing that is trained by it: batches, weights, "
            "optimizers, generators, logged rows and metrics are equal (a cache?)"
        )
    return "; ".join(texts)


def explain_together(found: str | Sequence[FirstDifference]) -> str:
    """Explain the error, or the differences, with which a config trains where others are trained, too."""
    if isinstance(found, str):
        seen = f"it ends with an error: {found}"
    else:
        seen = f"{_value(found[0], ALONE)}, {found[0].at.place}{_besides(found[1:])}"
        if found[0].kind == BATCH:
            return (
                f"in one process with other configs, as on a rank of a run, the batches differ: {seen}.\n"
                "What makes them reads what a config sets in the process, such as a variable, the "
                "environment or a setting of a library: take what they depend on as arguments"
            )
    return (
        f"in one process with other configs, as on a rank of a run, {seen}.\nWhat one config sets or keeps "
        "in the process reaches another: an attribute of a library's module or object, a cache, a file, or a "
        "setting that is not undone after a unit. Keep it in what is trained, or have each config set it"
    )


def explain_chance(varying: Sequence[str]) -> str:
    """Explain what to do about a module that is not deterministic by itself."""
    if kind_of(varying[0]) == BATCH:
        return f"two ordinary fits get other batches: nothing can be said of hopping.\n{_ADVICE_ON_DATA}"
    return (
        f"two ordinary fits differ from one another ({names_text(varying)}), so that nothing can be said of "
        "hopping: the module is not deterministic.\nDoes it read a clock, a process id or a file that "
        "changes, or draw from a generator that is not seeded? For operations that are not deterministic, as "
        "some on GPUs, set task: {trainer: {deterministic: true}}"
    )


def names_text(names: Sequence[str], most: int = 4) -> str:
    """The first few of the ``names``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _value(difference: FirstDifference, reference: str) -> str:
    """The two values in words, if they are short."""
    values = (difference.first, difference.second)
    if difference.name == _COURSE:
        first, second = (f"{value} a batch" if value else "over" for value in values)
        return f"{reference} is {first} when units are {second}"
    if difference.kind == BATCH:
        return f"{reference} and units get different ones"
    if difference.name == "hooks":
        return f"the hooks called are [{values[0]}] in {reference} and [{values[1]}] in units"
    if any(value is not None and DIGEST in value for value in values):
        return f"{difference.name} differs"
    shown = ["absent" if value is None else value for value in values]
    return f"{difference.name} is {shown[0]} in {reference} and {shown[1]} in units"


def _besides(later: Sequence[FirstDifference]) -> str:
    counts = Counter(difference.kind for difference in later)
    texts = [f"{counted(count, 'value')} of {kind}" for kind, count in counts.items()]
    return f"; then also {', '.join(texts)}" if texts else ""


def _advice(at: Moment, kind: str) -> str:
    if at.hops == 0 and at.parts == 0:
        return (
            "This is before the first hop: the module, or a callback, sees that it is trained in a unit. "
            "Does it decide by something of the trainer's (logger, strategy, loaders, numbers of batches)?"
        )
    since = "another process went on inside the unit" if at.parts else "the config hopped"
    if kind == "state":
        return (
            f"Before, all was equal; then {since}. Something is kept where it does not hop, such as a global "
            "variable, a closure or a file, and training depends on it. Keep it in what is trained"
        )
    return (
        f"Before, all was equal; then {since}. Something is kept where it does not hop: in a global "
        "variable, in the class, in a closure, or in an object that hides its state. Keep it in an attribute "
        "of the module as plain values or tensors, register a buffer, or give the object's class state_dict "
        "and load_state_dict"
    )
