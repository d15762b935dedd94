"""Finds parts by name and loads them on use: those of this package, those of plugins, and users' objects.

Listing the names imports nothing, so a recipe is checked without importing torch.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import inspect
import json
import linecache
import os
import re
import shlex
import shutil
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points, requires
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from cerebro_elastic.errors import CerebroError, MissingExtra, TaskError, did_you_mean
from cerebro_elastic.generators import seed_imports

BUILT_IN: dict[str, dict[str, str]] = {
    "cerebro.drivers": {
        "gateway": "cerebro_elastic.store.client.gateway:GatewayEndpoint",
    },
    "cerebro.tasks": {
        "torch": "cerebro_elastic.training.functions:FunctionTask",
    },
    "cerebro.tasks.sections": {
        "torch": "cerebro_elastic.recipes.tasks:TorchSection",
    },
    "cerebro.parallel": {
        "single": "cerebro_elastic.training.parallel.replicated:Single",
        "ddp": "cerebro_elastic.training.parallel.replicated:Ddp",
        "fsdp": "cerebro_elastic.training.parallel.fsdp:Fsdp",
    },
    "cerebro.parallel.sections": {},
    "cerebro.schedulers": {
        "auto": "cerebro_elastic.scheduling.look_ahead:Auto",
        "monte-carlo": "cerebro_elastic.scheduling.look_ahead:MonteCarlo",
        "target": "cerebro_elastic.scheduling.look_ahead:Target",
        "vector-rearrangement": "cerebro_elastic.scheduling.look_ahead:VectorRearrangement",
        "random": "cerebro_elastic.scheduling.longest_remaining:Randomized",
        "longest-remaining": "cerebro_elastic.scheduling.longest_remaining:LongestRemaining",
    },
    "cerebro.search": {
        "grid": "cerebro_elastic.search.procedure:grid",
        "random": "cerebro_elastic.search.procedure:random",
        "tpe": "cerebro_elastic.search.procedure:sampled",
        "cmaes": "cerebro_elastic.search.procedure:sampled",
        "gp": "cerebro_elastic.search.procedure:sampled",
        "qmc": "cerebro_elastic.search.procedure:sampled",
        "nsga2": "cerebro_elastic.search.procedure:sampled",
        "tune": "cerebro_elastic.search.procedure:sampled",
        "median": "cerebro_elastic.search.procedure:MedianStopping",
        "asha": "cerebro_elastic.search.halving:asha",
        "hyperband": "cerebro_elastic.search.halving:hyperband",
        "bohb": "cerebro_elastic.search.halving:bohb",
        "pbt": "cerebro_elastic.search.pbt:PopulationBasedTraining",
    },
    "cerebro.loggers": {
        "tensorboard": "cerebro_elastic.reporting.tensorboard:TensorBoard",
    },
    "cerebro.trackers": {},
    "cerebro.launchers": {},
    "cerebro.servers": {},
    "cerebro.samplers": {
        "random": "cerebro_elastic.search.sampling:RandomSampler",
        "tpe": "cerebro_elastic.search.optunas:Tpe",
        "cmaes": "cerebro_elastic.search.optunas:CmaEs",
        "gp": "cerebro_elastic.search.optunas:Gp",
        "qmc": "cerebro_elastic.search.optunas:Qmc",
        "nsga2": "cerebro_elastic.search.optunas:Nsga2",
    },
}
"""By entry-point group: the names that come with this package. An entry point cannot replace them."""

_PACKAGE = "cerebro-elastic"
_ON_AN_INDEX = False
"""Whether package indexes have this package. The release that is published on one makes this true."""
_SECTIONS = ".sections"
"""The end of the name of an entry-point group of sections."""
_IMPORTED_AS = {"mlflow-skinny": "mlflow", "scikit-learn": "sklearn"}
"""Distributions that are imported under another name, apart from dashes."""
_NEEDS = {
    ("cerebro.loggers", "tensorboard"): ("tensorboard",),
}
"""The packages that built-in parts need, by group and name."""

_PYTHONPATH = [Path(text).absolute() for text in os.environ.get("PYTHONPATH", "").split(os.pathsep) if text]
"""As it was when this process began: later changes have no effect here."""


def names(group: str) -> list[str]:
    """All names that ``load`` finds in ``group``, sorted."""
    return sorted({*BUILT_IN[group], *(point.name for point in plugin_points(group))})


def load(group: str, name: str) -> Any:
    """The object registered as ``name`` in ``group``, one of the keys of ``BUILT_IN``.

    Raises ``CerebroError`` for an unknown name or a broken entry point, ``MissingExtra`` if a
    package that the object needs is not installed.
    """
    point = _entry_point(group, name)
    if point is None:
        raise CerebroError(f"{name!r} is not registered in {group}; {did_you_mean(name, names(group))}")
    try:
        with naming_extras(name):
            return point.load()
    except ImportError as exc:
        raise CerebroError(f"{name!r} in {group} is {point.value}, which cannot be imported: {exc}") from exc
    except AttributeError as exc:
        raise CerebroError(f"{name!r} in {group} is {point.value}, which does not exist: {exc}") from exc


def _entry_point(group: str, name: str) -> EntryPoint | None:
    if (reference := BUILT_IN.get(group, {}).get(name)) is not None:
        return EntryPoint(name, reference, group)
    return next((point for point in plugin_points(group) if point.name == name), None)


def plugin_points(group: str) -> Sequence[EntryPoint]:
    """The entry points of ``group`` that installed packages bring.

    Reading those of some hundred packages takes tens of milliseconds, and a recipe needs half a dozen. So
    they are read again only when a folder in which Python finds packages was added, removed or changed."""
    folders = ((folder, _changed(folder)) for folder in sys.path)
    return _points_by_group(tuple(each for each in folders if _has_packages(*each))).get(group, ())


@functools.lru_cache(maxsize=4)
def _points_by_group(_folders: tuple[tuple[str, int], ...]) -> Mapping[str, Sequence[EntryPoint]]:
    found = entry_points()
    return {group: tuple(found.select(group=group)) for group in found.groups if group.startswith("cerebro.")}


@functools.lru_cache(maxsize=256)
def _has_packages(folder: str, changed: int) -> bool:
    """Whether a folder of ``sys.path``, or an archive, has packages with metadata."""
    place = folder or os.curdir
    if not os.path.isdir(place):
        return changed > 0
    with contextlib.suppress(OSError):  # as importlib does with one that may not be listed
        return any(name.endswith((".dist-info", ".egg-info")) for name in os.listdir(place))
    return False


def _changed(folder: str) -> int:
    """When a folder was last changed; 0 if it is not there."""
    try:
        return os.stat(folder or os.curdir).st_mtime_ns
    except OSError:
        return 0


@contextlib.contextmanager
def naming_extras(name: str) -> Iterator[None]:
    """Raise ``MissingExtra`` if the block, for the part ``name``, imports a package that is not installed and
    that an extra of ours has. Other errors of imports stay as they are."""
    try:
        yield
    except ImportError as exc:
        extra = _extra(exc)
        if extra is None:
            raise
        raise MissingExtra(f"{name!r} needs the package {exc.name!r}, not installed: {extra}") from exc


def module_of(group: str, name: str) -> str | None:
    """The module that ``load`` would import; ``None`` for an unknown name."""
    point = _entry_point(group, name)
    return None if point is None else point.module


def _extra(error: ImportError) -> str | None:
    """The command that installs the package that ``error`` missed, if it is in one of our extras."""
    extra = _extras().get((error.name or "").partition(".")[0])
    return extra and install_extra(extra)


def install_extra(extra: str) -> str:
    """The command that installs one of our extras into this environment.

    It names this package if an index has it, else the checkout or the wheel that was installed, else the
    packages of the extra."""
    if _ON_AN_INDEX:
        return pip_install(f"{_PACKAGE}[{extra}]")
    editable, source = _installed_from()
    if source is None:
        return pip_install(*(need.requirement for need in extra_needs() if need.extra == extra))
    return pip_install(*["-e"] * editable, f"{source}[{extra}]")


def pip_install(*arguments: str) -> str:
    """The command that installs packages into this environment, whether or not it is the active one."""
    if shutil.which("pip") == str(Path(sys.executable).with_name("pip")):
        pip = "pip"
    elif importlib.util.find_spec("pip") is not None:
        pip = f"{shlex.quote(sys.executable)} -m pip"
    else:
        return shlex.join(["uv", "pip", "install", "--python", sys.executable, *arguments])
    return f"{pip} install {shlex.join(arguments)}"


@functools.cache
def _installed_from() -> tuple[bool, Path | None]:
    """Whether this package is installed editable, and the checkout or wheel it was installed from, if that is
    on this machine."""
    try:
        text = distribution(_PACKAGE).read_text("direct_url.json")
    except PackageNotFoundError:
        text = None
    origin = json.loads(text) if text else {}
    url = urlsplit(origin.get("url", ""))
    path = Path(unquote(url.path))
    here = url.scheme == "file" and path.exists()
    return bool(origin.get("dir_info", {}).get("editable")), path if here else None


class Need(NamedTuple):
    """A package that one of our extras installs."""

    extra: str
    distribution: str
    """The name under which the package is installed."""
    package: str
    """The name under which it is imported."""
    requirement: str
    """The requirement for pip: the distribution and its versions."""


@functools.cache
def extra_needs() -> tuple[Need, ...]:
    """The packages of our extras, by the metadata of this package."""
    try:
        lines = requires(_PACKAGE) or []
    except PackageNotFoundError:
        return ()
    needs = []
    for line in lines:
        match = re.match(r"""([A-Za-z0-9._-]+).*;\s*extra == ['"](\w+)['"]""", line)
        if match is not None and match[1] != _PACKAGE:
            installed_as, extra = match.groups()
            package = _IMPORTED_AS.get(installed_as, installed_as.replace("-", "_"))
            needs.append(Need(extra, installed_as, package, line.partition(";")[0].strip()))
    return tuple(needs)


@functools.cache
def _extras() -> dict[str, str]:
    """Importable package to the extra of ours that installs it."""
    extras: dict[str, str] = {}
    for extra, _, package, _ in extra_needs():
        if extra == package or (extra != "dev" and package not in extras):
            extras[package] = extra
    return extras


def plugin_packages() -> list[str]:
    """The packages that plugins need or may use (``NEEDS`` and ``MAY_USE`` of their sections), as they are
    installed. A section that cannot be loaded is left out."""
    packages: set[str] = set()
    for group in (group for group in BUILT_IN if group.endswith(_SECTIONS)):
        for point in plugin_points(group):
            with contextlib.suppress(CerebroError):
                packages.update(packages_of(load(group, point.name)))
    return sorted(packages)


def packages_of(section: Any) -> list[str]:
    """The packages that the part of this ``section`` needs or may use, as they are installed."""
    installed_as = {package: distribution for distribution, package in _IMPORTED_AS.items()}
    packages = {*section.NEEDS, *getattr(section, "MAY_USE", ())}
    return sorted(installed_as.get(package, package) for package in packages)


def section(group: str, name: str) -> Any | None:
    """The schema of a recipe's section for the part ``name`` of ``group``: a class derived from the section
    of that group. ``None`` if the part has no schema of its own.

    Plugins register it under the same name in the entry-point group ``<group>.sections``, in a module that
    imports neither torch nor anything else that takes long: recipes are checked with it.
    """
    sections = f"{group}{_SECTIONS}"
    return None if _entry_point(sections, name) is None else load(sections, name)


def missing(group: str, name: str) -> str | None:
    """The command that installs a part's missing packages, if any; the part is not imported.

    A plugin lists the packages that it needs as ``NEEDS`` of its section; a part of ours without a section
    names its extra in its entry point."""
    packages: Iterable[str] = _NEEDS.get((group, name), ()) or getattr(section(group, name), "NEEDS", ())
    point = _entry_point(group, name)
    if point is not None and point.dist is not None and point.dist.name == _PACKAGE:
        packages = [*packages, *(package for extra, _, package, _ in extra_needs() if extra in point.extras)]
    absent = [package for package in packages if importlib.util.find_spec(package) is None]
    if not absent:
        return None
    extra = _extras().get(absent[0])
    return install_extra(extra) if extra else pip_install(*absent)


def is_reference(text: str) -> bool:
    """Whether ``text`` has the form ``package.module:name``."""
    return re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", text) is not None


def import_object(reference: str, root: Path) -> Any:
    """A user's object by ``module:name``, the module being looked for in ``root`` first, and in the working
    directory last.

    Both stay on ``sys.path``: for later imports of a module, and for unpickling in a process that makes
    batches. Raises ``TaskError``.
    """
    if not is_reference(reference):
        raise TaskError(f"{reference!r}: expected 'module:name', e.g. 'my_model:Net' for Net in my_model.py")
    module_name, _, qualified = reference.partition(":")
    user_object: Any = _import_module(reference, module_name, root)
    for part in qualified.split("."):
        try:
            user_object = getattr(user_object, part)
        except AttributeError as exc:
            near = did_you_mean(part, [name for name in dir(user_object) if not name.startswith("_")])
            raise TaskError(f"{reference!r}: {module_name} has no {part!r}; {near}") from exc
    return user_object


def named_class(
    entry: str | Mapping[str, Any], known: Mapping[str, Any], root: Path, where: str, kind: str
) -> tuple[Any, Mapping[str, Any]]:
    """The class or function that an entry of a recipe names, one of ``known`` or a user's ``module:name``,
    and its ``args``. Raises ``TaskError``, which says ``where`` the entry is and what ``kind`` is known."""
    name, args = (entry, {}) if isinstance(entry, str) else (entry["class"], entry.get("args", {}))
    if is_reference(name):
        return import_object(name, root), args
    if name not in known:
        near = did_you_mean(name, known)
        raise TaskError(f"{where}: {name!r} is none of {kind} (for your own, give module:name); {near}")
    return known[name], args


def _import_module(reference: str, name: str, root: Path) -> ModuleType:
    folder = str(root.resolve())
    if sys.path[:1] != [folder]:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)
        sys.path.insert(0, folder)
        with contextlib.suppress(FileNotFoundError):  # the working directory was deleted
            if (here := os.getcwd()) not in sys.path:
                sys.path.append(here)
        importlib.invalidate_caches()
    try:
        with importing_users():
            module = importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is not None and (name == exc.name or name.startswith(f"{exc.name}.")):
            near = did_you_mean(name, [file.stem for file in root.glob("*.py")])
            raise TaskError(
                f"{reference!r}: no module {exc.name!r} in {folder} or among the installed packages; {near}"
            ) from exc
        remedy = _extra(exc) or "install it first"
        raise TaskError(f"{reference!r}: {place_in(folder, exc)}: {exc}; {remedy}") from exc
    except (Exception, SystemExit) as exc:
        raise TaskError(
            f"{reference!r}: {place_in(folder, exc)}: {type(exc).__name__}: {exc}; correct the module"
        ) from exc
    beside = root / f"{name.partition('.')[0]}.py"
    if beside.exists() and "." not in name and Path(module.__file__ or "").resolve() != beside.resolve():
        raise TaskError(f"{reference!r}: the name {name!r} is taken by {module.__file__}; rename {beside}")
    return module


_imports_of_users = 0
"""The number of imports of users' modules under way in this process."""


@contextlib.contextmanager
def importing_users() -> Iterator[None]:
    """Within the block a module of the user's is imported for a run, so that it may start none. Its random
    numbers are the same in each process of the run."""
    global _imports_of_users
    seed_imports(is_library)
    _imports_of_users += 1
    try:
        yield
    finally:
        _imports_of_users -= 1


def forget_modules() -> None:
    """Let this process import the user's modules again, except the one that it runs."""
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    for name, file in files.items():
        if file is not None and is_users_module(name) and name not in ("__main__", "__mp_main__"):
            del sys.modules[name]


def refuse_in_import() -> None:
    """Raise ``TaskError`` if a run is started by a line that runs when the run's own processes import the
    file: each would start a run that imports it again."""
    frame = inspect.currentframe()
    assert frame is not None  # CPython has frames
    while frame.f_back is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    if _imports_of_users or frame.f_globals.get("__name__") == "__mp_main__":
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        raise TaskError(
            f"{frame.f_code.co_filename}:{frame.f_lineno} starts a run (`{line}`), and the nodes of a run "
            'import this file: put code that starts runs below `if __name__ == "__main__":` there'
        )


def place_in(folder: str, error: BaseException) -> str:
    """File and line of the user's code in ``folder`` nearest to where ``error`` was raised."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    own = [frame for frame in frames if users_name(Path(frame.filename), Path(folder))] or frames
    return f"{own[-1].filename}:{own[-1].lineno}"


def users_name(file: Path, folder: Path) -> str | None:
    """The name of a file of the user's, the same on all machines of a run: its path below ``folder``, where
    it may be a link, or below a folder of ``PYTHONPATH``. An archive counts for the modules in it. ``None``
    for a missing file, and for one in an environment."""
    paths = users_paths(file)
    return _name_in(users_places(folder), paths) if paths else None


def users_paths(file: Path) -> Sequence[Path]:
    """The paths of a file of a user's, or of the archive that it is in: as it is named, and without links.
    Empty if it is not there, or in an environment."""
    if is_library(str(file)):  # nearly all are, and resolving a path reads the disk for each of its parts
        return ()
    file = next((archive for archive in file.parents if archive.is_file()), file)
    real = file.resolve()
    return () if not file.is_file() or is_library(str(real)) else (file, real)


def lies_in(places: Sequence[UsersPlace], paths: Sequence[Path]) -> bool:
    """Whether a file with ``users_paths`` has a ``users_name``, by the ``users_places`` of the folder."""
    return _name_in(places, paths) is not None


def _name_in(places: Sequence[UsersPlace], paths: Sequence[Path]) -> str | None:
    for place in places:
        for path, below in zip(paths, place.folders, strict=False):
            if path.is_relative_to(below):
                return f"{place.prefix}{path.relative_to(below)}"
    return None


def users_file(name: str, folder: Path) -> Path | None:
    """The file whose ``users_name`` is ``name`` on this machine, or that is named so below a
    ``folder_named``, if it is here."""
    files = [
        place.folders[0] / name.removeprefix(place.prefix)
        for place in users_places(folder)
        if name.startswith(place.prefix)
    ]
    return next((file for file in (*files, folder_named(name, folder)) if file and file.is_file()), None)


def folder_named(name: str, root: Path) -> Path | None:
    """The folder that a recipe in ``root`` names: by its path, or as ``package:folder``, one of an installed
    package of Python. ``None`` if the package does not exist."""
    of_package = re.fullmatch(r"(\w+):([^:/][^:]*)", name)
    if of_package is None:
        return root / Path(name).expanduser()
    spec = importlib.util.find_spec(of_package[1])
    places = None if spec is None else spec.submodule_search_locations
    return Path(places[0], of_package[2]) if places else None


def users_modules(module: str, importer: Path, folder: Path) -> Iterator[Path]:
    """The user's files that run when the file ``importer`` imports a module of this name, which begins with
    dots if it is relative."""
    name = module.lstrip(".")
    level = len(module) - len(name)
    places = (
        [*importer.parents[level - 1 : level]]
        if level
        else [place.folders[0] for place in users_places(folder)]
    )
    parts = list(takewhile(str.isidentifier, name.split(".")))  # without the star of `from net import *`
    for place in places:
        below = place
        for part in parts:
            below = below / part
            files = (below.with_name(f"{part}.py"), below / "__init__.py")
            yield from (file for file in files if file.is_file())


class UsersPlace(NamedTuple):
    """A folder that is searched for the user's modules."""

    prefix: str
    """The beginning of the ``users_name`` of a file there."""
    folders: tuple[Path, Path]
    """The folder, as it is named and without links."""


def users_places(folder: Path) -> Sequence[UsersPlace]:
    """The folders that are searched for the user's modules if the recipe lies in ``folder``."""
    places = [("", folder.absolute()), *(("PYTHONPATH/", place) for place in _PYTHONPATH)]
    return [UsersPlace(prefix, (place, place.resolve())) for prefix, place in places]


def is_library(file: str) -> bool:
    """Whether a file is Python's, this package's, or of a package that was installed, by its path alone."""
    if "/site-packages/" in file or "/dist-packages/" in file:
        return True
    return file.startswith(_libraries())


def is_users(definition: Any) -> bool:
    """Whether a class or a function was written by the user: it is in no library and not in this package."""
    module = getattr(definition, "__module__", None)  # of some types written in C it is no text
    return isinstance(module, str) and is_users_module(module)


@functools.lru_cache(maxsize=10_000)
def is_users_module(name: str) -> bool:
    """Whether an imported module is the user's; one without a file was made by hand."""
    if name == "__main__":
        return True
    if name not in sys.modules or name.partition(".")[0] in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules[name], "__file__", None)
    return file is None or (os.path.isabs(file) and not is_library(file))


@functools.cache
def _libraries() -> tuple[str, ...]:
    """The folders of the standard library and, in a checkout, of this package and its plugins, as Python
    names them and without links."""
    package = Path(__file__).parent
    folders = [Path(sysconfig.get_path("stdlib")), package, *(package.parent / "plugins").glob("cerebro_*/")]
    return tuple(f"{path}/" for folder in folders for path in (folder, folder.resolve()))
