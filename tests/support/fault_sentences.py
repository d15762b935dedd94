"""Faults of a simulation as sentences, one a line: ``kill node-1 at 30 for 10``, ``slow node-3 at 10 by 2``,
``drain node-2 at 90 within 30``."""

from __future__ import annotations

import re

from cerebro_elastic.simulation import Fault

_NUMBER = r"(\d+(?:\.\d+)?)"
_SENTENCE = re.compile(
    rf"(\w+) (\S+) at {_NUMBER}(?: by {_NUMBER})?(?: within {_NUMBER})?(?: for {_NUMBER})?"
)


def read_faults(text: str) -> list[Fault]:
    return [_fault(line) for line in text.splitlines() if line.strip()]


def _fault(sentence: str) -> Fault:
    match = _SENTENCE.fullmatch(" ".join(sentence.split()))
    assert match is not None, sentence
    what, node, at, *numbers = match.groups()
    factor, grace, seconds = (None if number is None else float(number) for number in numbers)
    return Fault(what, node, float(at), seconds=seconds, factor=factor or 1.0, grace=grace)
