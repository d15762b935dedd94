"""The versions of packages that a run is made with: for its record and its report."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

from cerebro_elastic.core.model.events import Event, LeaderChanged
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.registry import BUILT_IN, packages_of, plugin_packages, users_file
from cerebro_elastic.system.version import __version__
from cerebro_elastic.worker.rendezvous.compatibility import (
    PACKAGE,
    changed_code,
    content_digest,
    package_digest,
)

DECIDING = ("cerebro-elastic", "numpy", "scipy", "optuna", "cmaes", "ortools")
"""Packages whose other versions may decide otherwise."""
TRAINING = ("cerebro-elastic", "torch", "numpy")
"""Packages whose other versions may train otherwise, besides those that plugins need."""


def installed(packages: Iterable[str]) -> dict[str, str]:
    """The versions of those ``packages`` that are installed."""
    versions = {}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def training() -> dict[str, str]:
    """The versions of all installed packages that may decide what a unit's result is."""
    return installed([*TRAINING, *plugin_packages()])


def other_code(spec: Spec) -> list[str]:
    """What made the run of ``spec`` and is another here, a sentence for each: the package's version and code,
    and the user's files."""
    texts = []
    if spec.version != __version__:
        texts.append(f"cerebro-elastic {spec.version} made the run, and here is {__version__}")
    for name in changed_code(spec):
        here = _digest_here(spec, name)
        what = "the code of cerebro-elastic" if name == PACKAGE else name
        texts.append(f"{what} was {spec.code[name][:12]} when the run was made, and is {here} here")
    return texts


def other_versions(recipe: Recipe, events: Iterable[Event]) -> list[str]:
    """The versions of Python and of packages on record with the run's leaders that are others here, a
    sentence for each. (``other_code`` has the version of this package.)"""
    here = on_record(recipe)
    recorded: dict[str, dict[str, None]] = {}
    for event in events:
        if isinstance(event, LeaderChanged):
            for name, known in event.versions.items():
                recorded.setdefault(name, {})[known] = None
    return [
        f"{name} {' and '.join(known)} made the run, and here is {here.get(name, 'none')}"
        for name, known in recorded.items()
        if name != PACKAGE and list(known) != [here.get(name)]
    ]


def _digest_here(spec: Spec, name: str) -> str:
    if name == PACKAGE:
        return package_digest()[:12]
    file = users_file(name, Path(spec.root))
    return content_digest(file)[:12] if file else "missing"


def on_record(recipe: Recipe) -> dict[str, str]:
    """The versions that a leader records of a run of ``recipe``: of all that decides, and of what its task
    uses."""
    return {**deciding(recipe), **installed([*TRAINING, *packages_of(recipe.task)])}


def deciding(recipe: Recipe) -> dict[str, str]:
    """The versions of Python and of all packages that decide in a run of ``recipe``."""
    named = [("cerebro.schedulers", recipe.scheduler), ("cerebro.search", recipe.search.method)]
    plugins = [
        point.dist.name
        for group, name in named
        if name not in BUILT_IN[group]
        for point in entry_points(group=group, name=name)
        if point.dist is not None
    ]
    return {"python": platform.python_version(), **installed([*DECIDING, *plugins])}
