"""The imports of a run's processes: a fork server of this machine does them once for all.

This module imports little, so that the server can start first and work while this process imports the rest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from cerebro_elastic.system.forkserver import SOCKET, ForkServer, Refused
from cerebro_elastic.system.process import OF_TRAINING

if TYPE_CHECKING:
    from cerebro_elastic.recipes import Recipe
    from cerebro_elastic.runs.folder import RunFolder

AGENTS = "CEREBRO_AGENT_FORKSERVER"
"""The environment variable that names the socket of the server for agents, if ranks have another one."""
_OURS = ("cerebro_elastic.worker.rank", "cerebro_elastic.runs.start.preflight")
_ALWAYS = ("torch", "torch.distributed.run", *_OURS)


class SharedImports:
    """A fork server that begins with the imports common to all runs. It exists only on Linux, and not if
    ``$CEREBRO_FORKSERVER`` is ``off`` or names one. It ends with this context.

    A run whose task takes numpy's arrays has two of them: with torch for agents, and without for ranks.
    """

    def __init__(self) -> None:
        self._servers: list[ForkServer] = []
        self._named: Mapping[str, str] | None = None
        if SOCKET not in os.environ and sys.platform == "linux":
            self._servers.append(_server(_ALWAYS))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()

    @property
    def agents(self) -> Mapping[str, str]:
        """The environment of a process that is a fork with torch, before or after ``load``."""
        return {SOCKET: self._servers[0].path} if self._servers else {}

    def load(self, recipe: Recipe, folder: RunFolder, say: Callable[[str], None]) -> Mapping[str, str]:
        """Have the server also import the recipe's modules, on the first call.

        Returns:
            The environment of processes that should be its forks, besides this process's.
        """
        if self._named is None:
            self._named = self._load(recipe, folder, say) if self._servers else {}
        return self._named

    def _load(self, recipe: Recipe, folder: RunFolder, say: Callable[[str], None]) -> Mapping[str, str]:
        from cerebro_elastic.recipes.schema import modules_of
        from cerebro_elastic.system.files import as_its_folder, make_folder

        agents = self._servers[0]
        if recipe.task.ARRAYS == "numpy":
            self._servers.append(_server(_OURS, recipe.task.environment))
        ranks = self._servers[-1]
        make_folder(folder.logs)
        path = folder.logs / "imports.log"
        with open(path, "ab", opener=as_its_folder) as log:
            try:
                ranks.load(modules_of(recipe), str(recipe.root), log)
            except Refused as error:
                say(f"note: each process imports for itself, for {error}: see {path}")
                return {}
        return {SOCKET: ranks.path, **({AGENTS: agents.path} if agents is not ranks else {})}


def _server(modules: Sequence[str], env: Mapping[str, str] | None = None) -> ForkServer:
    return ForkServer(modules, {**OF_TRAINING, **os.environ, **(env or {})})
