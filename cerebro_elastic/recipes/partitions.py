"""``data.partitions: auto``, the default: how many training partitions a run has.

Hopping splits data that no node has room for. Where each has room for all rows, one partition with a replica
on each node is faster: a unit is a whole epoch, and any node trains any config. The choice follows from the
recipe, the size of its files and this machine's memory. A run that continues keeps the number on its record.
"""

from __future__ import annotations

import glob
import os
from itertools import islice
from math import ceil, inf, prod
from pathlib import Path

from cerebro_elastic.recipes.data import PartitionChoice
from cerebro_elastic.recipes.fields import MOST_NODES
from cerebro_elastic.recipes.schema import Recipe
from cerebro_elastic.registry import is_reference

_USUAL = 4
"""The least number where nodes have parts of the rows."""
_PER_NODE = 2
"""Partitions of a node there, so that some are left for nodes that join."""
_MOST = 8
"""The largest number that keeps nodes busy to the end."""
_IDLE = 0.05
"""The share of the nodes' time that may be idle, because units are long, before units become shorter."""
_ROOM = 0.5
"""The share of this machine's memory that all rows may take."""
_MOST_FILES = 10_000
"""The most files whose sizes are looked up; with more, the bytes stay unknown."""


def choose(recipe: Recipe, root: Path) -> PartitionChoice | None:
    """The choice for a ``recipe`` in ``root``; ``None`` if it names a number, or a prepared dataset."""
    if recipe.data.url is not None or "partitions" in recipe.data.model_fields_set:
        return None
    reason, replicas = _why_parts(recipe, root), None if "replicas" in recipe.model_fields_set else 1
    if reason:
        several = max(_USUAL, _PER_NODE * recipe.nodes.min)
        return PartitionChoice(several + -several % (recipe.folds or 1), replicas, reason)
    return PartitionChoice(
        recipe.folds or next((number for number in range(1, _MOST) if not _idles(recipe, number)), _MOST),
        MOST_NODES,
        "each node has room for all rows, so each keeps a replica, and any node trains any config",
    )


def _why_parts(recipe: Recipe, root: Path) -> str:
    """The reason for giving each node only a part of the rows; empty if each has room for all."""
    data, search = recipe.data, recipe.search
    if "replicas" in recipe.model_fields_set:
        return "`replicas` says how many nodes keep each row"
    if search.budget.units is not None or getattr(search, "resource", "") == "units":
        return "the search counts units"
    if recipe.node.cache_bytes is not None:
        return "node.cache_bytes bounds a host's cache"
    if data.workers or data.decode or data.embed:
        return "rows take long to open, so a host opens those of its partitions only"
    size, room = _bytes_of(recipe, root), _ROOM * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size == inf:
        return "how many bytes the rows have is not known"
    return f"the rows have {size:.2g} bytes, and a node has room for {room:.2g}" if size > room else ""


def _idles(recipe: Recipe, partitions: int) -> bool:
    """Whether nodes that have a config to train are idle too long at the end, with units of one length."""
    trainings = _configs(recipe) * (recipe.repeats.min if recipe.repeats is not None else 1)
    units, nodes = trainings * recipe.epochs * partitions, min(recipe.nodes.min, trainings)
    return units < inf and ceil(units / nodes) * nodes > (1 + _IDLE) * units


def _configs(recipe: Recipe) -> float:
    """How many configs the search has; infinite if it does not say."""
    search = recipe.search
    if search.num is not None or search.space_fn is not None:
        return search.num or inf
    return prod(len(domain.choice or ()) or inf for domain in search.space.values())


def _bytes_of(recipe: Recipe, root: Path) -> float:
    """The bytes that all rows need: none for the rows of a function, which have been in a machine's memory,
    and of a dataset, which stay where they are."""
    source = recipe.data.source
    if source is None:
        return inf if recipe.data.shards is not None else 0.0
    if is_reference(source):
        return 0.0
    path = str(root / source)
    pattern = f"{glob.escape(path)}/**" if os.path.isdir(path) else path
    files = [*islice(glob.iglob(pattern, recursive=True), _MOST_FILES)] if "://" not in source else []
    size = sum(os.path.getsize(file) for file in files if os.path.isfile(file))
    return size if size and len(files) < _MOST_FILES else inf
