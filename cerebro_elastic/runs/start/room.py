"""Is there room for a run's processes on this machine?"""

from __future__ import annotations

from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.system.words import counted

_PER_CORE = 16
"""Processes of one core that are still started: they take turns, and each takes memory."""


def check_room(recipe: Recipe, nodes: int, cores: int, gpus: int) -> list[str]:
    """Compare the processes of this machine's ``nodes`` with its cores and GPUs.

    Returns:
        Notes for the user: nodes that share cores, and nodes for which there is no partition.

    Raises:
        RecipeError: They are more than the machine can run.
    """
    places = max(cores, gpus)
    ranks, workers = nodes * recipe.node.ranks, recipe.data.workers
    processes = ranks * (1 + workers)
    if processes > _PER_CORE * places:
        at = ("data", "workers") if ranks <= places else ("node", "ranks") if nodes <= places else ("nodes",)
        made = f" and {counted(workers, 'worker')} for each" if workers else ""
        raise RecipeError(
            f"{recipe.source.where(at)}: {counted(nodes, 'node')} with {counted(recipe.node.ranks, 'rank')}"
            f"{made} are {processes} processes, and this machine has {counted(cores, 'core')}: use at most "
            f"{_PER_CORE * places} (one node for each core is fastest), or more machines (`cerebro host`)"
        )
    notes = []
    if ranks > places:
        sharing = counted(nodes, "node") if ranks == nodes else counted(ranks, "rank")
        notes.append(f"{sharing} share {counted(cores, 'core')}, so each trains more slowly")
    homes = recipe.data.partitions * recipe.replicas * recipe.gang
    if recipe.data.url is None and nodes > homes:
        notes.append(
            f"{counted(nodes - homes, 'node')} of {nodes} will have no partition: use more "
            "`data.partitions`, or `replicas`"
        )
    return notes
