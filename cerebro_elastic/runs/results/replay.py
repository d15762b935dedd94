"""Replay: a config trained again, alone and in order, from its visit log; everything that its visits say, and
what follows from that, is compared."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cerebro_elastic.core.history.lineage import history
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.errors import CerebroError
from cerebro_elastic.files import locate, read
from cerebro_elastic.reporting.curves import curves_text
from cerebro_elastic.reporting.results import ConfigResult, config_result, gather
from cerebro_elastic.runs.results.derived import curve_lines
from cerebro_elastic.runs.results.result import RunResult, check_here
from cerebro_elastic.scratch import Scratch

if TYPE_CHECKING:
    from cerebro_elastic.worker.visit_replayer import Redone, VisitReplayer


@dataclass(frozen=True, slots=True)
class Difference:
    """What the record says of a ``field``, and what doing it again has made of it."""

    field: str
    recorded: Any
    replayed: Any

    def __str__(self) -> str:
        return f"{self.field}: recorded {self.recorded}, replayed {self.replayed}"


@dataclass(frozen=True, slots=True)
class ReplayedVisit:
    """A visit done again: the new ``digest``, what came of it otherwise, and all in which it is not as
    recorded."""

    visit: Visit
    digest: str
    metrics: Mapping[str, float]
    done: bool
    differences: tuple[Difference, ...] = ()

    @property
    def same(self) -> bool:
        return not self.differences


def replay(result: RunResult, config: str) -> Iterator[ReplayedVisit]:
    """Train ``config`` from its beginning on this machine, in the order of its visits (imports torch); one
    that began with another's checkpoint, from that one's beginning; one that began with a checkpoint from
    outside the run, from there. Each unit is trained by the choice by which it was; several ranks are
    processes of their own.

    Nothing of the recorded states is used: each unit continues from the one replayed before. A unit that was
    split is done in its parts, and in one go as well: that makes the same state.
    """
    from cerebro_elastic.worker.visit_replayer import VisitReplayer

    check_here(result, modules=result.spec.root, data=result.spec.data)
    may_be_nan = result.recipe.limits.not_finite != "fail"
    with (
        Scratch("replay") as scratch,
        VisitReplayer(result.spec, _cache(result, scratch.path)) as again,
    ):
        head: CheckpointRef | None = None
        for place, unit in enumerate(_units(result, config)):
            start = head if place else unit[0][0].head
            head = start
            for part, (at, visit) in enumerate(unit):
                made = again(at, visit, head, str(scratch.path / f"{place}-{part}"))
                differences = list(_differences(visit, made, head, may_be_nan=may_be_nan))
                head = made.output
                if part and visit.whole:
                    differences += _in_one_go(again, unit, start, head, str(scratch.path / str(place)))
                yield ReplayedVisit(visit, head.digest, made.metrics, made.done, tuple(differences))


def derived_again(result: RunResult, config: str, replayed: Sequence[ReplayedVisit]) -> Iterator[Difference]:
    """In what the recorded results of a config are not those of its visits as ``replayed``."""
    state, _ = gather(result.events)
    visits = [
        replace(
            each.visit,
            metrics=each.metrics,
            done=each.done,
            output=replace(each.visit.output, digest=each.digest),
        )
        for each in replayed
        if each.visit.unit.config == config
    ]
    recorded, objective = result.config(config), result.recipe.objective
    again = config_result(state.configs[config], visits, result.spec.plan, objective.metric, objective.mode)
    values = {
        f"best {objective.metric}": (recorded.best, again.best),
        "epoch of the best": (recorded.best_epoch, again.best_epoch),
        "best checkpoint": (_digest(recorded.best_checkpoint), _digest(again.best_checkpoint)),
        "full epochs": (len(recorded.curve), len(again.curve)),
    }
    for name, (ours, theirs) in values.items():
        if not _same(ours, theirs):
            yield Difference(name, ours, theirs)
    yield from _curves(result, again)


def _curves(result: RunResult, again: ConfigResult) -> Iterator[Difference]:
    """The config's lines of ``metrics.csv``, as far as they are there."""
    file = result.folder.curves
    if result.from_store or not file.is_file():
        return
    rows = [again if row.config == again.config else row for row in result.leaderboard]
    written = curve_lines(file.read_text(encoding="utf-8", errors="replace"), again.config)
    for line, expected in zip(written, curve_lines(curves_text(rows), again.config), strict=False):
        if line != expected:
            yield Difference(file.name, line, expected)


def _units(result: RunResult, config: str) -> Iterator[list[tuple[Config, Visit]]]:
    """The visits that led to where ``config`` is, those together of which each takes up the one before it."""
    state, visits = gather(result.events)
    unit: list[tuple[Config, Visit]] = []
    for at, visit in history(result.config(config).config, state.configs, visits, result.spec.plan):
        if unit and (unit[-1][1].whole or not _takes_up(visit, unit[-1][1])):
            yield unit
            unit = []
        unit.append((at, visit))
    if unit:
        yield unit


def _takes_up(visit: Visit, part: Visit) -> bool:
    return (visit.unit.config, visit.strategy) == (part.unit.config, part.strategy)


def _cache(result: RunResult, scratch: Path) -> Path:
    """The machine's, if it took part in the run."""
    return result.folder.cache if result.folder.spec.exists() else scratch / "cache"


def _in_one_go(
    again: VisitReplayer,
    unit: Sequence[tuple[Config, Visit]],
    start: CheckpointRef | None,
    end: CheckpointRef,
    url: str,
) -> Iterator[Difference]:
    (first, _), (_, last) = unit[0], unit[-1]
    whole = again(first, last, start, url).output
    if whole.digest != end.digest:
        yield Difference("state in parts and in one go", end.digest, whole.digest)


def _differences(
    visit: Visit, made: Redone, head: CheckpointRef | None, *, may_be_nan: bool
) -> Iterator[Difference]:
    """All that a visit says of itself, but for times and places."""
    values: dict[str, tuple[Any, Any]] = {
        "input": (_digest(visit.input), _digest(head)),
        "digest": (visit.output.digest, made.output.digest),
        "bytes": (visit.output.bytes, made.output.bytes),
        "samples": (visit.samples, made.samples),
        "batches": (visit.batches, made.batches),
        "whole": (visit.whole, made.whole),
        "done": (visit.done, made.done),
    }
    for name in sorted({*visit.metrics, *made.metrics}):
        values[f"metric {name}"] = (visit.metrics.get(name), made.metrics.get(name))
    for field, (ours, theirs) in values.items():
        if not _same(ours, theirs):
            yield Difference(field, ours, theirs)
    if made.not_finite is not None and not may_be_nan:
        yield Difference("finite", "all values", made.not_finite)
    yield from _rows(visit, made.rows)


def _rows(visit: Visit, made: Sequence[Mapping[str, Any]]) -> Iterator[Difference]:
    """The rows that were logged."""
    try:
        text = read(locate(visit.log)) if visit.log is not None else b""
        recorded = [json.loads(line) for line in text.splitlines()]
    except (CerebroError, OSError, ValueError) as error:
        yield Difference("rows", f"unreadable ({error})", len(made))
        return
    if len(recorded) != len(made):
        yield Difference("rows", len(recorded), len(made))
    for number, (ours, theirs) in enumerate(zip(recorded, made, strict=False), start=1):
        for name in sorted({*ours, *theirs}):
            if not _same(ours.get(name), theirs.get(name)):
                yield Difference(f"row {number}, {name}", ours.get(name), theirs.get(name))


def _digest(ref: CheckpointRef | None) -> str | None:
    return ref.digest if ref is not None else None


def _same(ours: Any, theirs: Any) -> bool:
    """Bit for bit; NaN is NaN."""
    both_nan = (
        isinstance(ours, float) and isinstance(theirs, float) and math.isnan(ours) and math.isnan(theirs)
    )
    return both_nan or bool(ours == theirs)
