"""Why configs failed, for people at a run's end: each reason once, with those that have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from cerebro_elastic.core.model.attempts import Failure, FailureKind
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import Event, UnitFailed
from cerebro_elastic.reporting.results import ConfigResult
from cerebro_elastic.stories import short
from cerebro_elastic.words import counted

_NAMED = 5


def failures_told(rows: Sequence[ConfigResult], events: Sequence[Event], logs: Path) -> Iterator[str]:
    """A text for each reason for which configs failed: which configs, what, the user's own lines, and the
    node's log below ``logs`` that has all of it, if it is there."""
    tries = [event.failure for event in events if isinstance(event, UnitFailed)]
    told: dict[str, list[str]] = {}
    found: dict[str, str] = {}
    for row in sorted(rows, key=lambda row: row.config):
        if row.status is not Status.FAILED:
            continue
        last = _last(tries, row)
        text = short(row.reason) if last is None else _text(last)
        told.setdefault(text, []).append(row.config)
        if last is not None:
            found.setdefault(text, last.node)
    for text, configs in told.items():
        log = logs / f"{found.get(text)}.log"
        more = f"\n  all of it: {log}" if log.is_file() else ""
        yield f"{_names(configs)} failed: {text}{more}"


def _last(tries: Sequence[Failure], row: ConfigResult) -> Failure | None:
    """The failure that the config's end tells of."""
    own = (each for each in reversed(tries) if each.unit.config == row.config)
    return next((each for each in own if each.story in row.reason), None)


def _text(failure: Failure) -> str:
    kind = "" if failure.kind is FailureKind.EXCEPTION else f"{failure.kind.value}: "
    return kind + short(failure.story)


def _names(configs: Sequence[str]) -> str:
    more = len(configs) - _NAMED
    return ", ".join(configs[:_NAMED]) + (f" and {counted(more, 'other')}" if more > 0 else "")
