"""The faults of a simulation as text: one sentence a line.

=======================================  ==========================================================
``kill NODE at S [for S]``               it is gone at once, which is noticed when its lease ends;
                                         it is back after the seconds of ``for``, if given
``kill leader at S [for S]``             no controller decides until the leader's lease has ended,
                                         and the seconds of ``for`` are over
``crash NODE at S``                      its rank dies and starts anew; the unit that it is in fails
``drain NODE at S [within S] [for S]``   it finishes its unit and leaves; if that takes longer than
                                         ``within``, it leaves at the next batch, and other nodes
                                         go on from there; when they are over it is killed
``slow NODE at S by F [for S]``          units that it begins take F times as long
``join NODE at S``                       a node of this name joins
=======================================  ==========================================================

Empty lines and comments (``#``) are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from cerebro_elastic.errors import RecipeError, ScheduleError, did_you_mean
from cerebro_elastic.scheduling.openshop.checks import number, one_of

_NUMBER = r"(\d+(?:\.\d+)?)"
_SENTENCE = re.compile(
    rf"(\w+) (\S+) at {_NUMBER}(?: by {_NUMBER})?(?: within {_NUMBER})?(?: for {_NUMBER})?"
)
LEADER = "leader"
"""Stands for the controller that leads the run."""
_WITH_FACTOR = "slow"
_WITH_GRACE = "drain"
_THAT_END = ("kill", "drain", "slow")
WHAT = ("crash", "drain", "join", "kill", "slow")
"""The kinds of faults."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a node, and its time. Raises ``ScheduleError`` for values that cannot be."""

    what: str
    """One of ``WHAT``."""
    node: str
    """The node's name, or ``LEADER``."""
    at: float
    """When it happens: seconds after the run's begin."""
    seconds: float | None = None
    """How long it lasts; ``None``: to the run's end."""
    factor: float = 1.0
    """``slow``: the factor on the seconds of the node's units."""
    grace: float | None = None
    """``drain``: in how many seconds the node is to leave; ``None``: in as many as its unit takes."""

    def __post_init__(self) -> None:
        one_of(self.what, WHAT, "fault")
        number(self.at, "at")
        if number(self.factor, "factor") == 0:
            raise ScheduleError("factor is 0; it must be above 0")
        for name in ("seconds", "grace"):
            if (value := getattr(self, name)) is not None:
                number(value, name)


def read_faults(text: str, nodes: Collection[str]) -> list[Fault]:
    """The faults in ``text`` for a run that begins with ``nodes``. ``RecipeError`` names a wrong line."""
    faults: list[Fault] = []
    known = set(nodes)
    for place, line in enumerate(text.splitlines(), start=1):
        sentence = " ".join(line.partition("#")[0].split())
        if sentence:
            fault = _fault(sentence, f"line {place} of the faults, {sentence!r}")
            known |= {fault.node} if fault.what == "join" else set()
            faults.append(fault)
    for fault in faults:
        if fault.node not in known | {LEADER}:
            raise RecipeError(
                f"the faults name a node {fault.node!r} that the run does not have; "
                f"{did_you_mean(fault.node, known)}; or let it come with `join {fault.node} at SECONDS`"
            )
    return faults


def _fault(sentence: str, where: str) -> Fault:
    match = _SENTENCE.fullmatch(sentence)
    if match is None:
        raise RecipeError(f"{where}, is not like `kill NODE at 30 for 10` or `slow NODE at 30 by 2`")
    what, node, at, factor, grace, seconds = match.groups()
    if what not in WHAT:
        raise RecipeError(f"{where}: nothing is called {what!r}; {did_you_mean(what, WHAT)}")
    if (what == _WITH_FACTOR) != (factor is not None) or (factor is not None and float(factor) <= 0):
        raise RecipeError(f"{where}: `slow`, and nothing else, says `by` how much, a number above 0")
    if grace is not None and what != _WITH_GRACE:
        raise RecipeError(f"{where}: only `drain` says `within` how many seconds")
    if node == LEADER and what != "kill":
        raise RecipeError(f"{where}: the leader decides, and is no node: it can be killed, and nothing else")
    if seconds is not None and what not in _THAT_END:
        raise RecipeError(f"{where}: only {', '.join(_THAT_END)} last `for` some seconds")
    try:
        return Fault(
            what,
            node,
            float(at),
            seconds=None if seconds is None else float(seconds),
            factor=float(factor or 1.0),
            grace=None if grace is None else float(grace),
        )
    except ScheduleError as exc:
        raise RecipeError(f"{where}: {exc}") from exc
