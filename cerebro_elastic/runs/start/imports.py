"""What the processes of a run import: a fork server of this machine does it once for all of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cerebro_elastic.files import as_its_folder, make_folder
from cerebro_elastic.forkserver import SOCKET, ForkServer, Refused
from cerebro_elastic.process import ALLOCATOR
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.parallelism import AUTO
from cerebro_elastic.registry import is_reference, module_of
from cerebro_elastic.runs.folder import RunFolder

_ALWAYS = (
    "torch",
    "torch.distributed.run",
    "cerebro_elastic.worker.rank",
    "cerebro_elastic.runs.start.preflight",
)


@contextmanager
def imported_once(
    recipe: Recipe, folder: RunFolder, say: Callable[[str], None]
) -> Iterator[Mapping[str, str]]:
    """Start a fork server that imports what the run needs, on Linux, and unless ``$CEREBRO_FORKSERVER`` is
    ``off`` or names one.

    Yields:
        What processes that are to be its forks have in their environment, besides this process's.
    """
    if SOCKET in os.environ or sys.platform != "linux":
        yield {}
        return
    make_folder(folder.logs)
    path = folder.logs / "imports.log"
    with open(path, "ab", opener=as_its_folder) as log:
        try:
            server = ForkServer(_modules(recipe), log, str(recipe.root), {**ALLOCATOR, **os.environ})
        except Refused as error:
            say(f"note: each process imports for itself, for {error}: see {path}")
            yield {}
            return
    with server:
        yield {SOCKET: server.path}


def _modules(recipe: Recipe) -> list[str]:
    """The modules of the task's kind and of the parallelisms, and the user's own."""
    used = () if recipe.parallelism == AUTO else [section.use for section in recipe.parallelism]
    parts = [
        module_of("cerebro.tasks", recipe.task.kind),
        *(module_of("cerebro.parallel", name) for name in used),
    ]
    own = [text.partition(":")[0] for text in _texts(recipe.resolved()) if is_reference(text)]
    return list(dict.fromkeys([*_ALWAYS, *(module for module in parts if module), *own]))


def _texts(value: Any) -> Iterator[str]:
    """All texts in a recipe's values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
