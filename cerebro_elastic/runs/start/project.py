"""What the project holds when a run is opened: the files that code may read there, and the variables that it
names. Runs with the same may take over one another's units.

Nobody guesses which of the files are read. All count, but for those that a tool or a run has made, the
recipes, the data (which have a digest of their own), and what the project's ``.cerebroignore`` names. Git's
ignored files do count: settings (``.env``), weights and data are among them.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import translate
from pathlib import Path

import yaml

from cerebro_elastic.core.model.codec import UnreadableValue, decode, encode
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.registry import users_file
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.system.files import write_text
from cerebro_elastic.system.words import counted

IGNORE = ".cerebroignore"
"""The file in a project with patterns of files and folders that do not count, one a line."""
MOST_FILES = 200_000
"""A project with more files is not compared: to ask for each file's status would take seconds."""
_LARGE, _MANY = 8 << 20, 256
"""A file of more bytes, and those of a folder with more files, count by name, size and last change."""
_MOST_READ, _MOST_BYTES = 5_000, 64 << 20
"""So does every further one once this number of files and bytes was read."""

_OF_TOOLS = (
    *(".git", ".hg", ".svn", ".idea", ".vscode", ".DS_Store", ".ipynb_checkpoints", "__pycache__"),
    *("node_modules", "cerebro_cells", "*.egg-info", "*.pyc", "*.ipynb", "*.swp", "*~"),
    *("nohup.out", "slurm-*.out", IGNORE),
)
"""What editors, version control, Python and schedulers write. Of ``cerebro_cells`` the modules count that are
imported, as those of all code do."""
_MARKS = {"pyvenv.cfg", "conda-meta", "CACHEDIR.TAG"}
"""A folder with one of these is an environment, or a cache of a tool."""
_SETTINGS = {".py", ".yaml", ".yml", ".toml", ".json", ".ini", ".cfg", ".conf", ".env", ""}
"""Suffixes of files that may name variables which code reads."""
_OF_SHELL = {"_", "OLDPWD", "PWD", "SHLVL"}
_OF_LIBRARIES = (
    *("ATEN_CPU_CAPABILITY", "HF_HOME", "HF_HUB_CACHE", "JAX_", "KERAS_", "MKL_CBWR", "NVIDIA_TF32_OVERRIDE"),
    *("PYTHONHASHSEED", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCH_HOME", "XLA_FLAGS"),
)
"""Variables, or how they begin, that libraries read by themselves, and whose values change results."""
_MOST_REASONS = 5


@dataclass(frozen=True, slots=True)
class Project:
    """The project of a run, as far as it is compared with that of another."""

    files: Mapping[str, str] = field(default_factory=dict)
    """By path: a digest of the content, or of size and last change; of a folder with many files, which ends
    with a slash, one of all these."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Digests of the environment variables that are set, and that the project or a library names."""
    problem: str = ""
    """Why it cannot be compared; empty if it can."""

    def differences(self, now: Project) -> Sequence[str]:
        """Why a run of this project is no run of the project as it is ``now``."""
        if problem := self.problem or now.problem:
            return [problem]
        files = [*_changes(self.files, now.files, "")]
        if more := files[_MOST_REASONS:]:
            files = [*files[:_MOST_REASONS], f"{counted(len(more), 'further file')} changed"]
        if files:
            files[-1] += f" (what no code reads may be named in {IGNORE})"
        return [*files, *_changes(self.variables, now.variables, "the environment variable ")]


def _changes(then: Mapping[str, str], now: Mapping[str, str], kind: str) -> Iterator[str]:
    for name in sorted(then.keys() | now.keys()):
        if then.get(name) != now.get(name):
            how = "has changed" if name in then and name in now else "is new" if name in now else "is gone"
            yield f"{kind}{name} {how}"


def look(recipe: Recipe, folder: RunFolder, code: Collection[str], environ: Mapping[str, str]) -> Project:
    """The project of a recipe whose run is opened in ``folder``.

    Args:
        recipe: The recipe. The project is its folder, and the working directory if code lies there.
        folder: The run's folder.
        code: The names of the files of which the run has digests already.
        environ: The environment of the process that opens the run.
    """
    root, here = recipe.root, Path.cwd()
    own = {file.resolve() for name in code if (file := users_file(name, root)) is not None}
    tops = [root]
    if any(file.is_relative_to(here) and not file.is_relative_to(root) for file in own):
        tops.append(here)
    reader = _Reader(environ, own, _ignored(recipe), {folder.path.resolve(), folder.path.parent.resolve()})
    for file in sorted(own):
        if file.suffix in _SETTINGS:
            reader.note_variables(file.read_bytes())
    for top in tops:
        reader.read(top, "" if top is root else f"{top}/")
    problem = ""
    if reader.count > MOST_FILES:
        problem = (
            f"{' or '.join(map(str, tops))} has more than {MOST_FILES:,} files, which are not compared: name "
            f"folders that code does not read in {root / IGNORE}, a pattern a line"
        )
    digests = {name: _sha256(os.fsencode(environ[name])) for name in sorted(reader.variables)}
    return Project({} if problem else dict(sorted(reader.files.items())), digests, problem)


def keep_project(folder: RunFolder, recipe: Recipe, code: Collection[str]) -> Project:
    """Look at the project as it is now, and write it down with the run. A run that goes on in a changed
    project is of neither, and says so."""
    project = look(recipe, folder, code, os.environ)
    before = read_project(folder) if folder.spec.exists() else project
    if differences := before.differences(project):
        when = f"its project changed while it was stopped ({'; '.join(differences)})"
        project = replace(project, problem=before.problem or when)
    write_text(folder.project, encode(project))
    return project


def read_project(folder: RunFolder) -> Project:
    """The project of a run."""
    try:
        return decode(folder.project.read_bytes(), Project)
    except (OSError, UnreadableValue):
        return Project(problem=f"{folder.project} cannot be read, so its project is not known")


def _ignored(recipe: Recipe) -> re.Pattern[str]:
    """Matches the paths, and the names, of what does not count."""
    places = [place for place in (recipe.checkpoints, *_sources(recipe)) if place and "://" not in place]
    patterns = [os.path.relpath(recipe.rooted(place), recipe.root) for place in places]
    with suppress(OSError):
        lines = [line.strip().strip("/") for line in (recipe.root / IGNORE).read_text().splitlines()]
        patterns += [line for line in lines if line and not line.startswith("#")]
    return re.compile("|".join(map(translate, (*_OF_TOOLS, *patterns))))


def _sources(recipe: Recipe) -> Iterator[str]:
    """The files, folders and globs of which the run's data have a digest."""
    data = recipe.data
    for place in (data.url, data.source, data.shards, data.valid, data.test):
        if isinstance(place, str) and ":" not in place:  # else it is a URL, or a function
            yield place


class _Reader:
    """Reads a project, folder by folder."""

    def __init__(
        self,
        environ: Mapping[str, str],
        known: Collection[Path],
        ignored: re.Pattern[str],
        folders: Collection[Path],
    ) -> None:
        self.files: dict[str, str] = {}
        self.variables = {
            name for name in environ if name not in _OF_SHELL and name.startswith(_OF_LIBRARIES)
        }
        self.count = 0
        """The number of files so far."""
        self._environ = environ
        self._read, self._bytes = _MOST_READ, _MOST_BYTES
        self._skipped = ignored
        self._folders = set(folders)
        main = getattr(sys.modules["__main__"], "__file__", None)  # the script that runs the recipe
        self._elsewhere = set(_identities([*known, *([main] if main else []), *_OUTPUTS]))

    def read(self, top: Path, prefix: str) -> None:
        """Read what is below a folder. Names begin with the ``prefix``."""
        below = [("", top)]
        while below and self.count <= MOST_FILES:
            name, folder = below.pop()
            if (real := folder.resolve()) in self._folders and name:
                continue
            self._folders.add(real)  # each once, though links may lead in circles
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError as error:
                self.files[f"{prefix}{name}"] = f"cannot be read: {error.strerror}"
                continue
            names = {entry.name for entry in entries}
            if name and (names & _MARKS or {"spec.json", "history.jsonl"} <= names):
                continue
            entries = [e for e in entries if not self._is_ignored(e.name, f"{name}{e.name}")]
            below += [(f"{name}{e.name}/", Path(e.path)) for e in reversed(entries) if e.is_dir()]
            self._read_files(f"{prefix}{name}", [e for e in entries if not e.is_dir()])

    def _is_ignored(self, name: str, path: str) -> bool:
        return bool(self._skipped.fullmatch(name) or self._skipped.fullmatch(path))

    def _read_files(self, folder: str, entries: Sequence[os.DirEntry[str]]) -> None:
        found = [(entry, status) for entry in entries if (status := self._status(entry)) is not None]
        self.count += len(found)
        many = len(found) > _MANY or self._read <= 0 or self._bytes <= 0
        if many and found:
            lines = "".join(f"{entry.name}\0{_changed(status)}\n" for entry, status in found)
            self.files[folder or "./"] = _sha256(os.fsencode(lines))
            return
        for entry, status in found:
            if (digest := self._digest(Path(entry.path), status)) is not None:
                self.files[f"{folder}{entry.name}"] = digest

    def _status(self, entry: os.DirEntry[str]) -> os.stat_result | None:
        """That of a file that counts; ``None`` for other things, and for links to nothing."""
        try:
            status = entry.stat()
        except OSError:
            return None
        counts = stat.S_ISREG(status.st_mode) and (status.st_dev, status.st_ino) not in self._elsewhere
        return status if counts else None

    def _digest(self, file: Path, status: os.stat_result) -> str | None:
        """That of a file; ``None`` for a recipe."""
        if status.st_size > _LARGE:
            return _changed(status)
        try:
            content = file.read_bytes()
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        self._read -= 1
        self._bytes -= len(content)
        if file.suffix in (".yaml", ".yml") and _is_recipe(content):
            return None
        if file.suffix in _SETTINGS:
            self.note_variables(content)
        return _sha256(content)

    def note_variables(self, content: bytes) -> None:
        """Note the environment variables that a file names: whole, or by how they begin (``env_prefix``, or a
        section before ``__``). Settings of pydantic also read those that are a field's name in capitals."""
        words = set(_WORD.findall(content))
        begins = tuple(word for word in words if len(word) > 2 and word[-1:] == b"_" != word[:1])
        begins += tuple(word + b"_" for word in _PREFIX.findall(content))
        if b"BaseSettings" in content:
            words |= {word.upper() for word in words}
            begins += tuple(word.upper() for word in begins)
        for name in self._environ.keys() - self.variables - _OF_SHELL:
            text = os.fsencode(name)
            if text in words or text.partition(b"__")[0] in words or text.startswith(begins):
                self.variables.add(name)


_WORD = re.compile(rb"\w+")
_PREFIX = re.compile(rb"""prefix["']?\s*[=:]\s*["'](\w+)["']""")
_OUTPUTS = (1, 2)
"""The outputs of this process. A file that gets them is a log of the run."""


def _identities(files: Iterable[Path | str | int]) -> Iterator[tuple[int, int]]:
    for file in files:
        with suppress(OSError):  # an output may be closed
            status = os.stat(file)
            yield status.st_dev, status.st_ino


def _changed(status: os.stat_result) -> str:
    return f"{status.st_size} bytes, changed at {status.st_mtime_ns}"


def _is_recipe(content: bytes) -> bool:
    """Whether a YAML file is a recipe: nobody's code can read settings there that a recipe has not."""
    if re.search(rb"^task\s*:", content, re.MULTILINE) is None:
        return False
    try:
        values = yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError):
        return False
    return isinstance(values, dict) and values.keys() <= Recipe.model_fields.keys()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
