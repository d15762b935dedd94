"""Why configs failed, for people at a run's end: each reason once, with its configs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from cerebro_elastic.core.model.attempts import Failure, FailureKind
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import Event, UnitFailed
from cerebro_elastic.reporting.results import ConfigResult
from cerebro_elastic.system.explanations import shortened
from cerebro_elastic.system.words import counted

_NAMED = 5


def failure_texts(rows: Sequence[ConfigResult], events: Sequence[Event], logs: Path) -> Iterator[str]:
    """A text for each reason for which configs failed: the configs, the error with the user's own lines, and
    the node's log below ``logs`` that has all of it, if that file exists."""
    tries = [event.failure for event in events if isinstance(event, UnitFailed)]
    configs_by_text: dict[str, list[str]] = {}
    node_by_text: dict[str, str] = {}
    for row in sorted(rows, key=lambda row: row.config):
        if row.status is not Status.FAILED:
            continue
        last = _last(tries, row)
        text = shortened(row.reason) if last is None else _text(last)
        configs_by_text.setdefault(text, []).append(row.config)
        if last is not None:
            node_by_text.setdefault(text, last.node)
    for text, configs in configs_by_text.items():
        log = logs / f"{node_by_text.get(text)}.log"
        where = f"\n  all of it: {log}" if log.is_file() else ""
        yield f"{_names(configs)} failed: {text}{where}"


def _last(tries: Sequence[Failure], row: ConfigResult) -> Failure | None:
    """The failure that ended the config."""
    own = (failure for failure in reversed(tries) if failure.unit.config == row.config)
    return next((failure for failure in own if failure.story in row.reason), None)


def _text(failure: Failure) -> str:
    kind = "" if failure.kind is FailureKind.EXCEPTION else f"{failure.kind.value}: "
    return kind + shortened(failure.story)


def _names(configs: Sequence[str]) -> str:
    more = len(configs) - _NAMED
    return ", ".join(configs[:_NAMED]) + (f" and {counted(more, 'other')}" if more > 0 else "")
