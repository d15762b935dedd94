"""``cerebro check``: whether units of a recipe equal one ordinary fit."""

from __future__ import annotations

import typer
from rich.table import Table

from cerebro_elastic.cli.options import Home, Json, RecipeFile, echo
from cerebro_elastic.cli.output import json_text
from cerebro_elastic.cli.shapes import CheckJson
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.reporting.tables import hparams_text
from cerebro_elastic.reporting.terminal import plain_table, terminal
from cerebro_elastic.runs.exactness.outcome import CheckedConfig, latest, why_unlogged, why_untrainable
from cerebro_elastic.runs.from_recipe import strategies
from cerebro_elastic.runs.start.background_check import check as begin
from cerebro_elastic.system.words import counted


def check(
    recipe: RecipeFile,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Check in seconds that a recipe trains, and that its units equal one ordinary fit, bit for bit.

    Each distinct shape of config is trained for two tiny epochs both ways, on rows of the recipe's own data.

    Example: cerebro check recipes/digits.yaml
    """
    loaded = load_recipe(recipe)
    with begin(loaded, home) as (points, answers):
        checks = latest(answers)
    problem = why_untrainable(checks) or why_unlogged(loaded, checks)
    if as_json:
        echo(json_text(CheckJson(configs=len(points), checked=checks, wrong=problem)))
    else:
        _show(loaded, len(points), checks, problem)
    if problem is not None or not all(check.exactness.outcome.good for check in checks):
        raise typer.Exit(1)


def _show(recipe: Recipe, configs: int, checks: list[CheckedConfig], problem: str | None) -> None:
    console = terminal()
    for check in checks:
        if not check.exactness.outcome.good and check.exactness.story != problem:
            console.print(f"{check.text}\n", soft_wrap=True)
    if problem is not None:
        console.print(f"error: {problem}\n", soft_wrap=True, style="red")
    console.print(_table(checks))
    kinds = dict.fromkeys(kind for check in checks for kind in check.exactness.compared)
    references = dict.fromkeys(check.exactness.reference for check in checks)
    summary = (
        f"{len(checks)} of {counted(configs, 'config')} checked: the first, and those that may make another "
        f"model. Two tiny epochs were trained by units, and by {' or '.join(references)}, on the same batches"
    )
    console.print(f"\n{summary}; compared on the way: {', '.join(kinds) or 'nothing'}", soft_wrap=True)
    for line in checks[0].exactness.data if checks else ():
        console.print(f"data: {line}", soft_wrap=True)
    if any(strategy != Strategy() for strategy in strategies(recipe)):
        console.print(
            "on one rank: on several, sums are added up in another order (docs/design/exactness.md)"
        )


def _table(checks: list[CheckedConfig]) -> Table:
    table = plain_table("config", "", "values compared", "seconds")
    for check in checks:
        exactness = check.exactness
        values = f"{sum(exactness.compared.values()):,}" if exactness.compared else "-"
        row = hparams_text(check.hparams), exactness.outcome.value, values, f"{exactness.seconds:.1f}"
        table.add_row(*row)
    return table
