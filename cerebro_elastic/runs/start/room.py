"""Is there room for a run's processes on this machine?"""

from __future__ import annotations

import os

from cerebro_elastic.errors import RecipeError, RunError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.fields import MOST_NODES
from cerebro_elastic.runs.start.machine import Accelerators
from cerebro_elastic.system.words import counted, option

_PER_CORE = 16
"""The most processes per core: they take turns, and each takes memory."""


def check_count(nodes: int) -> None:
    """Raise ``RunError`` unless a machine may have this number of ``nodes``."""
    if not 1 <= nodes <= MOST_NODES:
        raise RunError(f"{option('nodes')} is {nodes}: a machine has from 1 to {MOST_NODES} nodes")


def check_part(recipe: Recipe, nodes: int, accelerators: Accelerators) -> list[str]:
    """As ``check_room``, for a machine that takes part in a run with its own ``nodes``."""
    check_count(nodes)
    notes = check_room(recipe, nodes, cores_here(), accelerators, given=option("nodes"))
    return [note for note in notes if "no partition" not in note]


def cores_here() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def check_room(
    recipe: Recipe, nodes: int, cores: int, accelerators: Accelerators, given: str | None = None
) -> list[str]:
    """Compare the processes of this machine's ``nodes`` with its cores and accelerators.

    Args:
        recipe: The run's recipe.
        nodes: The number of nodes of this machine.
        cores: Its cores.
        accelerators: Its accelerators.
        given: The option that names ``nodes``; by default the recipe does.

    Returns:
        Notes for the user: nodes that share cores, idle devices, nodes without a partition.

    Raises:
        RecipeError: The nodes are more than the machine can run.
    """
    accelerators.check(nodes, recipe)
    places = max(cores, len(accelerators.names))
    ranks, workers = nodes * recipe.node.ranks, recipe.data.workers
    processes = ranks * (1 + workers)
    if processes > _PER_CORE * places:
        at = ("data", "workers") if ranks <= places else ("node", "ranks") if nodes <= places else ("nodes",)
        where = given if given and at == ("nodes",) else recipe.source.where(at)
        made = f" and {counted(workers, 'worker')} for each" if workers else ""
        raise RecipeError(
            f"{where}: {counted(nodes, 'node')} with {counted(recipe.node.ranks, 'rank')}"
            f"{made} are {processes} processes, and this machine has {counted(cores, 'core')}: use at most "
            f"{_PER_CORE * places} (one node for each core is fastest), or more machines (`cerebro host`)"
        )
    notes = []
    if ranks > places:
        sharing = counted(nodes, "node") if ranks == nodes else counted(ranks, "rank")
        notes.append(f"{sharing} share {counted(cores, 'core')}, so each trains more slowly")
    if idle := accelerators.idle(nodes, recipe.node.ranks):
        total = len(accelerators.names)
        where = given or "`nodes`"
        notes.append(
            f"{idle} of {total} accelerators have no node: {where} leaves them idle, `auto` does not"
        )
    homes = recipe.data.partitions * recipe.replicas * recipe.gang
    if recipe.data.url is None and nodes > homes:
        notes.append(
            f"{counted(nodes - homes, 'node')} of {nodes} will have no partition: use more "
            "`data.partitions`, or `replicas`"
        )
    return notes
