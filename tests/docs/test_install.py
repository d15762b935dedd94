"""docs/how-to/install.md holds: the image and the environment of conda install what pyproject.toml has, and
no page names an index that does not have this package."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
import tomllib
import venv
from fnmatch import fnmatch
from pathlib import Path

import yaml

from cerebro_elastic import registry
from support.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = set(PROJECT["optional-dependencies"])
PYTHON = PROJECT["requires-python"].removeprefix(">=")


def extras_of(requirement: str) -> set[str]:
    """The extras of this checkout that pip is asked for."""
    (named,) = re.findall(r"\.\[([\w,]+)\]", requirement)
    return set(named.split(","))


def instructions(name: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile with their arguments."""
    lines = (ROOT / name).read_text().replace("\\\n", "").splitlines()
    return [(line.split()[0], line.partition(" ")[2]) for line in lines if line and not line.startswith("#")]


def tracked_files() -> list[str]:
    """The files of a clean clone, as they are now."""
    shown = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in shown.splitlines() if (ROOT / name).exists()]


def environment_of_its_own(folder: Path) -> dict[str, str]:
    """Make an environment that has the packages of this one, but not this project. Return the variables with
    which a command uses it and asks no index."""
    venv.create(folder)
    (packages,) = folder.glob("lib/*/site-packages")
    for origin in (importlib.util.find_spec(name) for name in ("pip", "hatchling")):
        assert origin is not None, "the tests need pip and hatchling: make check installs them"
        for entry in Path(str(origin.origin)).parents[1].iterdir():
            if "cerebro" not in entry.name and not (packages / entry.name).exists():
                (packages / entry.name).symlink_to(entry)
    program = folder / "bin" / "pip"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(str(folder / "bin" / "python"))} -m pip "$@"\n')
    program.chmod(0o755)
    return {
        "PATH": f"{folder}/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # so pip says that there is none
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def test_the_commands_of_the_dockerfile_install_a_working_cerebro(tmp_path: Path) -> None:
    """Docker needs a daemon: here COPY and RUN work in a folder and an environment of their own."""
    copied, environment = tmp_path / "project", tmp_path / "environment"
    (_, base), copying, (_, folder), (_, install), (_, starting) = image = instructions("Dockerfile")
    assert [word for word, _ in image] == ["FROM", "COPY", "WORKDIR", "RUN", "CMD"]
    assert base == f"python:{PYTHON}-slim"
    assert copying[1] == f". {folder}"
    ignored = (ROOT / ".dockerignore").read_text().split()
    for name in (".git", ".venv", ".venv-docs", ".mypy_cache", "runs", "site"):
        assert any(fnmatch(name, pattern) for pattern in ignored), f"{name} would be copied into the image"
    for name in tracked_files():
        if not any(fnmatch(name.split("/")[0], pattern) for pattern in ignored):
            (copied / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copied / name, follow_symlinks=False)
    env = environment_of_its_own(environment)
    done = subprocess.run(install, shell=True, cwd=copied, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert extras_of(install) <= EXTRAS
    program, verb, recipe = yaml.safe_load(starting)
    assert (program, verb, (copied / recipe).is_file()) == ("cerebro", "run", True)
    found = "import cerebro_elastic as us, cerebro_lightning as plugin; print(us.__file__, plugin.__file__)"
    for command in ([program, "init", "digits", "new"], ["python", "-c", found]):
        shown = subprocess.run(command, cwd=environment, env=env, capture_output=True, text=True)
        assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count(f"{environment}/lib") == 2
    assert (environment / "new" / "digits.yaml").is_file()


def test_the_environment_of_conda_has_what_make_run_installs() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python, pip, packages = environment["dependencies"]
    assert python == f"python={PYTHON}"
    assert pip == "pip"
    (ours,) = packages["pip"]
    (made,) = re.findall(r"^\$\(RUN\): EXTRAS := (\S+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert extras_of(ours) == set(made.split(",")) <= EXTRAS
    assert f"conda activate {environment['name']}" in (ROOT / "docs" / "how-to" / "install.md").read_text()


def test_pages_and_recipes_ask_an_index_only_if_one_has_this_package() -> None:
    asking = [
        f"{name}: {asked}"
        for name in tracked_files()
        if name.endswith((".md", ".yaml", ".yml", "Dockerfile")) or name.startswith("recipes/")
        for asked in re.findall(r"install.*(cerebro-elastic\[[\w,]+\])", (ROOT / name).read_text())
    ]
    assert bool(asking) == registry._ON_AN_INDEX, asking
