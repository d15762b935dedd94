"""The versions of a run's packages: for its record and its report."""

from __future__ import annotations

import functools
import platform
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

from cerebro_elastic.core.model.events import Event, LeaderChanged
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.registry import BUILT_IN, packages_of, plugin_packages, plugin_points, users_file
from cerebro_elastic.system.files import here
from cerebro_elastic.system.source_code import code_digest, packages_imported
from cerebro_elastic.system.version import __version__
from cerebro_elastic.worker.rendezvous.compatibility import (
    PACKAGE,
    changed_code,
    package_digest,
)

DECIDING = ("cerebro-elastic", "numpy", "scipy", "optuna", "cmaes", "ortools")
"""Packages whose versions may change decisions."""
TRAINING = ("cerebro-elastic", "torch", "numpy")
"""Packages whose versions may change training, besides those that plugins need."""


def installed(packages: Iterable[str]) -> dict[str, str]:
    """The versions of the installed ones of these ``packages``."""
    versions = {}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def training() -> dict[str, str]:
    """The versions of all installed packages that may affect a unit's result."""
    return installed([*TRAINING, *plugin_packages()])


def other_code(spec: Spec) -> list[str]:
    """The differences between the makings of the run of ``spec`` and those here, a sentence for each: the
    package's version and code, and the user's files."""
    texts = []
    if spec.version != __version__:
        texts.append(f"cerebro-elastic {spec.version} made the run, and here is {__version__}")
    for name in changed_code(spec):
        what = "the code of cerebro-elastic" if name == PACKAGE else name
        then = spec.code[name][:12] if name in spec.code else "missing"
        texts.append(f"{what} was {then} when the run was made, and is {_digest_here(spec, name)} here")
    return texts


def other_versions(spec: Spec, events: Iterable[Event]) -> list[str]:
    """The versions of Python and of packages, recorded by the run's leaders, that differ here, a sentence for
    each. (``other_code`` has the version of this package.)"""
    here = on_record(spec)
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
    file = users_file(name, Path(here(spec.root)))
    return code_digest(file)[:12] if file else "missing"


def on_record(spec: Spec) -> dict[str, str]:
    """The versions that a leader records for the run of ``spec``: of everything that decides, and of
    everything that may affect a unit's result."""
    recipe = spec.load_recipe()
    return deciding(recipe) | of_units(spec, recipe)


def of_units(spec: Spec, recipe: Recipe) -> dict[str, str]:
    """The versions of everything that may affect a unit's result: Python, the processor, the task's packages,
    and the packages that the user's code imports."""
    own = installed([*TRAINING, *packages_of(recipe.task), *_imported(spec)])
    return {"python": platform.python_version(), "processor": _processor(), **own}


def _imported(spec: Spec) -> Iterator[str]:
    """The distributions of the packages that the user's code imports."""
    root = Path(here(spec.root))
    files = [file for name in spec.code if (file := users_file(name, root))]
    own = {"__future__", *sys.stdlib_module_names, *(Path(name).parts[0] for name in spec.code)}
    names = {name for file in files for name in packages_imported(file) if not {name, f"{name}.py"} & own}
    unknown = {name for name in names if not installed([name])}
    yield from names - unknown
    if unknown:  # looking through all packages takes a second
        found = packages_distributions()
        yield from (distribution for name in unknown for distribution in found.get(name, ()))


@functools.cache
def _processor() -> str:
    """The kind of this machine's processor: others may round differently."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def deciding(recipe: Recipe) -> dict[str, str]:
    """The versions of Python and of all packages that decide in a run of ``recipe``."""
    named = [("cerebro.schedulers", recipe.scheduler), ("cerebro.search", recipe.search.method)]
    plugins = [
        point.dist.name
        for group, name in named
        if name not in BUILT_IN[group]
        for point in plugin_points(group)
        if point.name == name and point.dist is not None
    ]
    return {"python": platform.python_version(), **installed([*DECIDING, *plugins])}
