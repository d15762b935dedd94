"""Do the objects and files that a recipe names exist? Files are looked at and not imported: the imports of a
task take many seconds, and a wrong name should be said in the first one."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cerebro_elastic.errors import DataError, TaskError, did_you_mean
from cerebro_elastic.recipes.logged_names import logged_names, may_log
from cerebro_elastic.recipes.loggers import (
    TENSORBOARD,
    check_installed,
    lightning_loggers,
    logger_name,
    trackers,
)
from cerebro_elastic.recipes.schema import Recipe
from cerebro_elastic.recipes.tasks import TorchSection
from cerebro_elastic.registry import is_reference, named_class
from cerebro_elastic.system.addresses import at_home

_OF_DATA = ("source", "dataset", "datamodule", "transform", "collate", "embed")
_HIDDEN = {"__getattr__", "globals", "vars", "setattr", "exec", "modules", "*"}
"""A file with one of these names may have objects that its text does not show."""


def check_named(recipe: Recipe) -> None:
    """Raise ``TaskError`` for an object of the recipe whose module does not exist, or that the text of a file
    in the recipe's folder does not define, and ``DataError`` for a source that is no file of this machine,
    ``MissingExtra`` for a logger that is not installed. Other mistakes are left to the import."""
    root = recipe.root.resolve()
    values: list[Any] = [getattr(recipe.task, name) for name in type(recipe.task).model_fields]
    values += [getattr(recipe.data, name) for name in _OF_DATA]
    values.append(getattr(recipe.search, "space_fn", None))
    values += [
        logger_name(entry) for entry in (*(recipe.loggers or ()), *getattr(recipe.task, "callbacks", ()))
    ]
    check_installed(recipe.loggers)
    named = map(logger_name, lightning_loggers(recipe.loggers))
    _check_stock("loggers", named, "loggers", (TENSORBOARD, *trackers()))
    if recipe.task.kind == "lightning":
        named = map(logger_name, getattr(recipe.task, "callbacks", ()))
        _check_stock("callbacks", named, "task.callbacks")
    for value in values:
        if isinstance(value, str) and is_reference(value):
            _check_object(value, root)
    source = recipe.data.source
    if source is not None and recipe.data.url is None and not (is_reference(source) or _has(root, source)):
        path = root / at_home(source)
        near = get_close_matches(path.name, _names_in(path.parent), n=1)
        raise DataError(f"{path} does not exist" + (f" (did you mean {near[0]!r}?)" if near else ""))
    logged, metric = _logged(recipe, root), recipe.objective.metric
    if logged and not may_log(logged, metric):
        where = recipe.source.where(("objective", "metric"))
        advice = did_you_mean(metric, logged)
        if isinstance(recipe.task, TorchSection):
            advice += "; `task: {metrics: {accuracy: accuracy}}` makes val_accuracy"
        raise TaskError(
            f"{where}: the objective's metric is {metric!r}, which the task does not log; {advice}"
        )


def _logged(recipe: Recipe, root: Path) -> frozenset[str]:
    """The metrics that the task logs, if all of them are seen without imports."""
    task = recipe.task
    if isinstance(task, TorchSection) and task.train_fn is None and task.eval_fn is None:
        return frozenset({"train_loss", "val_loss", *(f"val_{name}" for name in task.metrics)})
    module, _, name = str(getattr(task, "module", "")).partition(":")
    file = root / f"{module}.py"
    if task.kind == "lightning" and not getattr(task, "callbacks", None) and file.is_file():
        return logged_names(ast.parse(file.read_bytes()), name)
    return frozenset()


def _check_stock(package: str, names: Iterable[str], where: str, ours: Iterable[str] = ()) -> None:
    """Raise ``TaskError`` for a name that Lightning's ``package`` does not have, if that is installed."""
    lightning = find_spec("lightning")
    file = Path((lightning and lightning.origin) or "").parent / "pytorch" / package / "__init__.py"
    if file.is_file():
        known = dict.fromkeys((*ours, *_names_of(ast.parse(file.read_bytes())) - {"__all__"}))
        for name in names:
            if not is_reference(name):
                named_class(name, known, Path(), where, f"Lightning's {package}")


def _has(root: Path, source: str) -> bool:
    """Whether a source may be there: elsewhere than on this machine, and for several files, it is read."""
    return "://" in source or any(sign in source for sign in "*?[{") or (root / at_home(source)).exists()


def _names_in(folder: Path) -> list[str]:
    with suppress(OSError):
        return [path.name for path in folder.iterdir()]
    return []


def _check_object(reference: str, root: Path) -> None:
    module, _, qualified = reference.partition(":")
    top, name = module.partition(".")[0], qualified.partition(".")[0]
    spec = PathFinder.find_spec(top, [str(root)]) or _installed(top)
    if spec is None:
        near = did_you_mean(top, [file.stem for file in root.glob("*.py")])
        raise TaskError(f"{reference!r}: no module {top!r} in {root} or among the installed packages; {near}")
    file = Path(spec.origin or "")
    if module != top or file.suffix != ".py" or file.parent != root:
        return
    try:
        tree = ast.parse(file.read_bytes())
    except SyntaxError as exc:
        where = f"{file}:{exc.lineno}: {type(exc).__name__}: {exc.msg}"
        raise TaskError(f"{reference!r}: {where}; correct the module") from exc
    names = _names_of(tree)
    if name not in names and not _HIDDEN & names:
        near = did_you_mean(name, [each for each in names if not each.startswith("_")])
        raise TaskError(f"{reference!r}: {module} has no {name!r}; {near}")


def _installed(top: str) -> ModuleSpec | None:
    PathFinder.invalidate_caches()  # files may be new, as those of a notebook
    with suppress(ValueError):  # a module that was made by hand has no spec
        return find_spec(top) or PathFinder.find_spec(top, [str(Path.cwd())])
    return ModuleSpec(top, None)


def _names_of(tree: ast.AST) -> set[str]:
    """All names in a file, except those that are only read and belong to nothing in ``_HIDDEN``."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.alias(name=name, asname=other):
                names.add(other or name.partition(".")[0])
            case ast.Name(id=name, ctx=context) if isinstance(context, ast.Store) or name in _HIDDEN:
                names.add(name)
            case ast.Attribute(attr=name) if name in _HIDDEN:
                names.add(name)
    return names
