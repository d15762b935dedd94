"""A dozen settings of the process, which configs share: torch's default dtype, the working directory, ...

A unit begins with the settings right after the imports of the user's files, and what it sets is put back at
its end. What its set-up sets is set again by the next unit; what training sets would be lost, and is refused.
Processes that make a unit's batches take its settings over: functions of the user's may depend on them.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import ne
from typing import Any, Self

import numpy as np

from cerebro_elastic.errors import TaskError


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of the process. Reading it must take microseconds: each unit reads it three times."""

    name: str
    """Its name, as messages show it."""
    get: Callable[[], Any]
    """Reads it. A value that lasts must not change by itself."""
    put: Callable[[Any], object]
    """Sets it to a value that was read."""
    refused: bool = True
    """Whether training may depend on it: then training must not set it."""
    differs: Callable[[Any, Any], Any] = ne
    """Whether the value now differs from the one at set-up, so that training has set it."""
    sent: bool = True
    """Whether a process that makes batches takes it over: not devices, nor threads, which are its own."""


def _put_environment(value: Mapping[bytes, bytes]) -> None:
    for name in os.environb.keys() - value.keys():
        del os.environb[name]
    os.environb.update(value)
    time.tzset()


def _lost(now: Mapping[bytes, bytes], before: Mapping[bytes, bytes]) -> bool:
    """Libraries add variables, as torch.compile does for the place of its cache."""
    return not before.items() <= now.items()


def _folder() -> str | None:
    """The working directory; ``None`` if it was deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def _put_folder(folder: str | None) -> None:
    with suppress(OSError):
        os.chdir(folder or "/")


_PYTHON = (
    Setting("os.environ", lambda: dict(os.environb), _put_environment, differs=_lost),
    Setting("the working directory", _folder, _put_folder),
    Setting("numpy.seterr", np.geterr, lambda value: np.seterr(**value)),
)


@contextmanager
def borrowed(own: Sequence[Setting] = ()) -> Iterator[None]:
    """The block is a unit: what it sets is put back at its end. ``own`` are settings of the task's framework
    besides those of Python, numpy and torch."""
    before = [(setting, setting.get()) for setting in (*_known(), *own)]
    _before.append(before)
    try:
        yield
    finally:
        _before.pop()
        for setting, value in before:
            if setting.get() != value:
                setting.put(value)


_before: list[list[tuple[Setting, Any]]] = []
"""The settings before each block in which this process is, the outermost first."""
_changed: dict[str, Setting] = {}
"""The frameworks' settings, by name, that a unit of this process has changed."""


def _at_first() -> Iterable[tuple[Setting, Any]]:
    """The settings as they were before the outermost block that knows them."""
    return {each.name: (each, value) for block in reversed(_before) for each, value in block}.values()


def changed() -> list[tuple[str, Any]]:
    """What of that which is sent the unit has set: batches made under other settings may be others. Of a
    mapping, such as the environment, only what differs."""
    now = [(each, before, each.get()) for each, before in _at_first() if each.sent]
    return [
        (each.name, sorted(value.items() ^ before.items(), key=repr) if isinstance(value, Mapping) else value)
        for each, before, value in now
        if value != before
    ]


@dataclass(frozen=True, slots=True)
class Sent:
    """The settings as they are now in a rank, for a process that makes its batches."""

    known: Mapping[str, Any]
    """By name."""
    own: Sequence[tuple[Setting, Any]]
    """Those of the task's framework that a unit of the rank has ever changed. They can be pickled."""

    @classmethod
    def now(cls) -> Self:
        known = {setting.name: setting for setting in _known()}
        own = {each.name: each for each, _ in _at_first() if each.name not in known}
        _changed.update((name, own[name]) for name, _ in changed() if name in own)
        return cls(
            {name: each.get() for name, each in known.items() if each.sent},
            [(each, each.get()) for each in _changed.values()],
        )

    def put(self) -> None:
        """Set them in this process."""
        known = [(each, self.known[each.name]) for each in _known() if each.name in self.known]
        for setting, value in (*known, *self.own):
            if setting.get() != value:
                setting.put(value)


class AsSetUp:
    """The settings as they are when a unit has been set up."""

    def __init__(self, own: Sequence[Setting] = ()) -> None:
        self._settings = [setting for setting in (*_known(), *own) if setting.refused]
        self._before = [setting.get() for setting in self._settings]

    def check(self) -> None:
        """Raise ``TaskError`` if training has set one."""
        for setting, before in zip(self._settings, self._before, strict=True):
            if setting.differs(now := setting.get(), before):
                shown = "" if isinstance(now, Mapping) else f" from {before!r} to {now!r}"
                raise TaskError(
                    f"{setting.name} changed{shown} in training: a setting of the process does not hop with "
                    "a config, and all configs of a rank share it. Set it when the file is imported, or put "
                    "it back before the batch ends"
                )


def _known() -> tuple[Setting, ...]:
    """Those of torch if it is imported: tasks of numpy's arrays do without."""
    if sys.modules.get("torch") is None:
        return _PYTHON
    of_torch: Any = importlib.import_module("cerebro_elastic.system.torch_settings")
    return (*_PYTHON, *of_torch.SETTINGS)
