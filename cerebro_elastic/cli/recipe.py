"""Commands about a recipe before its run: one to start from, and whether its units equal one ordinary fit."""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import typer
from rich.table import Column

from cerebro_elastic.cli.commands import Command
from cerebro_elastic.cli.options import Home, Json, RecipeFile, argument, echo, echo_json
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.recipes.shipped import shipped, write_shipped
from cerebro_elastic.reporting.terminal import plain_table, terminal
from cerebro_elastic.system.words import counted, hparams_text

if TYPE_CHECKING:
    from cerebro_elastic.recipes import Recipe
    from cerebro_elastic.runs.exactness.outcome import CheckedConfig


def _names(incomplete: str) -> list[str]:
    return [name for name in shipped() if name.startswith(incomplete)]


class Init(Command):
    """Write a commented recipe and its Python file, to start from.

    Example: cerebro init digits my_project
    """

    recipe: str | None = argument(
        None, "digits, lightning, torch, ...; without a name all are listed.", autocompletion=_names
    )
    folder: Path = argument(Path(), "The folder for the files.")

    def __call__(self) -> None:
        if self.recipe is None:
            table = plain_table("recipe", Column("", overflow="fold"))
            for name, summary in shipped().items():
                table.add_row(name, summary)
            terminal().print(table)
            echo("next: cerebro init RECIPE [FOLDER]")
            return
        written = write_shipped(self.recipe, self.folder)
        for path in written:
            echo(f"wrote {path}")
        echo(f"next: cerebro run {os.path.relpath(written[0])}")


class Check(Command):
    """Check that a recipe trains, and exactly as one ordinary fit.

    In seconds each distinct shape of config is trained for two tiny epochs both ways, on rows of the recipe's
    own data. By units it must come out as by the fit, bit for bit.

    Example: cerebro check recipes/digits.yaml
    """

    recipe: RecipeFile
    home: Home
    as_json: Json

    def __call__(self) -> None:
        from cerebro_elastic.cli.shapes import CheckJson
        from cerebro_elastic.recipes import load_recipe
        from cerebro_elastic.runs.exactness.outcome import CheckOutcome, latest, why_unlogged, why_untrainable
        from cerebro_elastic.runs.start import background_check

        recipe = load_recipe(self.recipe)
        began = monotonic()

        def say(part: str) -> None:
            typer.echo(f"{monotonic() - began:4.0f} s  {part}", err=True)

        with background_check.check(recipe, self.home, say) as (points, answers):
            checks = latest(answers)
        problem = why_untrainable(checks) or why_unlogged(recipe, checks)
        if self.as_json:
            echo_json(CheckJson(configs=len(points), checked=checks, wrong=problem))
        else:
            _show(recipe, len(points), checks, problem)
        if problem is not None or any(check.exactness.outcome is not CheckOutcome.EQUAL for check in checks):
            raise typer.Exit(1)


def _show(recipe: Recipe, configs: int, checks: list[CheckedConfig], problem: str | None) -> None:
    from cerebro_elastic.runs.from_recipe import strategies

    console = terminal()
    for check in checks:
        if check.exactness.story and check.exactness.story != problem:
            console.print(f"{check.text}\n", soft_wrap=True)
    if problem is not None:
        console.print(f"error: {problem}\n", soft_wrap=True, style="red")
    table = plain_table("config", "", "values compared", "seconds")
    for check in checks:
        exactness = check.exactness
        values = f"{sum(exactness.compared.values()):,}" if exactness.compared else "-"
        row = hparams_text(check.hparams), exactness.outcome.value, values, f"{exactness.seconds:.1f}"
        table.add_row(*row)
    console.print(table)
    kinds = dict.fromkeys(kind for check in checks for kind in check.exactness.compared)
    references = dict.fromkeys(check.exactness.reference for check in checks)
    summary = (
        f"{len(checks)} of {counted(configs, 'config')} checked: the first, and those that may make another "
        f"model. Two tiny epochs were trained by units, and by {' or '.join(references)}, on the same batches"
    )
    console.print(f"\n{summary}; compared on the way: {', '.join(kinds) or 'nothing'}", soft_wrap=True)
    if any(strategy != Strategy() for strategy in strategies(recipe)):
        console.print(
            "on one rank: on several, sums are added up in another order (docs/design/exactness.md)"
        )
