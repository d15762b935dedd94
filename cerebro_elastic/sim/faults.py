"""What happens to nodes, and when: one sentence a line.

==================================  ===============================================================
``kill NODE at S [for S]``          it is gone at once, and noticed when its lease ends; it is back
                                    after so many seconds, if they are given
``crash NODE at S``                 its rank dies, and the unit that it is in fails
``drain NODE at S [for S]``         it finishes its unit and leaves
``slow NODE at S by F [for S]``     units that it begins take F times as long
``join NODE at S``                  a node of this name joins
==================================  ===============================================================

Empty lines and what follows a ``#`` do not count.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from cerebro_elastic.errors import RecipeError, did_you_mean

_NUMBER = r"(\d+(?:\.\d+)?)"
_SENTENCE = re.compile(rf"(\w+) (\S+) at {_NUMBER}(?: by {_NUMBER})?(?: for {_NUMBER})?")
_WITH_FACTOR = "slow"
_THAT_END = ("kill", "drain", "slow")
WHAT = ("crash", "drain", "join", "kill", "slow")


@dataclass(frozen=True, slots=True)
class Fault:
    """``what`` is one of ``WHAT``. It happens to ``node`` ``at`` so many seconds after the run's begin, and
    lasts for ``seconds`` (``None``: to the end); ``factor`` is by how much it is slowed."""

    what: str
    node: str
    at: float
    seconds: float | None = None
    factor: float = 1.0


def read_faults(text: str, nodes: Collection[str]) -> list[Fault]:
    """The faults in ``text`` for a run that begins with ``nodes``. ``RecipeError`` names a wrong line."""
    faults: list[Fault] = []
    known = set(nodes)
    for number, line in enumerate(text.splitlines(), start=1):
        sentence = " ".join(line.partition("#")[0].split())
        if sentence:
            fault = _fault(sentence, f"line {number} of the faults, {sentence!r}")
            known |= {fault.node} if fault.what == "join" else set()
            faults.append(fault)
    for fault in faults:
        if fault.node not in known:
            raise RecipeError(
                f"the faults name a node {fault.node!r} that the run does not have; "
                f"{did_you_mean(fault.node, known)}; or let it come with `join {fault.node} at SECONDS`"
            )
    return faults


def _fault(sentence: str, where: str) -> Fault:
    found = _SENTENCE.fullmatch(sentence)
    if found is None:
        raise RecipeError(f"{where}, is not like `kill NODE at 30 for 10` or `slow NODE at 30 by 2`")
    what, node, at, factor, seconds = found.groups()
    if what not in WHAT:
        raise RecipeError(f"{where}: nothing is called {what!r}; {did_you_mean(what, WHAT)}")
    if (what == _WITH_FACTOR) != (factor is not None) or (factor is not None and float(factor) <= 0):
        raise RecipeError(f"{where}: `slow`, and nothing else, says `by` how much, a number above 0")
    if seconds is not None and what not in _THAT_END:
        raise RecipeError(f"{where}: only {', '.join(_THAT_END)} last `for` some seconds")
    return Fault(what, node, float(at), None if seconds is None else float(seconds), float(factor or 1.0))
