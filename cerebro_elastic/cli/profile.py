"""``cerebro profile``: the measured seconds and memory of each strategy for each config."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cerebro_elastic.cli.options import Etcd, Home, Json, Run, echo, store_of
from cerebro_elastic.cli.output import json_text
from cerebro_elastic.reporting.profiles import ProfileRow, profile_rows, profiles_view
from cerebro_elastic.reporting.terminal import terminal


def profile(run: Run, home: Home = None, etcd: Etcd = None, as_json: Json = False) -> None:
    """Show each parallelism's seconds and memory for each config, or why it is refused.

    Example: cerebro profile tiny_gpt --json
    """
    from cerebro_elastic.runs.control.status import status as ask

    spec, state, _ = ask(run, home=home, store=store_of(etcd))
    rows = profile_rows(state)
    if as_json:
        echo(json_text({"run": spec.plan.run, "profiles": [_json(row) for row in rows]}))
    elif len(spec.plan.strategies) == 1:
        echo(
            f"run {spec.plan.run} trains by {spec.plan.strategies[0]} and profiles nothing else; to compare "
            "strategies, give several entries in `parallelism`, or `auto`"
        )
    elif not rows:
        echo("no strategy has been profiled yet")
    else:
        terminal().print(profiles_view(rows))


def _json(row: ProfileRow) -> dict[str, Any]:
    return {**asdict(row), "strategy": row.strategy.label}
