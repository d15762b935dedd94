"""What the processes of a run import: a fork server of this machine does it once for all of them.

This module imports little, so that the server can start first and work while this process imports the rest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Self

from cerebro_elastic.forkserver import SOCKET, ForkServer, Refused
from cerebro_elastic.process import ALLOCATOR

if TYPE_CHECKING:
    from cerebro_elastic.recipes import Recipe
    from cerebro_elastic.runs.folder import RunFolder

_ALWAYS = (
    "torch",
    "torch.distributed.run",
    "cerebro_elastic.worker.rank",
    "cerebro_elastic.runs.start.preflight",
)


class SharedImports:
    """A fork server that begins with what every run imports. There is none on other systems than Linux, nor
    if ``$CEREBRO_FORKSERVER`` is ``off`` or names one. It ends with this context."""

    def __init__(self) -> None:
        self._server: ForkServer | None = None
        if SOCKET not in os.environ and sys.platform == "linux":
            self._server = ForkServer(_ALWAYS, {**ALLOCATOR, **os.environ})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    def load(self, recipe: Recipe, folder: RunFolder, say: Callable[[str], None]) -> Mapping[str, str]:
        """Have the server import what the recipe needs, too.

        Returns:
            What processes that are to be its forks have in their environment, besides this process's.
        """
        from cerebro_elastic.files import as_its_folder, make_folder
        from cerebro_elastic.recipes.modules import modules_of

        if self._server is None:
            return {}
        make_folder(folder.logs)
        path = folder.logs / "imports.log"
        with open(path, "ab", opener=as_its_folder) as log:
            try:
                self._server.load(modules_of(recipe), str(recipe.root), log)
            except Refused as error:
                say(f"note: each process imports for itself, for {error}: see {path}")
                return {}
        return {SOCKET: self._server.path}
