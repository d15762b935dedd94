"""A setting of the process, which configs share: torch's default dtype, the working directory, ..."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import ne
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of the process. Reading it must take microseconds: each unit reads it three times."""

    name: str
    """Its name, as messages show it."""
    get: Callable[[], Any]
    """Reads it. A lasting value must not change on its own."""
    put: Callable[[Any], object]
    """Sets it to a value that was read."""
    refused: bool = True
    """Whether training may depend on it: then training must not set it."""
    differs: Callable[[Any, Any], Any] = ne
    """Whether the value now differs from the one at set-up, so that training has set it."""
    sent: bool = True
    """Whether a process that makes batches takes it over: not devices or threads."""
