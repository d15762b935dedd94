"""The reference is complete: every key of a recipe and every command; links of all pages lead somewhere; and
names of tests and docstrings avoid vague words."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest
import typer.main

from cerebro_elastic.cli.app import app
from cerebro_elastic.core.history.keys import KINDS
from cerebro_elastic.core.history.machine import TABLE
from cerebro_elastic.core.model.events import KINDS as EVENTS
from cerebro_elastic.recipes.schema import Section
from support.pages import DOCS, PAGES, ROOT, generated, name_of

GENERATED = generated()
SECTIONS: dict[str, type[Section]] = dict(GENERATED.sections())

VAGUE_NAME = re.compile(
    r"def (test_(?:\w+_)?(?:told|tells?|who|whom|whoever|trouble|aside|so_many)(?:_\w+)?)\("
)
VAGUE_TEXT = re.compile(
    r"\b(?:told|so\s+many|those\s+that\s+there\s+are|no\s+\w+\s+of\s+theirs)\b", re.IGNORECASE
)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_generated_parts_of_pages_are_up_to_date(page: Path) -> None:
    text = page.read_text()
    assert GENERATED.completed(text) == text, "run: python docs/generated.py"


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_reference_has_every_key_its_default_and_what_it_is(heading: str) -> None:
    text = (DOCS / "reference/recipe.md").read_text().split(f"### {heading}\n")[1].split("\n#")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*) \|$", text, re.MULTILINE)
    fields = GENERATED.own_fields(SECTIONS[heading])
    assert [key for key, *_ in rows] == list(fields)
    for key, kind, default, description in rows:
        assert kind
        assert default == GENERATED.default_of(key, fields[key])
        assert description, f"{heading}: {key} needs a docstring under the field"


def test_the_reference_has_every_command_and_option() -> None:
    text = (DOCS / "reference/cli.md").read_text()
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    headings = re.findall(r"^## `cerebro ([\w-]+)`$", text, re.MULTILINE)
    assert headings == [name for name, command in commands.items() if not command.hidden]
    for name in headings:
        section = text.split(f"## `cerebro {name}`\n")[1].split("\n## ")[0]
        for parameter in commands[name].params:
            if parameter.name != "help" and not getattr(parameter, "hidden", False):
                written = f"`{parameter.opts[0]}`" if parameter.param_type_name == "option" else "| `"
                assert written in section, f"{name} {parameter.name}"
                assert parameter.help, f"{name} {parameter.name} needs a help text"


def test_the_reference_has_every_event_and_key_and_every_kind_of_key_a_writer() -> None:
    text = (DOCS / "reference/keys-and-files.md").read_text()
    assert set(TABLE) == set(EVENTS.values())
    kinds = {kind for row in TABLE.values() for kind in (*row.keys, *row.also, *row.compares)}
    assert kinds | {name for name, kind in KINDS.items() if kind.by} == set(KINDS)
    for event in TABLE:
        assert re.search(rf"^\| `{event.__name__}` \| .+ \| .* \| .* \|$", text, re.MULTILINE)
    for kind in KINDS:
        assert re.search(rf"^\| `{kind}(/\.\.\.)?` \| .+ \| .+ \|$", text, re.MULTILINE), kind


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", page.read_text())
    for file, anchor in links:
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{name_of(page)} links to {file}"
        assert not anchor or anchor in anchors(target), f"{name_of(page)} links to {file}#{anchor}"


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub and mkdocs name them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    listed = re.findall(r"([\w/-]+\.md)$", text[text.index("\nnav:") :], re.MULTILINE)
    assert len(set(listed)) == len(listed)
    assert set(listed) == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}


def test_every_decision_has_its_four_parts_and_a_line_in_the_index() -> None:
    index = (DOCS / "decisions/index.md").read_text()
    for page in (DOCS / "decisions").glob("*.md"):
        if page.name != "index.md":
            text = page.read_text()
            parts = re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE)
            assert parts == ["Context", "Decision", "Rejected", "Consequence"], page.name
            assert f"({page.name})" in index


def test_the_extras_that_pages_name_are_there() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*GENERATED.EXTRAS, "docs", "dev"} == set(extras)
    for page in PAGES:
        for names in re.findall(r"cerebro-elastic\[([\w,]+)\]", page.read_text()):
            assert set(names.split(",")) <= set(extras), name_of(page)


def test_names_of_tests_avoid_vague_words() -> None:
    for path in (ROOT / "tests").rglob("*.py"):
        assert not VAGUE_NAME.findall(path.read_text()), name_of(path)


def test_docstrings_avoid_vague_words() -> None:
    for folder in ("cerebro_elastic", "plugins"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Expr) and isinstance(text := getattr(node.value, "value", None), str):
                    assert not VAGUE_TEXT.search(text), f"{name_of(path)}:{node.lineno}"
