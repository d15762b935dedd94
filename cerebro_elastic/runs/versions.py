"""The versions of packages that a run is made with: for its record and its report."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, entry_points, version

from cerebro_elastic.recipes import Recipe
from cerebro_elastic.registry import BUILT_IN, plugin_packages

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
