"""The random generators of code that makes batches: the three global ones, and those that users' and
libraries' objects carry.

All code that makes a batch begins with the batch's seed (``seed_of_batch``), wherever it runs and whatever
ran before. So a batch is a function of its rows and its seed. In worker processes all generators begin with
it. In the rank the three global ones continue instead: they hop with the config, and one ordinary fit draws
from them.
"""

from __future__ import annotations

import random
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from cerebro_elastic.errors import TaskError
from cerebro_elastic.registry import is_users, is_users_module

CODE = (ModuleType, type, FunctionType, BuiltinFunctionType)
"""Types of code, not of values."""


def seed_of_batch(seed: Sequence[int], number: int) -> int:
    """The seed with which generators begin when batch ``number`` of a pass is made. ``seed`` is the pass's:
    ``job_batches.pass_seed`` of (run seed, epoch, partition, rank)."""
    return int(np.random.SeedSequence((*seed, number)).generate_state(1)[0])


def generator_states() -> tuple[object, ...]:
    """The states of the generators of Python, numpy and torch (on the CPU), to be compared."""
    numpy: Any = np.random.get_state(legacy=False)
    torch = sys.modules.get("torch")
    return (
        random.getstate(),
        numpy["state"]["key"].tobytes(),
        numpy["state"]["pos"],
        numpy["has_gauss"],
        torch and torch.default_generator.get_state().numpy().tobytes(),
    )


class ForeignGenerators:
    """The generators that ``objects`` carry (a ``transform``, a dataset, ...), besides the three global ones.

    They are found in attributes, also of classes, in short containers, in closures, defaults and partial
    calls, and in the variables of the files that define functions and classes: so are those of
    Albumentations, MONAI and Faker, and a ``rng = numpy.random.default_rng()`` of a user's file.
    """

    def __init__(self, objects: Mapping[str, object]) -> None:
        self.by_path = dict(reached(objects, is_generator))
        """Each generator, by the first path that leads to it."""

    def seed(self, seed: int) -> None:
        """Seed each generator by a number made from ``seed`` and its path. Raises ``TaskError`` for one that
        cannot be seeded."""
        for path, generator in self.by_path.items():
            own = np.random.SeedSequence((seed, zlib.crc32(path.encode())))
            try:
                _kind_of(generator).seed(generator, own)
            except (TypeError, NotImplementedError) as exc:
                raise TaskError(_UNSEEDED.format(path=path, kind=type(generator).__name__)) from exc
        if (opencv := sys.modules.get("cv2")) is not None:  # Albumentations' Spatter draws from its
            opencv.setRNGSeed(seed >> 1)

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Within the block they begin with seeds made from ``seed``; behind it they continue from their
        former states."""
        states = [_kind_of(generator).state(generator) for generator in self.by_path.values()]
        self.seed(seed)
        try:
            yield
        finally:
            for generator, state in zip(self.by_path.values(), states, strict=True):
                _kind_of(generator).put_back(generator, state)


_UNSEEDED = (
    "{path}, a {kind}, cannot be seeded, so that batches would differ each time they are made: draw from the "
    "generators of torch, numpy or Python, or make it of a seed that these draw (how-to/data.md, "
    "'Random numbers')"
)


class _Kind(NamedTuple):
    """How generators of a type are seeded in place, and put back."""

    seed: Callable[[Any, np.random.SeedSequence], object]
    state: Callable[[Any], Any]
    put_back: Callable[[Any, Any], object]


def _number(seed: np.random.SeedSequence) -> int:
    return int(seed.generate_state(1)[0])


def _seed_bits(generator: Any, seed: np.random.SeedSequence) -> None:
    generator.state = type(generator)(seed).state


def _seed_python(generator: random.Random, seed: np.random.SeedSequence) -> None:
    generator.getstate()  # a generator of the system has none
    generator.seed(_number(seed))


_KINDS: Mapping[type, _Kind] = {
    np.random.Generator: _Kind(
        lambda generator, seed: _seed_bits(generator.bit_generator, seed),
        lambda generator: generator.bit_generator.state,
        lambda generator, state: setattr(generator.bit_generator, "state", state),
    ),
    np.random.RandomState: _Kind(
        lambda generator, seed: generator.seed(_number(seed)),
        lambda generator: generator.get_state(legacy=False),
        lambda generator, state: generator.set_state(state),
    ),
    random.Random: _Kind(
        _seed_python,
        lambda generator: None if isinstance(generator, random.SystemRandom) else generator.getstate(),
        lambda generator, state: generator.setstate(state),
    ),
}
_OF_TORCH = _Kind(
    lambda generator, seed: generator.manual_seed(_number(seed)),
    lambda generator: generator.get_state(),
    lambda generator, state: generator.set_state(state),
)


def _kind_of(value: object) -> _Kind:
    return next((kind for type_, kind in _KINDS.items() if isinstance(value, type_)), _OF_TORCH)


_MOST_ITEMS, _MOST_VISITS = 256, 20_000
"""Longer containers have rows, and no transforms. A search ends after this number of objects."""
_DEEPEST = 24


def reached(objects: Mapping[str, object], wanted: Callable[[Any], bool]) -> Iterator[tuple[str, Any]]:
    """The ``wanted`` values that ``objects`` lead to, each by the first path that leads to it; not the three
    global generators."""
    return _Search(wanted).found(objects)


def is_generator(value: object) -> bool:
    """Whether random numbers are drawn from ``value``."""
    torch: Any = sys.modules.get("torch")
    of_torch = torch is not None and type(value) is type(torch.default_generator)
    return of_torch or isinstance(value, _GENERATORS)


def generator_state(generator: object) -> Any:
    """The state of a random generator."""
    return _kind_of(generator).state(generator)


class _Search:
    """A walk through objects to the ``wanted`` ones."""

    def __init__(self, wanted: Callable[[Any], bool]) -> None:
        self._wanted = wanted
        torch: Any = sys.modules.get("torch")
        self._data = (*_PLAIN, np.ndarray, *([torch.Tensor] if torch is not None else []))
        drawing: list[Any] = [random.random, np.random.random]
        global_ones = [*(draw.__self__ for draw in drawing), torch and torch.default_generator]
        self._seen: dict[int, object] = {id(each): each for each in global_ones}

    def found(self, objects: Mapping[str, object]) -> Iterator[tuple[str, object]]:
        for name, value in objects.items():
            yield from self._in(value, name, 0)

    def _in(self, value: Any, path: str, depth: int) -> Iterator[tuple[str, object]]:
        data, ended = isinstance(value, self._data), depth > _DEEPEST or len(self._seen) > _MOST_VISITS
        if not data:
            if ended or id(value) in self._seen:
                return
            self._seen[id(value)] = value  # kept: another one must not get its address
        if self._wanted(value):
            yield path, value
        if data or is_generator(value):
            return
        for name, part in self._parts(value, path):
            yield from self._in(part, name, depth + 1)

    def _parts(self, value: Any, path: str) -> Iterator[tuple[str, Any]]:
        match value:
            case ModuleType():
                if is_users_module(value.__name__):
                    yield from self._of_file(value.__name__)
            case type():
                yield from self._of_class(value)
            case FunctionType():
                cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
                yield from ((f"{path}.{name}", item) for name, cell in cells for item in in_cell(cell))
                yield from ((f"{path}({place})", item) for place, item in enumerate(value.__defaults__ or ()))
                yield from _named(path, {**(value.__kwdefaults__ or {}), **vars(value)})
                yield from self._of_file(value.__module__)
            case MethodType():
                yield from ((path, value.__self__), (path, value.__func__))
            case partial():
                yield from [(path, value.func), (path, value.args), (path, value.keywords)]
                yield from _named(path, vars(value))
            case Mapping() if len(value) <= _MOST_ITEMS:
                yield from ((f"{path}[{key!r}]", item) for key, item in value.items())
            case list() | tuple() if len(value) <= _MOST_ITEMS:
                yield from ((f"{path}[{place}]", item) for place, item in enumerate(value))
        if not isinstance(value, (*CODE, MethodType)):
            yield from self._of_object(value, path)

    def _of_object(self, value: Any, path: str) -> Iterator[tuple[str, Any]]:
        kind = type(value)
        if str(kind.__module__).partition(".")[0] in sys.stdlib_module_names:
            return
        slots = [name for each in kind.__mro__ for name in _texts(vars(each).get("__slots__", ()))]
        with suppress(Exception):  # a class of the user's may raise anything
            yield from _named(path, {name: getattr(value, name) for name in slots if hasattr(value, name)})
            yield from _named(path, vars(value))
        for each in kind.__mro__:
            yield each.__qualname__, each

    def _of_class(self, kind: type) -> Iterator[tuple[str, Any]]:
        """The attributes of a class; of a library's only generators."""
        for name, value in list(vars(kind).items()):
            if is_users(kind) or is_generator(value):
                yield f"{kind.__qualname__}.{name}", getattr(value, "__func__", value)
        yield from self._of_file(kind.__module__)

    def _of_file(self, name: object) -> Iterator[tuple[str, Any]]:
        """The variables of a file; of a library's only generators."""
        if not isinstance(name, str):  # of some types written in C
            return
        if name.partition(".")[0] in sys.stdlib_module_names and name != "__main__":
            return
        users, file = is_users_module(name), sys.modules.get(name)
        if file is None or id(variables := vars(file)) in self._seen:
            return
        self._seen[id(variables)] = variables
        for variable, value in list(variables.items()):
            if is_generator(value) or (users and not variable.startswith("__")):
                yield f"{name}.{variable}", value


_GENERATORS = tuple(_KINDS)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic)


def _named(path: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from ((f"{path}.{name}", value) for name, value in list(values.items()))


def _texts(value: Any) -> Sequence[str]:
    return (value,) if isinstance(value, str) else tuple(value)


def in_cell(cell: CellType) -> list[Any]:
    """The content of a closure's cell, if it is assigned."""
    try:
        return [cell.cell_contents]
    except ValueError:
        return []
