"""Do a recipe's dataset and place of checkpoints exist? They are checked before torch and the user's modules
are imported, which takes many seconds."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cerebro_elastic.data.manifest import read_manifest
from cerebro_elastic.errors import CerebroError, RecipeError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.system.files import exists, in_a_hurry, locate, redacted, remove, translated, write


def check_places(recipe: Recipe) -> None:
    """Raise ``DataError`` if the recipe's ``data.url`` has no dataset, and as ``write_probe`` for its
    ``checkpoints``."""
    with in_a_hurry():
        if recipe.data.url is not None:
            read_manifest(recipe.rooted(recipe.data.url))
        with probe(recipe):
            pass


@contextmanager
def probe(recipe: Recipe) -> Iterator[str]:
    """The name of a file in ``checkpoints`` for the block, which another process must see; empty without a
    place for checkpoints."""
    if recipe.checkpoints is None:
        yield ""
        return
    url = recipe.rooted(recipe.checkpoints)
    with in_a_hurry():
        name = write_probe(url)
    try:
        yield name
    finally:
        with suppress(CerebroError), in_a_hurry():
            remove(locate(url) / name)


def write_probe(url: str) -> str:
    """Write a file to ``url``, and return its name. Raises ``RecipeError`` if the place does not exist,
    ``StorageError`` if it cannot be reached or refuses."""
    with translated(RecipeError, f"checkpoints cannot be written to {redacted(url)}"):
        name = f"probe-{uuid.uuid4().hex}"
        try:
            write(locate(url) / name, [b"can this be written?"])
        except FileNotFoundError as exc:
            raise RecipeError(
                f"checkpoints cannot be written to {redacted(url)}: there is no such bucket; create it, or "
                "correct `checkpoints` in the recipe"
            ) from exc
    return name


def find_probe(url: str, name: str) -> None:
    """Raise ``RecipeError`` if this process does not see the file that another one has written to ``url``."""
    with translated(RecipeError, f"checkpoints cannot be read from {redacted(url)}"):
        if not exists(locate(url) / name):
            raise RecipeError(
                f"checkpoints cannot be kept in {redacted(url)}: a process does not see there what another "
                "has written; name a folder or a URL that all processes of the run share"
            )
