"""The settings that a script has made before it starts a run. The nodes import the user's files afresh, so
they have the files' own values: a different value is refused by its name, before anything is started."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass
from enum import Enum
from pathlib import Path, PurePath
from types import SimpleNamespace
from typing import Any

import numpy as np

from cerebro_elastic.errors import CerebroError, TaskError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.schema import references_of
from cerebro_elastic.registry import import_object, importing_users, is_users, users_modules
from cerebro_elastic.runs.start.user_code import functions_of, variables_of
from cerebro_elastic.system.words import counted

_SCALARS = (type(None), bool, int, float, complex, str, bytes, PurePath, Enum, np.generic)
_SHOWN = 60
"""The most letters of a value in messages."""
_LARGEST = 1 << 20
"""Larger arrays, in bytes, are data, and are not compared."""
_DEEPEST = 8
_OF_NODES = {"torch.set_num_threads", "torch.set_grad_enabled"}
"""Settings that each unit makes for itself."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that a recipe's code finds in a process."""

    variables: Mapping[str, str] = field(default_factory=dict)
    """By ``module.name``: the plain global variables that the code reads, in words."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """By ``module.Class.name``: the plain attributes of its classes."""
    torch: Mapping[str, str] = field(default_factory=dict)
    """Torch's settings of the process; none if it has not imported torch."""


def settings_here(recipe: Recipe) -> Settings:
    """The settings for the code named by a recipe in this process, as far as that has imported it."""
    variables, attributes = dict[str, str](), dict[str, str]()
    queue = [
        found
        for reference in references_of(recipe)
        if (found := _imported(reference, recipe.root)) is not None
    ]
    for definition in queue:  # the queue grows
        members: list[Any] = [definition]
        for kind in filter(is_users, definition.__mro__) if isinstance(definition, type) else ():
            members += vars(kind).values()
            for name, value in vars(kind).items():
                if not name.startswith("__") and (text := _text(value)) is not None:
                    attributes[f"{_importable(kind.__module__)}.{kind.__qualname__}.{name}"] = text
        for function in filter(is_users, [each for member in members for each in functions_of(member)]):
            for module, name, value in variables_of(function):
                functions = [value] if isinstance(value, type) else [*functions_of(value)]
                if functions:
                    is_new = not any(value is known for known in queue)
                    queue += [value] if is_new and any(map(is_users, functions)) else []
                elif (text := _text(value)) is not None:
                    variables[f"{_importable(module)}.{name}"] = text
    return Settings(variables, attributes, _of_torch())


def refuse_others(recipe: Recipe, caller: Settings) -> None:
    """Raise ``TaskError`` if the process that starts the run of a recipe has other settings than this one,
    which imports the user's files as the nodes do."""
    if caller == Settings():
        return
    for reference in references_of(recipe):
        with suppress(CerebroError):  # reported with the task
            import_object(reference, recipe.root)
    fresh = settings_here(recipe)
    pairs = [
        *((name, now, fresh.variables.get(name, now)) for name, now in caller.variables.items()),
        *((name, now, fresh.attributes.get(name, "not there")) for name, now in caller.attributes.items()),
    ]
    other = [
        (name, now, then)
        for name, now, then in pairs
        if now != then and not _is_cache(name, then) and not _varies(name, then)
    ]
    for name, now, then in other[:1]:
        more = f" ({counted(len(other) - 1, 'other value')} differ, too)" if len(other) > 1 else ""
        raise TaskError(
            f"{_OTHER.format(name=name, now=now, then=then)}{more}. Give it to the model as an argument (a "
            "hyper-parameter, or `args` of the task), or set it in the file itself, above `if __name__ == "
            '"__main__":`'
        )
    for name, now in caller.torch.items():
        if (then := fresh.torch.get(name, now)) != now:
            raise TaskError(
                f"{_OTHER.format(name=name, now=now, then=then)}. Set it in the file of the model, "
                'above `if __name__ == "__main__":`'
            )


_OTHER = (
    "{name} is {now} where the run is started, and {then} where its nodes import the user's files: they "
    "would train with that"
)


def _imported(reference: str, root: Path) -> Any:
    """The object named by a recipe in ``root``, if this process has it; ``None`` if not. The script that runs
    the recipe is ``__main__`` here."""
    name, _, qualified = reference.partition(":")
    value: Any = sys.modules.get("__main__" if _importable("__main__") == name else name)
    files = [file.resolve() for file in users_modules(name, Path(), root)]
    if files and Path(getattr(value, "__file__", None) or "").resolve() not in files:
        return None  # another module of this name
    for part in qualified.split("."):
        value = getattr(value, part, None)
    return value


def _importable(module: str) -> str:
    """The name by which nodes import a module of this process."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file).stem if module == "__main__" and file else module


def _of_torch() -> dict[str, str]:
    if "torch" not in sys.modules:
        return {}
    from cerebro_elastic.system.torch_settings import SETTINGS

    compared = [setting for setting in SETTINGS if setting.refused and setting.name not in _OF_NODES]
    return {setting.name: repr(setting.get()) for setting in compared}


def _is_cache(name: str, text: str) -> bool:
    """Whether a variable is one that code fills on its first call: the nodes fill it, too."""
    return name.rpartition(".")[2].startswith("_") and text in ("None", "[]", "{}")


def _varies(name: str, text: str) -> bool:
    """Whether a global variable has a different value each time that its file runs, such as a time."""
    module, _, variable = name.rpartition(".")
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return False
    again = importlib.util.spec_from_file_location(f"{module}_again", file)
    if again is None or again.loader is None:
        return False
    values = importlib.util.module_from_spec(again)
    with suppress(Exception, SystemExit), importing_users():
        again.loader.exec_module(values)
        return _text(getattr(values, variable, None)) != text
    return False


def _text(value: Any) -> str | None:
    """A plain value in words; ``None`` for another."""
    try:
        text = repr(_plain(value, 0))
    except _NotPlain:
        return None
    if len(text) <= _SHOWN:
        return text
    return f"{text[: _SHOWN - 20]}... (sha256 {hashlib.sha256(text.encode()).hexdigest()[:8]})"


class _NotPlain(Exception):
    """A value is not a setting that a script makes."""


def _plain(value: Any, depth: int) -> Any:
    """The value, made of parts whose ``repr`` is the same in every process if they are equal."""
    if depth > _DEEPEST:
        raise _NotPlain
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, Mapping):
        return {repr(_plain(key, depth + 1)): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(repr(_plain(item, depth + 1)) for item in value)
    if isinstance(value, argparse.Namespace | SimpleNamespace) or is_dataclass(value):
        return {type(value).__name__: _plain(vars(value), depth + 1)}
    if type(value).__module__.partition(".")[0] == "torch" and type(value).__name__ in ("dtype", "device"):
        return str(value)
    if (array := _array(value)) is not None:
        return str(array.dtype), array.shape, hashlib.sha256(array.tobytes()).hexdigest()
    raise _NotPlain


def _array(value: Any) -> np.ndarray | None:
    """An array, or a tensor on the CPU, unless it is large."""
    if getattr(value, "nbytes", _LARGEST + 1) > _LARGEST:
        return None
    if isinstance(value, np.ndarray):
        return value if value.dtype != object else None
    torch: Any = sys.modules.get("torch")
    if torch is not None and type(value) is torch.Tensor and str(value.device) == "cpu":
        content: np.ndarray = np.asarray(value.detach().contiguous().view(torch.uint8))
        return content
    return None
