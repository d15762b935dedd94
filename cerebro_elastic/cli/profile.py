"""``cerebro profiles``: how each choice does for each config."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from cerebro_elastic.cli.options import Etcd, Home, Json, echo, store_of
from cerebro_elastic.cli.output import json_text
from cerebro_elastic.reporting.profiles import ProfileRow, profile_rows, profiles_view
from cerebro_elastic.reporting.terminal import terminal


def profiles(
    run: Annotated[str, typer.Argument(help="Run id, or the run's folder.")],
    home: Home = None,
    etcd: Etcd = None,
    as_json: Json = False,
) -> None:
    """Show what was tried: seconds and memory of each parallelism for each config, and why one is refused."""
    from cerebro_elastic.runs.control.status import status as ask

    spec, state, _ = ask(run, home=home, store=store_of(etcd))
    rows = profile_rows(state)
    if as_json:
        echo(json_text({"run": spec.plan.run, "trials": [_json(row) for row in rows]}))
    elif len(spec.plan.strategies) == 1:
        echo(
            f"run {spec.plan.run} trains by {spec.plan.strategies[0]} and tries nothing else; with several "
            "entries in `parallelism`, or `auto`, it would"
        )
    elif not rows:
        echo("nothing is tried yet")
    else:
        terminal().print(profiles_view(rows))


def _json(row: ProfileRow) -> dict[str, Any]:
    return {**asdict(row), "choice": row.strategy.label}


trials = profiles
"""The command's name by now."""
