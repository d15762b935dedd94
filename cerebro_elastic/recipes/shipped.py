"""The recipes that come with the package, and how they get into a user's folder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from cerebro_elastic.errors import RecipeError, did_you_mean

_PACKAGE = Path(__file__).parents[1]
_REFERENCE = re.compile(r"\b([A-Za-z_]\w*)(?::[A-Za-z_]|\.py\b)")
_IMPORT = re.compile(r"^(?:from|import) (\w+)", re.MULTILINE)


def shipped() -> Mapping[str, str]:
    """Each recipe's name, and the first sentence that its comment says about it."""
    return {path.stem: _summary(path.read_text("utf-8")) for path in sorted(_folder().glob("*.yaml"))}


def write_shipped(name: str, folder: Path) -> list[Path]:
    """Write the recipe ``name`` and the modules that it needs into ``folder``; the recipe's path comes first.

    Identical files stay. Raises ``RecipeError`` if the recipe does not exist, if ``folder`` cannot be
    written, and, before anything is written, if a file there has one of the names and other text.
    """
    if name not in (names := shipped()):
        raise RecipeError(f"no recipe to begin with is called {name!r}; {did_you_mean(name, names)}")
    files = {folder / path.name: text for path, text in _files(name)}
    try:
        for path, text in files.items():
            if path.exists() and path.read_text("utf-8") != text:
                raise RecipeError(f"{path} exists, and is not overwritten: name another folder, or rename it")
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text, "utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "a file there is no text"
        raise RecipeError(f"cannot write into {folder}: {reason}; name another folder") from exc
    return list(files)


def _folder() -> Path:
    """In a wheel beside the code; in a checkout at its top."""
    packaged = _PACKAGE / "_recipes"
    return packaged if packaged.is_dir() else _PACKAGE.parent / "recipes"


def _files(name: str) -> Iterator[tuple[Path, str]]:
    """The recipe, then the modules that it names and their imports from our recipes, with their texts for the
    user's folder."""
    recipe = _folder() / f"{name}.yaml"
    text = recipe.read_text("utf-8")
    yield recipe, text.replace(" recipes/", " ")
    named = list(dict.fromkeys(_REFERENCE.findall(text)))
    for module in named:
        path = _folder() / f"{module}.py"
        if path.exists():
            yield path, path.read_text("utf-8")
            named += [other for other in _IMPORT.findall(path.read_text("utf-8")) if other not in named]


def _summary(text: str) -> str:
    """The first sentence of a recipe's comment."""
    comment = " ".join(line.strip("# ") for line in text.splitlines() if line.startswith("#"))
    return re.split(r"(?<=[.:]) |,? then cerebro", comment)[0].rstrip(".:")
