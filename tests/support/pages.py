"""What the tests of the documentation share: code blocks, files and commands of its pages."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import typer.main

from cerebro_elastic.cli.app import app
from cerebro_elastic.system.process import PYTHON
from support.forked import output
from support.waiting import SOON

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
META = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "AGENTS.md")]
PAGES = [*META, *sorted(DOCS.rglob("*.md"))]


def name_of(page: Path) -> str:
    """A page's path from the root."""
    return str(page.relative_to(ROOT))


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its lines, and the file that the text just before it names last."""

    kind: str
    code: str
    file: str | None


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    file, kind, code = None, None, ""
    for line in (ROOT / page).read_text().splitlines(keepends=True):
        if line.startswith("```") and kind is None:
            kind, code = line[3:].strip(), ""
        elif line.startswith("```"):
            assert kind is not None
            yield Block(kind, code, file)
            file, kind = None, None
        elif kind is not None:
            code += line
        elif named := re.findall(r"`(\w+\.(?:py|yaml))`", line):
            file = named[-1]


def write_files(page: str, folder: Path) -> set[str]:
    """Write the blocks of a page that have a file's name into ``folder``."""
    named = {block.file: block.code for block in blocks(page) if block.file and block.kind != "console"}
    for name, code in named.items():
        (folder / name).write_text(code)
    return set(named)


def commands(page: str) -> list[list[str]]:
    """The commands of the console blocks, without comments."""
    text = "".join(block.code for block in blocks(page) if block.kind == "console")
    lines = text.replace("\\\n", " ").splitlines()
    typed = (line.removeprefix("$ ").partition(" | ")[0] for line in lines if line.startswith("$ "))
    return [shlex.split(line, comments=True) for line in typed]


def parsed(words: list[str]) -> dict[str, Any]:
    """The parameters of a ``cerebro`` command, which is not run; an error if it is not one."""
    group: Any = typer.main.get_command(app)
    assert words[0].endswith("cerebro")
    params: dict[str, Any] = group.commands[words[1]].make_context(words[1], words[2:]).params
    return params


def typed(command: list[str], folder: Path) -> str:
    """What a command prints that is typed in ``folder``, in this environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "CEREBRO_HOME": str(folder / "runs")}
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=SOON
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def typed_in_a_fork(command: list[str], folder: Path) -> str:
    """The same of ``cerebro`` and of a script, without waiting for what they import."""
    program, *arguments = command
    module = "cerebro_elastic.cli" if program == "cerebro" else arguments.pop(0).removesuffix(".py")
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "CEREBRO_HOME": str(folder / "runs"), "PYTHONPATH": path}
    return output([*PYTHON, "-m", module, *arguments], folder, environment)


def generated() -> ModuleType:
    """``docs/generated.py``, which writes the generated parts of pages."""
    return module_at(DOCS / "generated.py")


def module_at(file: Path) -> ModuleType:
    """A module by its file."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module
