"""What the shell completes after Tab: run ids, and the configs of a run.

Only folders and the recorded history are read: importing other modules would take a second.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import typer

_CONFIG_ID = re.compile(r'"id": ?"([^"]+)"')
_LONGEST_HISTORY_BYTES = 64 * 1024**2
"""Reading a longer history would keep people waiting."""


def run_ids(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    """The runs in the folder of runs that begin with ``incomplete``."""
    for spec in sorted(_home(ctx).glob("*/spec.json")):
        if spec.parent.name.startswith(incomplete):
            yield spec.parent.name


def config_ids(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    """The configs on record of the run that the command line names."""
    # An option without its value ends the parsing before arguments get their names.
    run = ctx.params.get("run") or next(iter(ctx.args), "")
    folder = Path(run) if Path(run).is_dir() else _home(ctx) / run
    history = folder / "history.jsonl"
    if not history.is_file() or history.stat().st_size > _LONGEST_HISTORY_BYTES:
        return
    ids: dict[str, None] = {}
    with history.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if '"ConfigCreated"' in line or '"StateRead"' in line:
                ids |= dict.fromkeys(_CONFIG_ID.findall(line))
    yield from (name for name in ids if name.startswith(incomplete))


def _home(ctx: typer.Context) -> Path:
    home = ctx.params.get("home")
    return Path(home) if home else Path(os.environ.get("CEREBRO_HOME", "runs"))
