"""Documents hold: their code blocks do what they say when typed off, their links lead somewhere, and the
recipes' reference has every key."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typer.testing import CliRunner

from cerebro_elastic import __version__
from cerebro_elastic.cli.app import app
from cerebro_elastic.core.model.interfaces import SearchContext
from cerebro_elastic.core.model.values import Config, Plan, Spec, Unit
from cerebro_elastic.data.prepare_rows import prepare_rows
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.recipes.fields import Section
from cerebro_elastic.recipes.search import (
    AshaSearch,
    Budget,
    HyperbandSearch,
    MedianSearch,
    PbtSearch,
    ReplaySearch,
    SampledSearch,
    Start,
)
from cerebro_elastic.recipes.tasks import TorchSection
from cerebro_elastic.runs.from_recipe import make_search
from cerebro_elastic.runs.start.agents import agent_command
from cerebro_elastic.runs.start.preflight import check
from cerebro_elastic.training.unit_runner import UnitRunner
from cerebro_lightning.section import LightningSection

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its lines, and the file that the text just before it names last."""

    kind: str
    code: str
    file: str | None


def blocks(document: str) -> Iterator[Block]:
    """The fenced blocks of a document, in order."""
    file, kind, code = None, None, ""
    for line in (ROOT / document).read_text().splitlines(keepends=True):
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


def write_files(document: str, folder: Path) -> set[str]:
    """Write the blocks of a document that have a file's name into ``folder``."""
    named = {block.file: block.code for block in blocks(document) if block.file and block.kind != "console"}
    for name, code in named.items():
        (folder / name).write_text(code)
    return set(named)


def commands(document: str) -> list[list[str]]:
    """The commands of the console blocks, without comments."""
    text = "".join(block.code for block in blocks(document) if block.kind == "console")
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line.removeprefix("$ "), comments=True) for line in lines if line.startswith("$ ")]


def typed(command: list[str], folder: Path) -> str:
    """What a command prints that is typed in ``folder``, in this environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "CEREBRO_HOME": str(folder / "runs")}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The README's files in a folder of one's own, and the one command."""
    folder = tmp_path_factory.mktemp("newcomer")
    assert write_files("README.md", folder) == {"my_net.py", "my_data.py", "my_run.yaml", "my_search.py"}
    assert ["cerebro", "run", "my_run.yaml"] in commands("README.md")
    assert "best checkpoint" in typed(["cerebro", "run", "my_run.yaml"], folder)
    return folder


@pytest.mark.cluster
@pytest.mark.usefixtures("imports_as_found")
def test_the_readmes_commands_after_a_run(newcomer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEREBRO_HOME", str(newcomer / "runs"))
    live = ("run", "join", "drain")
    after = [c for c in commands("README.md") if c[0].endswith("cerebro") and c[1] not in live]
    assert {command[1] for command in after} == {"verify", "replay", "status", "doctor"}
    for command in after:
        done = CliRunner().invoke(app, ["my_run" if word == "digits" else word for word in command[1:]])
        assert done.exit_code == 0, done.output


@pytest.mark.cluster
def test_the_readmes_python(newcomer: Path) -> None:
    (snippet,) = [b.code for b in blocks("README.md") if b.kind == "python" and b.file is None]
    (newcomer / "snippet.py").write_text(snippet)
    *rows, last = typed([sys.executable, "snippet.py"], newcomer).splitlines()
    assert {row.split()[0] for row in rows} == {"c0000", "c0001", "c0002", "c0003"}
    assert "val_acc" in last


@pytest.mark.cluster
def test_the_readmes_trainer(newcomer: Path) -> None:
    shown = typed([sys.executable, "my_search.py"], newcomer)
    assert {f"c000{i} {{'lr'" in shown for i in range(4)} == {True}


@pytest.mark.usefixtures("imports_as_found")
def test_the_example_of_plain_functions(tmp_path: Path) -> None:
    assert write_files("docs/recipes.md", tmp_path) >= {"my_functions.py", "my_functions.yaml"}
    recipe = load_recipe(tmp_path / "my_functions.yaml")
    points = [proposal.hparams for proposal in make_search(recipe).propose(SearchContext())]
    found = check(recipe, points, str(tmp_path / "data"), prepare=True)
    plan = Plan("example", found.partitions, recipe.epochs, seed=recipe.seed)
    place = (found.data, found.data_digest, str(tmp_path), found.code, str(tmp_path))
    bench = UnitRunner(
        Spec(plan, recipe.resolved(), recipe.digest, *place, version=__version__), tmp_path / "cache"
    )
    config, done = Config("c0000", points[0]), None
    for partition in range(found.partitions):
        unit = Unit(config.id, 0, partition)
        done = bench.perform(bench.job(config, unit, done.state if done else None))
        config = replace(config, visited=(*config.visited, partition))
    assert done is not None
    assert done.metrics["val_acc"] > 0.5


@pytest.mark.usefixtures("imports_as_found")
def test_the_example_of_rows(tmp_path: Path) -> None:
    assert "my_rows.py" in write_files("docs/recipes.md", tmp_path)
    rows = ["url,label"]
    for n in range(4):
        np.save(tmp_path / f"{n}.npy", np.full((2, 2), n))
        rows.append(f"file://{tmp_path}/{n}.npy,{n}")
    (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")
    (told,) = [words for words in commands("docs/recipes.md") if "--rows" in words]
    function = told[told.index("--rows") + 1]
    out = str(tmp_path / "out")
    made = prepare_rows(
        str(tmp_path / "rows.csv"), function, out, root=tmp_path, partitions=2, seed=0, workers=1
    )
    assert [(column.name, column.dtype, column.shape) for column in made.columns] == [
        ("x", "<f4", (2, 2)),
        ("y", "<i8", ()),
    ]


def test_the_readmes_torchrun_command_is_ours() -> None:
    (told,) = [command for command in commands("README.md") if command[0] == "torchrun"]
    ours = agent_command("RUN", "HOST:PORT", "node-0", 1)
    assert {word.partition("=")[0] for word in told[1:]} <= {word.partition("=")[0] for word in ours}
    assert told[-2:] == ours[-2:]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(("target", "extras"), [("run", "lightning,examples"), ("check", "dev")])
def test_make_installs_what_the_target_needs_and_says_so(target: str, extras: str, tmp_path: Path) -> None:
    words = ["make", "--dry-run", "--always-make", "--no-print-directory", f"VENV={tmp_path}", target]
    told = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f"-e '.[{extras}]'" in told
    assert told.count("pip install") == 1
    assert "GB on disk" in told.partition("pip install")[0]
    assert "--quiet" not in told


def test_every_other_yaml_block_is_a_recipe() -> None:
    for document in DOCUMENTS:
        for block in blocks(str(document.relative_to(ROOT))):
            if block.kind == "yaml":
                load_recipe(yaml.safe_load(block.code))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_relative_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", document.read_text())
    for file, anchor in links:
        target = (document.parent / file).resolve() if file else document
        assert target.exists(), f"{document.name} links to {file}"
        assert not anchor or anchor in anchors(target), f"{document.name} links to {file}#{anchor}"


def anchors(document: Path) -> set[str]:
    """The headings of a document as GitHub names them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


SEARCHES: dict[str, type[Section]] = {
    "`search` of method `tpe`, `cmaes`, `gp`, `qmc` or `nsga2`": SampledSearch,
    "`search` of method `median`": MedianSearch,
    "`search` of method `asha`": AshaSearch,
    "`search` of method `hyperband` or `bohb`": HyperbandSearch,
    "`search` of method `pbt`": PbtSearch,
    "`search` of method `pbt-replay`": ReplaySearch,
}
SECTIONS: dict[str, type[Section]] = {
    **SEARCHES,
    "`search.budget`": Budget,
    "`search.start`": Start,
    "The recipe": Recipe,
    "`task` of kind `lightning`": LightningSection,
    "`task` of kind `torch`": TorchSection,
    **{
        f"`{name}`": field.annotation
        for name, field in Recipe.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
    },
}


def test_the_reference_has_every_section() -> None:
    headings = re.findall(r"^### (.*)$", (ROOT / "docs/recipes.md").read_text(), re.MULTILINE)
    assert set(headings) == set(SECTIONS)


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_reference_has_every_key_and_its_default(heading: str) -> None:
    text = (ROOT / "docs/recipes.md").read_text().split(f"### {heading}\n")[1].split("\n#")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*) \|$", text, re.MULTILINE)
    told = {key: default for key, default, _ in rows}
    fields = own_fields(heading)
    assert told == {key: default_of(key, field) for key, field in fields.items()}
    assert list(told) == list(fields)


def own_fields(heading: str) -> dict[str, FieldInfo]:
    """The fields that a section tells of: not those of the section that it adds to."""
    section = SECTIONS[heading]
    (base,) = section.__bases__ if heading in SEARCHES else (Section,)
    inherited: dict[str, FieldInfo] = getattr(base, "model_fields", {})
    return {key: field for key, field in section.model_fields.items() if key not in inherited}


def default_of(key: str, field: FieldInfo) -> str:
    """A field's default as the reference writes it."""
    default: Any = field.default
    if key == "name":
        return "the file's name"
    if default is PydanticUndefined:
        return "*required*"
    if default is None:
        return "*none*"
    if isinstance(default, Section):
        return "a section"
    if key == "nodes" or isinstance(default, str):
        return f"`{default}`"
    written = list(default) if isinstance(default, tuple) else default
    return f"`{yaml.safe_dump(written, default_flow_style=True).splitlines()[0]}`"
