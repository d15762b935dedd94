"""Values as Python expressions that make them again."""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

Reference: TypeAlias = Callable[[Any], str | None]
"""The expression of a module, class or function; ``None`` of anything else, or if others cannot import it."""

_PLAIN = (type(None), type(...), bool, int, str, bytes, complex)
_LONGEST = 20_000
"""Characters of an expression. More is data."""
_PROTOCOL = 2
"""The newest in which all that an object needs is in the arguments of one call."""


def expression(value: Any, reference: Reference) -> str | None:
    """An expression that makes an equal value of the same type; ``None`` if there is none, or a long one.

    Numbers, texts and containers of them are written as they are. Other values are written as the call by
    which ``pickle`` would make them, if that needs no further state: paths, dates, numbers of numpy, members
    of an enumeration, ``torch.float32``. ``reference`` names what is called.
    """
    try:
        text = _Writer(reference).write(value)
    except (_NoExpression, RecursionError):
        return None
    return text if len(text) <= _LONGEST else None


class _NoExpression(Exception):
    """A value cannot be written."""


class _Writer:
    def __init__(self, reference: Reference) -> None:
        self._reference = reference

    def write(self, value: Any) -> str:
        kind = type(value)
        if kind in _PLAIN:
            return repr(value)
        if kind is float:
            return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
        if kind is dict:
            return f"{{{', '.join(f'{self.write(k)}: {self.write(v)}' for k, v in value.items())}}}"
        if kind is list:
            return f"[{self._all(value)}]"
        if kind is tuple:
            return f"({self._all(value)}{',' if len(value) == 1 else ''})"
        if kind in (set, frozenset):  # the same text in each process
            return f"{kind.__name__}([{', '.join(sorted(map(self.write, value)))}])"
        if kind is functools.partial:
            return self._call(functools.partial, [value.func, *value.args], value.keywords)
        if (name := self._reference(value)) is not None:
            return name
        is_single = kind.__module__ == "numpy" and not getattr(value, "ndim", 1)
        if is_single and type(item := value.item()) in (*_PLAIN, float):
            return self._call(kind, [item])
        if dataclasses.is_dataclass(kind) and all(field.init for field in dataclasses.fields(kind)):
            return self._call(kind, [], {f.name: getattr(value, f.name) for f in dataclasses.fields(kind)})
        return self._reduced(value)

    def _all(self, values: Iterable[Any]) -> str:
        return ", ".join(map(self.write, values))

    def _call(self, function: Any, args: Iterable[Any], keywords: dict[str, Any] | None = None) -> str:
        named = (f"{name}={self.write(value)}" for name, value in (keywords or {}).items())
        return f"{self.write(function)}({', '.join([*map(self.write, args), *named])})"

    def _reduced(self, value: Any) -> str:
        """The call by which ``pickle`` makes the value."""
        if value is type(None):
            return "type(None)"
        if isinstance(value, type):
            raise _NoExpression
        try:
            reduce = copyreg.dispatch_table.get(type(value))
            reduced: Any = reduce(value) if reduce else value.__reduce_ex__(_PROTOCOL)
        except Exception as exc:  # of a class of anybody's
            raise _NoExpression from exc
        if isinstance(reduced, str):
            return self._global(value, reduced)
        function, args, *state = reduced
        if any(part not in (None, {}) for part in state):
            raise _NoExpression
        return self._call(function, args)

    def _global(self, value: Any, name: str) -> str:
        """A value that a module has under a name."""
        for module in list(sys.modules.values()):
            if vars(module).get(name) is value and (text := self._reference(module)) is not None:
                return f"{text}.{name}"
        raise _NoExpression
