"""What users' code draws from and keeps between its calls: generators, and what a function has in attributes,
closures and the global variables of its file.

Code that makes data begins with a seed, wherever it runs. A batch is shared, and a row is opened once, only
if making it has left all of that as it was.
"""

from __future__ import annotations

import io
import pickle
import random
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any, Self

import numpy as np

_LARGE = 1 << 20
"""Arrays of more bytes than this count as data, which no function changes."""
_FIXED_SECONDS, _BYTES_PER_SECOND = 2e-5, 1e9
"""The cost of keeping a value and taking it again: seconds, and bytes per second."""
CODE = (ModuleType, type, FunctionType, BuiltinFunctionType)
"""What runs, and is no value."""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within the block the generators of Python, numpy and torch (on the CPU) begin with ``seed``; behind it
    they go on where they stood. Torch is not imported for it."""
    python, numpy, torch = random.getstate(), np.random.get_state(), sys.modules.get("torch")
    state = torch.get_rng_state() if torch is not None else None
    seed_generators(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        if torch is not None:
            torch.set_rng_state(state)


def seed_generators(seed: int) -> None:
    """Let the generators of Python, numpy and torch (on the CPU) begin with ``seed``."""
    random.seed(seed)
    np.random.seed(seed)
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.manual_seed(seed)


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


class Watched:
    """Within the block ``values`` values are made by ``functions``. ``pays`` says whether to keep them."""

    def __init__(self, functions: Iterable[Any], values: int = 1) -> None:
        self._functions = list(functions)
        self._values = values

    def __enter__(self) -> Self:
        self._before = kept_state(self._functions)
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._seconds = time.perf_counter() - self._began
        began = time.thread_time()  # not the time of others, on a machine that is full
        self._unchanged = kept_state(self._functions) == self._before
        self._watch_seconds = time.thread_time() - began

    def pays(self, size: int) -> bool:
        """Whether a value of ``size`` bytes may be kept, and costs less to keep and take again than to
        make."""
        watched = _FIXED_SECONDS + 2 * self._watch_seconds / self._values
        return self._unchanged and self._seconds / self._values > watched + size / _BYTES_PER_SECOND


def kept_state(functions: Iterable[Any]) -> tuple[object, ...]:
    """The state of this process's generators and of ``functions`` (or objects), to be compared."""
    content = io.BytesIO()
    pickler = _Pickler(content)
    for value in _values(functions):
        pickler.take(value)
    return (*generator_states(), content.getvalue())


def _values(functions: Iterable[Any]) -> Iterator[Any]:
    files: dict[int, dict[str, Any]] = {}
    for function in functions:
        while isinstance(function, partial):
            yield function.args, function.keywords
            function = function.func
        if isinstance(function, MethodType):
            yield function.__self__
            function = function.__func__
        yield from list(getattr(function, "__dict__", {}).values())
        yield from (item for cell in getattr(function, "__closure__", None) or () for item in in_cell(cell))
        names = getattr(function, "__globals__", None)
        if names is None:  # an object
            names = vars(sys.modules.get(type(function).__module__, object))
        files[id(names)] = names
    for names in files.values():
        yield from [v for name, v in names.items() if name[:2] != "__" and not isinstance(v, CODE)]


def in_cell(cell: CellType) -> list[Any]:
    """What a cell of a closure holds, if it is assigned yet."""
    try:
        return [cell.cell_contents]
    except ValueError:
        return []


class _Pickler(pickle.Pickler):
    """Writes what may change, and of the rest which object it is."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self._file = file

    def take(self, value: Any) -> None:
        start = self._file.tell()
        try:
            self.dump(value)
        except Exception:  # what cannot be pickled, such as a lock
            self._file.seek(start)
            self._file.truncate()
            self._file.write(b"%d" % id(value))

    def persistent_id(self, value: Any) -> int | None:
        """An object that is not written."""
        large = isinstance(size := getattr(value, "nbytes", None), int) and size > _LARGE
        return id(value) if large or isinstance(value, CODE) else None
