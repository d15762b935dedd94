"""The settings of a process that configs share: torch's default dtype, ``os.environ``, patched classes, ...

A unit begins with the settings right after the imports of the user's files, or with those that its config has
carried: what it sets itself is undone at its end. ``library_patches.py`` does that for classes and functions
of libraries.
"""

from __future__ import annotations

import gc
import importlib
import locale
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import getcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from cerebro_elastic.registry import is_library
from cerebro_elastic.training import library_patches
from cerebro_elastic.training._python_internals import environment

_SIGNALS = tuple(
    getattr(signal, name)
    for name in (
        "SIGALRM",
        "SIGCHLD",
        "SIGHUP",
        "SIGINT",
        "SIGPIPE",
        "SIGQUIT",
        "SIGTERM",
        "SIGUSR1",
        "SIGUSR2",
    )
    if hasattr(signal, name)
)
_LOGGERS = ("lightning", "lightning.pytorch", "lightning.fabric", "torch", "jax", "absl", "py.warnings")
_KEY = "settings"
_DECIMAL = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of the process. Reading it must take microseconds: each unit reads it twice."""

    name: str
    """Its name, as messages show it."""
    get: Callable[[], Any]
    """Reads it. Values are compared by ``==``; a value that lasts must not change by itself."""
    put: Callable[[Any], object]
    """Sets it to a value that was read."""
    carried: bool = False
    """Whether training may depend on it and its value is plain: then a value that training has set is a part
    of the config's state. What the set-up of each unit sets again needs no carrying."""


def attributes(owner: Any, where: str, *names: str, carried: bool = False) -> Iterator[Setting]:
    """The attributes that this version of ``owner`` has."""
    for name in names:
        if hasattr(owner, name):
            get, put = partial(getattr, owner, name), partial(setattr, owner, name)
            yield Setting(f"{where}.{name}", get, put, carried)


def _put_environment(value: Mapping[bytes, bytes]) -> None:
    for name in os.environb.keys() - value.keys():
        del os.environb[name]
    os.environb.update(value)
    time.tzset()


def _folder() -> str | None:
    """The working directory; ``None`` if it was deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def _put_folder(folder: str | None) -> None:
    with suppress(OSError):
        os.chdir(folder or "/")


def _first_mask() -> int:
    """As the kernel shows it: the call that returns it also sets it, and another thread may be writing."""
    with suppress(OSError, ValueError):
        return int(Path("/proc/self/status").read_text().partition("Umask:\t")[2][:4], 8)
    return 0o022


def _put_filters(filters: Sequence[Any]) -> None:
    warnings.resetwarnings()  # also has Python look at them anew
    present: Any = warnings.filters
    present.extend(filters)


def _levels() -> dict[str, int]:
    known = logging.root.manager.loggerDict
    return {"": logging.root.level, **{name: getattr(known.get(name), "level", 0) for name in _LOGGERS}}


def _put_levels(levels: Mapping[str, int]) -> None:
    for name, level in levels.items():
        logger = logging.getLogger(name)
        if logger.level != level:  # a change empties the caches of all loggers
            logger.setLevel(level)


def _put_handler(number: signal.Signals, handler: Any) -> None:
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(number, handler)


def _put_context(values: Sequence[Any]) -> None:
    context = getcontext()
    for name, value in zip(_DECIMAL, values[:-1], strict=True):
        setattr(context, name, value)
    for trap in context.traps:
        context.traps[trap] = trap.__name__ in values[-1]


def _context() -> list[Any]:
    context = getcontext()
    trapped = sorted(trap.__name__ for trap, on in context.traps.items() if on)
    return [*(getattr(context, name) for name in _DECIMAL), trapped]


def _print_options() -> dict[str, Any]:
    return {name: value for name, value in np.get_printoptions().items() if name != "override_repr"}


def _put_list(values: list[Any], before: Sequence[Any]) -> None:
    values[:] = before


_PYTHON = (
    Setting("os.environ", environment, _put_environment),
    Setting("the working directory", _folder, _put_folder),
    Setting(
        "the umask", partial(os.umask, _first_mask()), lambda _: None
    ),  # the call returns it, and sets the first
    Setting("the locale", partial(locale.setlocale, locale.LC_ALL), partial(locale.setlocale, locale.LC_ALL)),
    Setting("sys.path", sys.path.copy, partial(_put_list, sys.path)),
    Setting("sys.meta_path", sys.meta_path.copy, partial(_put_list, sys.meta_path)),
    Setting("sys.setrecursionlimit", sys.getrecursionlimit, sys.setrecursionlimit, carried=True),
    Setting("sys.setswitchinterval", sys.getswitchinterval, sys.setswitchinterval),
    Setting(
        "sys.set_int_max_str_digits", sys.get_int_max_str_digits, sys.set_int_max_str_digits, carried=True
    ),
    *attributes(sys, "sys", "stdout", "stderr", "excepthook", "displayhook", "unraisablehook"),
    *attributes(threading, "threading", "excepthook"),
    *(
        Setting(number.name, partial(signal.getsignal, number), partial(_put_handler, number))
        for number in _SIGNALS
    ),
    Setting("warnings.filters", lambda: list(warnings.filters), _put_filters),
    *attributes(warnings, "warnings", "showwarning"),
    Setting("the levels of loggers", _levels, _put_levels),
    Setting("logging.disable", lambda: logging.root.manager.disable, logging.disable),
    Setting("decimal's context", _context, _put_context, carried=True),
    Setting("gc.enable", gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    Setting("gc.set_threshold", gc.get_threshold, lambda value: gc.set_threshold(*value)),
    Setting("socket.setdefaulttimeout", socket.getdefaulttimeout, socket.setdefaulttimeout),
    Setting(
        "multiprocessing.set_start_method",
        partial(multiprocessing.get_start_method, allow_none=True),
        partial(multiprocessing.set_start_method, force=True),
    ),
    Setting("numpy.seterr", np.geterr, lambda value: np.seterr(**value), carried=True),
    Setting("numpy.seterrcall", np.geterrcall, np.seterrcall),
    Setting("numpy.set_printoptions", _print_options, lambda value: np.set_printoptions(**value)),
    Setting("numpy.setbufsize", np.getbufsize, np.setbufsize),
)


@contextmanager
def borrowed(own: Sequence[Setting] = ()) -> Iterator[None]:
    """The block is a unit: what it sets is undone at its end, and what it changes in libraries' classes and
    modules. ``own`` are settings of the task's framework besides those of Python, numpy and torch.

    A file of the user's that is first imported by the block, and may have set something by that, is imported
    anew by the next unit that asks for it."""
    settings = (*_known(), *own)
    before = [setting.get() for setting in settings]
    patches = library_patches.watched()
    modules = len(sys.modules)
    try:
        yield
    finally:
        undone = False
        for setting, value in zip(settings, before, strict=True):
            if differs(setting.get(), value):
                setting.put(value)
                undone = True
        imported = list(islice(reversed(sys.modules), max(0, len(sys.modules) - modules)))
        if patches.undo(imported) or undone:
            _forget(imported)


class Moved:
    """What training sets after a unit's set-up: it is a part of the config's state.

    Make it when the set-up is over; ``put`` what the units before have set; at the end take ``state``.
    """

    def __init__(self, own: Sequence[Setting] = ()) -> None:
        self._settings = [setting for setting in (*_known(), *own) if setting.carried]
        self._before = [setting.get() for setting in self._settings]

    def put(self, state: Mapping[str, Any] | None) -> None:
        """Set what the ``state`` of the config has of them."""
        values = (state or {}).get(_KEY, {})
        for setting in self._settings:
            if setting.name in values:
                setting.put(values[setting.name])

    def state(self) -> dict[str, Any]:
        """The entry of the config's state with the values that are not as they were set up; none if all
        are."""
        pairs = zip(self._settings, self._before, strict=True)
        present = ((setting.name, setting.get(), before) for setting, before in pairs)
        moved = {name: value for name, value, before in present if differs(value, before)}
        return {_KEY: moved} if moved else {}


def differs(one: Any, other: Any) -> bool:
    """Whether two values of a setting differ."""
    return one is not other and bool(one != other)


def _known() -> tuple[Setting, ...]:
    """Those of torch if it is imported: tasks of numpy's arrays do without."""
    if sys.modules.get("torch") is None:
        return _PYTHON
    of_torch: Any = importlib.import_module("cerebro_elastic.training.torch_settings")
    return (*_PYTHON, *of_torch.SETTINGS)


def _forget(imported: Sequence[str]) -> None:
    """Forget the user's files among the modules that were just ``imported``."""
    for name in imported:
        file = getattr(sys.modules.get(name), "__file__", None)
        # A library may name a file for a module that has none: "_ops.py" for torch.ops.
        if file and os.path.isabs(file) and not is_library(file) and not name.startswith("cerebro_"):
            package, _, attribute = name.rpartition(".")
            sys.modules.pop(name)
            if package in sys.modules and attribute in vars(sys.modules[package]):
                delattr(sys.modules[package], attribute)
