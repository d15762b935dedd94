"""``data.partitions: auto``: how many training partitions a run has.

Hopping splits data that no node has room for. Where each has room for all rows, one partition with a replica
on each node is faster: a unit is a whole epoch, and any node trains any config. The choice follows from the
recipe, the size of its files and this machine's memory, which stay the same when a run goes on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import ceil, inf, prod
from pathlib import Path
from typing import Any

from cerebro_elastic.recipes.fields import MOST_NODES, node_range
from cerebro_elastic.registry import is_reference
from cerebro_elastic.system.words import counted

AUTO = "auto"
_USUAL = 4
"""The number where the rows may be too many for a node, or a search compares units."""
_MOST = 8
"""The largest number that keeps nodes busy to the end."""
_IDLE = 0.05
"""The share of the nodes' time that may be idle, because units are long, before units become shorter."""
_ROOM = 0.5
"""The share of this machine's memory that all rows may take."""


def with_partitions(values: Mapping[str, Any], root: Path) -> tuple[Mapping[str, Any], str]:
    """The values of a recipe in ``root`` with a number instead of ``auto``, and the reason in a sentence; it
    is empty without ``auto``."""
    data = values.get("data")
    if not isinstance(data, Mapping) or data.get("partitions") != AUTO:
        return values, ""
    number, why = _choose(values, data, root)
    chosen = {**values, "data": {**data, "partitions": number}}
    if why is None:
        text = "each node has room for all rows, so each keeps a replica, and any node trains any config"
        return {"replicas": MOST_NODES, **chosen}, f"{counted(number, 'partition')}: {text}"
    return chosen, f"{counted(number, 'partition')}: {why}"


def _choose(values: Mapping[str, Any], data: Mapping[str, Any], root: Path) -> tuple[int, str | None]:
    """The number, and why not every node has all rows; ``None`` if it has."""
    search, validation = _section(values, "search"), _section(values, "validation")
    nodes, folds = node_range(values.get("nodes", AUTO)).min, validation.get("folds", 0)
    several = max(_USUAL, nodes)
    several += -several % (folds or 1)
    if search.get("resource") == "units":
        return several, "the search compares configs within an epoch"
    if _section(values, "node").get("cache_bytes") is not None:
        return several, "node.cache_bytes bounds what a host keeps"
    room = _ROOM * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if (size := _bytes_of(data, root)) > room:
        known = (
            "how many bytes the rows have is not known" if size == inf else f"the rows have {size:.2g} bytes"
        )
        return several, f"{known}, and a node has room for {room:.2g}"
    units = _configs(search) * values.get("epochs", 1)
    numbers = (number for number in range(1, _MOST) if not _idles(units * number, nodes))
    return folds or next(numbers, _MOST), None


def _idles(units: float, nodes: int) -> bool:
    """Whether nodes are idle too long at the end of this number of units of one length."""
    return units < inf and ceil(units / nodes) * nodes > (1 + _IDLE) * units


def _configs(search: Mapping[str, Any]) -> float:
    """How many configs the search has; infinite if it does not say."""
    space = search.get("space")
    if "num" in search or not isinstance(space, Mapping):
        return float(search.get("num", inf))
    return float(prod(len(domain) if isinstance(domain, list | tuple) else 1 for domain in space.values()))


def _bytes_of(data: Mapping[str, Any], root: Path) -> float:
    """The bytes of all rows as far as they take room: those that a function returns have been in a machine's
    memory, and those of a dataset stay where they are."""
    source = data.get("source")
    if source is None:
        return 0.0 if {"dataset", "datamodule"} & data.keys() else inf
    if is_reference(str(source)):
        return 0.0
    path = root / str(source)
    files = path.rglob("*") if path.is_dir() else root.glob(str(source)) if "://" not in str(source) else ()
    return sum(file.stat().st_size for file in files if file.is_file()) or inf


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = values.get(name)
    return section if isinstance(section, Mapping) else {}
