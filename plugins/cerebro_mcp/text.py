"""The text of a run for an agent: plain, of 4,000 tokens at most."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from cerebro_elastic.extending.running import ConfigResult, number

MOST_TOKENS = 4_000
_LAST_LINE = 100
"""The tokens kept for a line about the omitted part."""
_MOST_OF_HEAD = 1_600
"""The most tokens of the head if rows follow."""
_TOKEN = re.compile(r"[A-Za-z]{1,4}|[^\S\n]+|.", re.DOTALL)
_SHOWN_VALUES = 8
"""The number of a curve's values on the leaderboard."""
_LONGEST = 400
"""The most characters of a line; the rest is cut off."""
_PER_NOISE = math.sqrt(6) * 0.6745
"""The median of the absolute second difference of independent normal errors, by their standard deviation."""


def tokens(text: str) -> int:
    """The most tokens of a text, for any usual tokenizer: each digit, symbol and byte of another script
    counts as one, and so do four letters."""
    return sum(
        max(1, len(part.encode(errors="replace"))) if len(part) == 1 else 1 for part in _TOKEN.findall(text)
    )


def within(head: Sequence[str], rows: Sequence[str], more: Callable[[int], str], rest: str = "") -> str:
    """The lines of ``head`` as far as they leave room for rows, and as many ``rows`` as fit. ``more`` gives
    the line for the omitted ones, from the number of shown ones; ``rest`` gives the place of the rest of the
    head."""
    lines, room = _fitting(head, _MOST_OF_HEAD)
    if len(lines) < len(head):
        lines.append(f"... {len(head) - len(lines)} lines are left out here{rest}")
    shown, _ = _fitting(rows, MOST_TOKENS - 2 * _LAST_LINE - _MOST_OF_HEAD + max(0, room))
    lines += shown
    return "\n".join(lines if len(shown) == len(rows) else [*lines, more(len(shown))])


def _fitting(lines: Iterable[str], room: int) -> tuple[list[str], int]:
    """The first lines that fit into this number of tokens, and the number of remaining tokens."""
    fitting: list[str] = []
    for line in map(_cut, lines):
        if (needed := tokens(line) + 1) > room:
            break
        room -= needed
        fitting.append(line)
    return fitting, room


def page(lines: Iterable[str], start: int, how: str) -> str:
    """The lines from number ``start`` on, as many as fit; ``how`` explains how to read the others. No line is
    cut off: long ones become several."""
    whole = [line[begin : begin + _LONGEST] for line in lines for begin in range(0, len(line), _LONGEST)]
    room = MOST_TOKENS - _LAST_LINE
    begins = [1]
    while (following := begins[-1] + len(_fitting(whole[begins[-1] - 1 :], room)[0])) <= len(whole):
        begins.append(following)
    if start > len(whole):
        pages = ", ".join(map(str, begins))
        return f"this is all: {len(whole)} lines, in pages that begin at {pages}"
    shown, _ = _fitting(whole[start - 1 :], room)
    left = len(whole) - start + 1 - len(shown)
    return "\n".join([*shown, *([f"... {left} more: {how} with start {start + len(shown)}"] if left else [])])


def _cut(line: str) -> str:
    return line if len(line) <= _LONGEST else line[: _LONGEST - 4] + " ..."


def noise(curves: Iterable[Sequence[float]]) -> float | None:
    """The standard deviation of the jumps of curves' values from epoch to epoch, besides their trend.

    A second difference of a curve removes its trend, if that is a line over three epochs. Where curves bend,
    the estimate is too large rather than too small. ``None`` if no curve has three values.
    """
    jumps = [
        abs(before - 2 * value + after)
        for curve in curves
        for before, value, after in zip(curve, curve[1:], curve[2:], strict=False)
        if math.isfinite(before + value + after)
    ]
    return median(jumps) / _PER_NOISE if jumps else None


def row(place: int, result: ConfigResult, metric: str, why: str) -> str:
    """A config's line on the leaderboard."""
    best = "-" if result.best is None else f"{number(result.best)} in epoch {result.best_epoch}"
    curve = " ".join(number(value) for value in thinned([value for _, value in result.values(metric)]))
    parts = [f"{place}. {result.config} {result.status.value}, {result.epochs} epochs", f"best {best}"]
    parts += [hparams(result), *([f"curve {curve}"] if curve else []), *([why] if why else [])]
    return " | ".join(parts)


def hparams(result: ConfigResult) -> str:
    """All hyper-parameters as JSON, in the form for ``add``."""
    return json.dumps(dict(result.hparams), ensure_ascii=True)


def thinned(values: Sequence[float]) -> Sequence[float]:
    """The values of a curve, or some of many, the first and the last included."""
    if len(values) <= _SHOWN_VALUES:
        return values
    last = len(values) - 1
    return [values[round(i * last / (_SHOWN_VALUES - 1))] for i in range(_SHOWN_VALUES)]
