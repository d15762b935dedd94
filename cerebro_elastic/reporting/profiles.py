"""The profiles of a run: the costs of each strategy for each config on each kind of node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from cerebro_elastic.core.decisions.next_steps import chooses, refusals
from cerebro_elastic.core.history.estimates import estimates_of
from cerebro_elastic.core.history.lineage import in_order
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.reporting.tables import brief
from cerebro_elastic.reporting.terminal import plain_table
from cerebro_elastic.system.explanations import shortened


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """A strategy for a config on one kind of node."""

    config: str
    hardware: str
    """The kind of node."""
    strategy: str
    seconds: float | None = None
    """The seconds of a unit; ``None`` if the strategy is not profiled yet, or refused."""
    bytes: int = 0
    """The memory of a rank in bytes."""
    units: int = 0
    """The number of visits that have refined the profile's estimate."""
    refusal: str | None = None
    """Why the strategy is not feasible; ``None`` if it is."""
    used: bool = False
    """Whether it is the fastest feasible strategy."""


def profile_rows(state: State) -> list[ProfileRow]:
    """A row for each strategy of the plan, for each config and each kind of node with a profile of it."""
    if state.plan is None or not chooses(state.plan):
        return []
    return [row for config in in_order(state.configs.values()) for row in _rows(state, state.plan, config)]


def _rows(state: State, plan: Plan, config: Config) -> Iterator[ProfileRow]:
    estimates = estimates_of(config, state)
    kinds = [e.hardware for e in estimates] + [f.hardware for f in config.failures]
    for hardware in dict.fromkeys(kinds):
        refused = refusals(config, hardware, state.profiles, plan)
        known = {e.strategy: e for e in estimates if e.hardware == hardware}
        feasible = [strategy for strategy in known if strategy not in refused]
        best = min(feasible, key=lambda strategy: known[strategy].seconds, default=None)
        for strategy in plan.strategies:
            row = ProfileRow(config.id, hardware, str(strategy), refusal=refused.get(strategy))
            if row.refusal is None and (found := known.get(strategy)) is not None:
                used = strategy == best
                row = replace(row, seconds=found.seconds, bytes=found.bytes, units=found.units, used=used)
            yield row


def profiles_view(rows: Sequence[ProfileRow]) -> RenderableType:
    """A table for each config and kind of node."""
    width = max((len(row.strategy) for row in rows), default=0)
    parts: list[RenderableType] = []
    for (config, hardware), strategies in groupby(rows, key=lambda row: (row.config, row.hardware)):
        parts += [f"{config} on {hardware}", _strategies_table(strategies, width)]
    return Group(*parts)


def _strategies_table(rows: Iterable[ProfileRow], width: int) -> Table:
    table = plain_table(
        Column("  strategy", min_width=width + 2, no_wrap=True),
        *(Column(n, justify="right", min_width=len(n), no_wrap=True) for n in ("s/unit", "MB/rank", "units")),
        Column("", overflow="fold"),
    )
    for row in rows:
        table.add_row(
            f"  {row.strategy}",
            "-" if row.seconds is None else f"{row.seconds:.3g}",
            "-" if row.seconds is None else f"{row.bytes / 1e6:.0f}",
            str(row.units),
            _verdict(row),
        )
    return table


def _verdict(row: ProfileRow) -> Text:
    if row.refusal is not None:
        return Text(f"refused: {brief(shortened(row.refusal))}", "red")
    if row.used:
        return Text("fastest", "green")
    return Text("" if row.seconds is not None else "not profiled", "dim")
