"""``cerebro init``: a recipe to start from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column

from cerebro_elastic.cli.options import echo
from cerebro_elastic.recipes.shipped import shipped, write_shipped
from cerebro_elastic.reporting.terminal import plain_table, terminal


def _names(incomplete: str) -> list[str]:
    return [name for name in shipped() if name.startswith(incomplete)]


def init(
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="digits, lightning, torch, ...; without a name all are listed.", autocompletion=_names
        ),
    ] = None,
    folder: Annotated[Path, typer.Argument(help="The folder for the files.")] = Path(),
) -> None:
    """Write a commented recipe, and the Python file that it names, to start from.

    Example: cerebro init digits my_project
    """
    if recipe is None:
        table = plain_table("recipe", Column("", overflow="fold"))
        for name, summary in shipped().items():
            table.add_row(name, summary)
        terminal().print(table)
        echo("next: cerebro init RECIPE [FOLDER]")
        return
    written = write_shipped(recipe, folder)
    for path in written:
        echo(f"wrote {path}")
    echo(f"next: cerebro run {os.path.relpath(written[0])}")
