"""The accelerators of this machine that torch can use, and their division among nodes.

Files in ``/dev`` do not show what torch can use (the driver may be too old, torch without CUDA, the maker a
different one), and a process that has queried torch cannot hand devices on to its forks. So a child does it,
once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.system.devices import CPU, SHARED, VISIBLE, count_here, hardware_here, kind_here
from cerebro_elastic.system.subprocess_call import call, serve
from cerebro_elastic.system.words import counted

_NO_GPU = (None, "", "-1", "NoDevFiles")
"""Values of ``CUDA_VISIBLE_DEVICES`` without a GPU: unset, or no GPU wanted (the last by Slurm)."""
_WORDS = {"hpu": "HPU", "npu": "NPU"}


@dataclass(frozen=True, slots=True)
class Accelerators:
    """The accelerators that a run's nodes on this machine share."""

    kind: str = CPU
    """The kind in torch's words: ``cuda``, ``xpu``, ...; ``cpu`` without any."""
    names: tuple[str, ...] = ()
    """Their names in the maker's variable (``CUDA_VISIBLE_DEVICES``)."""
    hardware: str = CPU
    """The name of the first one."""
    in_machine: int = 0
    """The number of NVIDIA GPUs with a file in ``/dev``: it may be more than torch can use, or this process
    may use."""

    def share(self, nodes: int) -> list[Mapping[str, str]]:
        """The environment of each of ``nodes`` nodes: equally many devices, all different; with fewer devices
        than nodes, one for each, in turn, and a note that they share it."""
        variable, count = VISIBLE.get(self.kind), len(self.names)
        if variable is None or not count:
            return [{}] * nodes
        size = count // nodes
        if size:
            return [{variable: ",".join(self.names[i * size : (i + 1) * size])} for i in range(nodes)]
        return [{variable: self.names[i % count], SHARED: "yes"} for i in range(nodes)]

    def nodes_of(self, recipe: Recipe) -> int:
        """The number of nodes that use all of them: the meaning of ``nodes: auto`` here."""
        return max(1, len(self.names) // recipe.node.ranks)

    def check(self, nodes: int, recipe: Recipe) -> None:
        """Raise ``RecipeError`` unless each rank of ``nodes`` nodes gets a device if it needs its own."""
        count, ranks = len(self.names), recipe.node.ranks
        wanted = nodes * ranks
        if not count or wanted <= count or (ranks == 1 and recipe.gang == 1):
            return
        where = recipe.source.where(("node", "ranks") if ranks > 1 else ("gang",))
        what = f"{counted(nodes, 'node')} with {counted(ranks, 'rank')} each"
        why = "ranks that train one unit together need a device each"
        raise RecipeError(
            f"{where}: {what} take {wanted} {self._word}s, and this machine has {count}: {why}; use at most "
            f"{counted(max(1, count // ranks), 'node')} here, or fewer ranks"
        )

    def text(self, nodes: int, ranks: int) -> str:
        """Where ``nodes`` nodes train: ``on 2 of 8 GPUs (H100)``; "" on a machine without any."""
        count = len(self.names)
        if not count:
            given = os.environ.get(VISIBLE["cuda"])
            has = "torch has none" if given is None else f"{VISIBLE['cuda']} is {given!r}"
            if self.in_machine:
                return f"on the CPU: {has}, although this machine has {counted(self.in_machine, 'GPU')}"
            # Some GPUs have no such file, but people name those that they have.
            return f"on the CPU: {has}, and torch finds none of these" if given not in _NO_GPU else ""
        used = count - self.idle(nodes, ranks)
        total = count if used == count else f"{used} of {count}"
        return f"on {total} {self._word}{'' if count == 1 else 's'} ({self.hardware})"

    def idle(self, nodes: int, ranks: int) -> int:
        """The number of devices that ``nodes`` nodes leave without a rank."""
        return max(0, len(self.names) - nodes * ranks)

    @property
    def _word(self) -> str:
        return _WORDS.get(self.kind, "GPU")


def accelerators_of(recipe: Recipe, env: Mapping[str, str]) -> Accelerators:
    """The accelerators that the nodes of a run of ``recipe`` share here. ``env`` names the fork server that
    has torch. Frameworks other than torch find their devices themselves: they share NVIDIA's by their
    files."""
    files = _files()
    if recipe.task.ARRAYS != "torch":
        names = _named("cuda", None if VISIBLE["cuda"] in os.environ else len(files))
        return Accelerators("cuda", names, "cuda", len(files)) if names else Accelerators()
    found = call(__name__, "the look for accelerators", {}, env)
    names = _named(found["kind"], found["count"])
    return Accelerators(found["kind"], names, found["hardware"], len(files))


def _named(kind: str, count: int | None) -> tuple[str, ...]:
    """The names of the first ``count`` devices that this process may use, or of all named ones."""
    given = os.environ.get(VISIBLE.get(kind, ""))
    numbers = ",".join(map(str, range(count or 0)))
    named = [name.strip() for name in (numbers if given is None else given).split(",")]
    return tuple(filter(None, named))[:count]


def _files(folder: Path = Path("/dev")) -> Sequence[Path]:
    # In a container only its own devices have such a file.
    return [*folder.glob("nvidia[0-9]*")]


def _look(_request: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"kind": kind_here(), "count": count_here(), "hardware": hardware_here()}


if __name__ == "__main__":
    serve(_look)
