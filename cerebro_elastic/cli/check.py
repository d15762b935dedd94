"""``cerebro check``: do units of a recipe equal one ordinary fit?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from cerebro_elastic.cli.options import Home, Json
from cerebro_elastic.cli.output import json_text
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.reporting.tables import hparams_text
from cerebro_elastic.reporting.terminal import terminal
from cerebro_elastic.runs.exactness.outcome import Checked, unlogged, untrainable
from cerebro_elastic.runs.from_recipe import strategies
from cerebro_elastic.runs.start.check import check as begin
from cerebro_elastic.words import counted


def check(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file.")],
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Check in seconds that a recipe trains, and that its units equal one ordinary fit, bit for bit.

    Two tiny epochs of one config of each shape, with rows of the recipe's own data, are trained both ways.
    """
    checked = load_recipe(recipe)
    with begin(checked, home) as (points, answers):
        all_of = list(answers)
    wrong = untrainable(all_of) or unlogged(checked, all_of)
    if as_json:
        told = {"configs": len(points), "checked": [each.as_json() for each in all_of], "wrong": wrong}
        typer.echo(json_text(told))
    else:
        _show(checked, len(points), all_of, wrong)
    if wrong is not None or not all(each.exactness.outcome.good for each in all_of):
        raise typer.Exit(1)


def _show(recipe: Recipe, configs: int, all_of: list[Checked], wrong: str | None) -> None:
    console = terminal()
    for each in all_of:
        if not each.exactness.outcome.good and each.exactness.story != wrong:
            console.print(f"{each.text}\n", soft_wrap=True)
    if wrong is not None:
        console.print(f"error: {wrong}\n", soft_wrap=True, style="red")
    console.print(_table(all_of))
    kinds = dict.fromkeys(kind for each in all_of for kind in each.exactness.compared)
    told = (
        f"{len(all_of)} of {counted(configs, 'config')} checked: the first, and those that may make another "
        "model. Two tiny epochs were trained as units, and as one ordinary fit over the same batches"
    )
    console.print(f"\n{told}; compared after each batch: {', '.join(kinds) or 'nothing'}", soft_wrap=True)
    if any(strategy != Strategy() for strategy in strategies(recipe)):
        console.print(
            "on one rank: on several, sums are added up in another order (docs/design/exactness.md)"
        )


def _table(all_of: list[Checked]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("config", "", "values compared", "seconds"):
        table.add_column(name)
    for each in all_of:
        found = each.exactness
        values = f"{sum(found.compared.values()):,}" if found.compared else "-"
        table.add_row(hparams_text(each.hparams), found.outcome.value, values, f"{found.seconds:.1f}")
    return table
