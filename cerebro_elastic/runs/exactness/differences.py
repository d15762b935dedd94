"""Finds where two trainings of a config differ, and explains what that means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from cerebro_elastic.runs.exactness.outcome import ORDINARY_FIT
from cerebro_elastic.system.words import counted

DIGEST = "#"
"""The prefix of a digest in place of a value that is too large to show."""
_COURSE = "course"
BATCH = "batch"
"""The kind of the batches since the previous moment, all in one value."""
LOGGED, METRIC = "logged", "metric"
"""The kinds of values of logged rows, and of epochs' metrics."""
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
    LOGGED,
    METRIC,
)
"""The kinds of a training's values. Among differences at one moment, earlier kinds are likelier causes."""
_MAY_VARY = ("attribute", "callback", LOGGED, METRIC)
"""The kinds in which a clock read by a module is harmless. In any other kind the training itself is not
deterministic."""
_TRAINS_NOTHING = ("attribute", "callback")
"""Differences only in these, to the end, have had no effect: weights, rows and metrics are equal."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The values of a training at one moment."""

    when: str
    """Names the moment among those around it."""
    place: str
    """Its place, in words."""
    hops: int
    """The number of the config's hops so far."""
    parts: int
    """The number of times that the present unit was left and taken up again."""
    values: Mapping[str, str]
    """The values by kind and name; equal texts stand for equal bits."""


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first moment at which a value differs."""

    name: str
    """The value's kind and name."""
    first: str | None
    """The value in the first training; ``None`` without one."""
    second: str | None
    """The value in the second training; ``None`` without one."""
    at: Moment
    """The second training's moment; the first one's if that is longer."""

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
            break  # from here on the moments do not correspond
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
    """The ``differences`` that are not due to chance: the values named ``varying`` differ each time."""
    return [difference for difference in differences if difference.name not in varying]


def names_of(differences: Iterable[FirstDifference]) -> list[str]:
    """The names of the values that differ."""
    return list(dict.fromkeys(difference.name for difference in differences))


def is_chance(varying: Collection[str]) -> bool:
    """Whether the training itself differs each time, and not only the times that it records."""
    return any(kind_of(name) not in _MAY_VARY for name in varying)


def trains_nothing(differences: Sequence[FirstDifference]) -> bool:
    """Whether all ``differences`` are in values without effect on the training."""
    return all(difference.kind in _TRAINS_NOTHING for difference in differences)


def explain(differences: Sequence[FirstDifference], reference: str = ORDINARY_FIT) -> str:
    """Explain the differences between the ``reference`` and units, and what to do about them."""
    return f"{seen(differences, reference)}.\n{_advice(differences[0])}"


def seen(differences: Sequence[FirstDifference], reference: str) -> str:
    """The first of the ``differences`` in words, and the number of the others."""
    first, *later = differences
    counts = Counter(difference.kind for difference in later)
    texts = [f"{counted(count, 'value')} of {kind}" for kind, count in counts.items()]
    besides = f"; then also {', '.join(texts)}" if texts else ""
    return f"{_value(first, reference)}, {first.at.place}{besides}"


def explain_scratch(names: Sequence[str]) -> str:
    """Explain that the values with these ``names`` differ, and train nothing."""
    return (
        f"only {names_text(names)} differs, and nothing that is trained by it: batches, weights, optimizers "
        "and generators are equal (a clock, a cache?)"
    )


def explain_together(what: str) -> str:
    """Explain ``what`` happens to a config in a process that also trains others."""
    return (
        f"in one process with other configs, as on a rank of a run, {what}.\nWhat one config sets or keeps "
        "in the process reaches another: a variable, an attribute of a library's module or object, a cache, "
        "a file, or a setting that is not undone after a unit. Keep it in what is trained, take it as an "
        "argument, or have each config set it"
    )


def explain_chance(varying: Sequence[str]) -> str:
    """Explain what to do about a module that is not deterministic by itself."""
    advice = (
        "Does it read a clock, a process id or a file that changes, or draw from a generator that is not "
        "seeded? For operations that are not deterministic, as some on GPUs, set task: {trainer: "
        "{deterministic: true}}"
    )
    return (
        f"two ordinary fits differ from one another ({names_text(varying)}), so that nothing can be said of "
        f"hopping.\n{_ADVICE_ON_DATA if kind_of(varying[0]) == BATCH else advice}"
    )


_ADVICE_ON_DATA = (
    "A batch may depend on its rows, and on what its functions get as arguments; at random it may draw from "
    "the generators of torch, numpy and Python. Do the functions of the data count batches, or read a clock, "
    "a file, a variable that is set after its import, or a setting or a generator of a library?"
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
        return "the batches differ"
    if any(value is not None and DIGEST in value for value in values):
        return f"{difference.name} differs"
    first, second = ("absent" if value is None else value for value in values)
    return f"{difference.name} is {first} in {reference} and {second} in units"


def _advice(first: FirstDifference) -> str:
    if first.kind == BATCH:
        return _ADVICE_ON_DATA
    if first.at.hops == 0 and first.at.parts == 0:
        return (
            "This is before the first hop: the module, or a callback, sees that it is trained in a unit. "
            "Does it decide by something of the trainer's (logger, strategy, loaders, numbers of batches)?"
        )
    since = "another process went on inside the unit" if first.at.parts else "the config hopped"
    return (
        f"Before, all was equal; then {since}. Something is kept where it does not hop: in a global "
        "variable, in the class, in a closure, in a file, or in an object that hides its state. Keep it in "
        "what is trained: in an attribute of the module as plain values or tensors, as a buffer, or by "
        "state_dict and load_state_dict of the object's class"
    )
