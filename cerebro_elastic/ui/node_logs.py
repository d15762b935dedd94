"""The last lines that the nodes of a run have logged on this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from cerebro_elastic.runs.folder import RunFolder

_TAIL_BYTES = 1 << 16
_CONFIG_TAIL_BYTES = 1 << 22
_LINES = 500


def log_files(folder: RunFolder) -> list[str]:
    """The names of the logs in the run's folder, without their suffix."""
    return sorted(path.stem for path in folder.logs.glob("*.log") if path.is_file())


def log_of_node(folder: RunFolder, name: str) -> list[str]:
    """The end of a log; no lines if no log has this name."""
    if name not in log_files(folder):
        return []
    return _tail(folder.logs / f"{name}.log", _TAIL_BYTES)[-_LINES:]


def log_of_config(folder: RunFolder, config: str) -> list[str]:
    """The last lines of all logs that name a config, each behind the name of its log."""
    named = re.compile(rf"\b{re.escape(config)}\b")
    lines = [
        f"{name}: {line}"
        for name in log_files(folder)
        for line in _tail(folder.logs / f"{name}.log", _CONFIG_TAIL_BYTES)
        if named.search(line)
    ]
    return lines[-_LINES:]


def logs_answer(folder: RunFolder, node: str | None, config: str | None) -> dict[str, Any]:
    """What the page shows: which logs there are, and the lines of one."""
    lines = log_of_node(folder, node) if node else log_of_config(folder, config) if config else []
    return {"logs": log_files(folder), "lines": lines, "folder": str(folder.logs)}


def _tail(path: Path, most: int) -> list[str]:
    """The last whole lines of at most ``most`` bytes."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - most))
        lines = file.read().decode(errors="replace").splitlines()
    return lines[1:] if size > most else lines
