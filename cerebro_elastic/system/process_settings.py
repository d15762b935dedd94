"""A dozen settings of the process, which configs share: torch's default dtype, the working directory, ...

A unit begins with the settings right after the imports of the user's files, and its changes are undone at its
end. The next unit's set-up makes the same changes again; changes during training would be lost, and are
refused. Processes that make a unit's batches take its settings over: the user's functions may depend on them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from cerebro_elastic.errors import TaskError
from cerebro_elastic.system.setting import Setting as Setting


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


def _pyros_names() -> frozenset[str]:
    """The parameters in the store that pyro's modules of one name share, in one process."""
    pyro: Any = sys.modules.get("pyro")
    return frozenset(pyro.get_param_store().keys()) if hasattr(pyro, "get_param_store") else frozenset()


def _put_pyros_names(names: frozenset[str]) -> None:
    pyro: Any = sys.modules["pyro"]
    store = pyro.get_param_store()
    for name in _pyros_names() - names:
        del store[name]


_PYTHON = (
    Setting("os.environ", lambda: dict(os.environb), _put_environment, differs=_lost),
    Setting("the working directory", _folder, _put_folder),
    Setting("pyro's parameters", _pyros_names, _put_pyros_names, refused=False, sent=False),
    Setting("numpy.seterr", np.geterr, lambda value: np.seterr(**value)),
)


@contextmanager
def borrowed(own: Sequence[Setting] = ()) -> Iterator[None]:
    """The block is a unit: its changes of settings are undone at its end. ``own`` are settings of the task's
    framework besides those of Python, numpy and torch."""
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
"""The settings before each open block of this process, the outermost first."""


def changed() -> list[tuple[str, Any]]:
    """The unit's changes among the settings that are sent: batches made under other settings may differ. Of a
    mapping, such as the environment, only the differences."""
    now = [(each, before, each.get()) for each, before in (_before[0] if _before else ()) if each.sent]
    return [
        (each.name, sorted(value.items() ^ before.items(), key=repr) if isinstance(value, Mapping) else value)
        for each, before, value in now
        if value != before
    ]


def sent() -> Mapping[str, Any]:
    """The settings of a rank by name, for a process that makes its batches. Those of a task's own framework
    may not be set by a unit anyway."""
    return {setting.name: setting.get() for setting in _known() if setting.sent}


def take_over(settings: Mapping[str, Any]) -> None:
    """Make the settings that a rank has ``sent`` in this process."""
    for setting in _known():
        if setting.name in settings and setting.get() != settings[setting.name]:
            setting.put(settings[setting.name])


class AsSetUp:
    """The settings as they are when a unit has been set up."""

    def __init__(self, own: Sequence[Setting] = ()) -> None:
        self._settings = [setting for setting in (*_known(), *own) if setting.refused]
        self._before = [setting.get() for setting in self._settings]
        self._variables = set(os.environb)

    def added(self) -> list[str]:
        """The environment variables that were added since."""
        return sorted(map(os.fsdecode, os.environb.keys() - self._variables))

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
    from cerebro_elastic.system.torch_settings import SETTINGS

    return (*_PYTHON, *SETTINGS)
