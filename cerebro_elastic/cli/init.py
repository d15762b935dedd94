"""``cerebro init``: a recipe to begin with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from cerebro_elastic.cli.options import echo
from cerebro_elastic.recipes.shipped import shipped, write_shipped
from cerebro_elastic.reporting.terminal import terminal


def init(
    recipe: Annotated[
        str | None, typer.Argument(help="digits, lightning, torch, ...; all are listed if none is named.")
    ] = None,
    folder: Annotated[Path, typer.Argument(help="Where to.")] = Path(),
) -> None:
    """Write a commented recipe, with the Python file that it names, to begin with."""
    if recipe is None:
        table = Table("recipe", Column("", overflow="fold"), box=None, padding=(0, 2, 0, 0))
        for name, summary in shipped().items():
            table.add_row(name, summary)
        terminal().print(table)
        echo("next: cerebro init RECIPE [FOLDER]")
        return
    written = write_shipped(recipe, folder)
    for path in written:
        echo(f"wrote {path}")
    echo(f"next: cerebro run {os.path.relpath(written[0])}")
