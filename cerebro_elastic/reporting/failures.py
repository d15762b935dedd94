"""Why configs failed, for people at a run's end: each reason once, with its configs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cerebro_elastic.core.model.attempts import Failure, FailureKind
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.system.explanations import shortened
from cerebro_elastic.system.words import counted

_NAMED = 5


def failure_texts(configs: Iterable[Config], logs: Path) -> Iterator[str]:
    """A text for each reason for which configs failed: the configs, the error with the user's own lines, and
    the node's log below ``logs`` that has all of it, if that file exists."""
    configs_by_text: dict[str, list[str]] = {}
    node_by_text: dict[str, str] = {}
    for config in sorted(configs, key=lambda config: config.id):
        if config.status is not Status.FAILED:
            continue
        last = next((f for f in reversed(config.failures) if f.story in config.reason), None)
        text = shortened(config.reason) if last is None else _text(last)
        configs_by_text.setdefault(text, []).append(config.id)
        if last is not None:
            node_by_text.setdefault(text, last.node)
    for text, names in configs_by_text.items():
        log = logs / f"{node_by_text.get(text)}.log"
        where = f"\n  all of it: {log}" if log.is_file() else ""
        yield f"{_names(names)} failed: {text}{where}"


def _text(failure: Failure) -> str:
    kind = "" if failure.kind is FailureKind.EXCEPTION else f"{failure.kind.value}: "
    return kind + shortened(failure.story)


def _names(configs: Sequence[str]) -> str:
    more = len(configs) - _NAMED
    return ", ".join(configs[:_NAMED]) + (f" and {counted(more, 'other')}" if more > 0 else "")
