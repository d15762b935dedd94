"""``cerebro replay``: trains a config again, alone and in the order of its visits, and compares it with the
record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cerebro_elastic.core.history.lineage import history
from cerebro_elastic.core.history.view import ConfigHistory
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import LeaderChanged
from cerebro_elastic.core.model.origin import basis_of
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.errors import CerebroError
from cerebro_elastic.reporting.logged import read_rows
from cerebro_elastic.reporting.results import ConfigResult, config_result, curves_text
from cerebro_elastic.runs.results.output_checks import curve_lines
from cerebro_elastic.runs.results.result import RunResult, check_here
from cerebro_elastic.runs.versions import other_code, other_versions
from cerebro_elastic.system.devices import hardware_here, kind_here
from cerebro_elastic.system.process import Scratch
from cerebro_elastic.system.words import counted

if TYPE_CHECKING:
    from cerebro_elastic.worker.offline.visit_replayer import VisitReplayer


@dataclass(frozen=True, slots=True)
class Difference:
    """A recorded value that differs in the replay."""

    field: str
    """The name of the value: ``digest``, ``samples``, ``metric val_loss``, ..."""
    recorded: Any
    replayed: Any

    def __str__(self) -> str:
        return f"{self.field}: recorded {self.recorded}, replayed {self.replayed}"


@dataclass(frozen=True, slots=True)
class ReplayedVisit:
    """A visit trained again."""

    visit: Visit
    """The visit on record."""
    digest: str
    """The digest of the replayed output state."""
    metrics: Mapping[str, float]
    done: bool
    """Whether the replayed config has ended its training with this visit."""
    differences: tuple[Difference, ...] = ()
    """All differences of the replayed visit from the recorded one."""

    @property
    def same(self) -> bool:
        """Whether the replayed visit is bit-identical to the one on record."""
        return not self.differences


def replay(result: RunResult, config: str = "best") -> Iterator[ReplayedVisit]:
    """``Run.replay``, of a ``result``."""
    row = result.config(config)
    names = [each.config for each in row.trainings]
    from cerebro_elastic.worker.offline.visit_replayer import VisitReplayer

    check_here(result, modules=result.spec.root, data=result.spec.data)
    may_be_nan = result.recipe.limits.not_finite != "fail"
    took_part = result.folder.spec.exists()
    with (
        Scratch("replay") as scratch,
        VisitReplayer(
            result.spec, result.folder.cache if took_part else scratch.path / "cache", kind_here()
        ) as replayer,
    ):
        units = [(place, unit) for name in names for place, unit in enumerate(_units(result, name))]
        head: CheckpointRef | None = None
        for number, (place, unit) in enumerate(units):
            start = head if place else unit[0][0].head
            head = start
            for part, (at, visit) in enumerate(unit):
                replayed = replayer(at, visit, head, str(scratch.path / f"{number}-{part}"))
                again = replayed.visit
                differences = list(_differences(visit, again))
                if replayed.not_finite is not None and not may_be_nan:
                    differences.append(Difference("finite", "all values", replayed.not_finite))
                differences += _rows(visit, replayed.rows)
                head = again.output
                if part and visit.whole:
                    differences += _in_one_go(replayer, unit, start, head, str(scratch.path / str(number)))
                yield ReplayedVisit(visit, head.digest, again.metrics, again.done, tuple(differences))


def what_differs(result: RunResult, config: str = "best") -> list[str]:
    """The differences between the run's makings and those here, a sentence for each: users' files and the
    package, versions, and the hardware on which the ``config`` was trained. They may change a replay."""
    row, spec = result.config(config), result.spec
    texts = [*other_code(spec), *other_versions(spec, result.events)]
    led = [event for event in result.events if isinstance(event, LeaderChanged) and event.basis is not None]
    code, last = "", basis_of(spec).code
    changed = 0
    for visit in row.visits:
        while led and led[0].revision < visit.attempt:
            basis = led.pop(0).basis
            code = basis.code if basis is not None else code
        changed += code not in ("", last)
    if changed:
        texts.append(
            f"{changed} of {counted(len(row.visits), 'visit')} of {row.config} were trained before the code "
            "was changed with which the run has continued"
        )
    here = hardware_here()
    if others := sorted({visit.hardware for visit in row.visits} - {here}):
        texts.append(f"{row.config} was trained on {', '.join(others)}, and here is {here}")
    return texts


def compare_results(
    result: RunResult, config: str, replayed: Sequence[ReplayedVisit]
) -> Iterator[Difference]:
    """The recorded results of a config that do not follow from its visits as ``replayed``."""
    if members := result.config(config).members:
        for row in members:
            yield from compare_results(result, row.config, replayed)
        return
    visits = [
        replace(
            again.visit,
            metrics=again.metrics,
            done=again.done,
            output=replace(again.visit.output, digest=again.digest),
        )
        for again in replayed
        if again.visit.unit.config == config
    ]
    recorded, objective = result.config(config), result.recipe.objective
    own = ConfigHistory.of(result.view.state.configs[config], visits, result.spec.plan)
    derived = config_result(own.config, own.curve, visits, objective)
    values = {
        f"best {objective.metric}": (recorded.best, derived.best),
        "epoch of the best": (recorded.best_epoch, derived.best_epoch),
        "best checkpoint": (_digest(recorded.best_checkpoint), _digest(derived.best_checkpoint)),
        "full epochs": (len(recorded.curve), len(derived.curve)),
    }
    for name, (ours, theirs) in values.items():
        if not _same(ours, theirs):
            yield Difference(name, ours, theirs)
    yield from _curves(result, derived)


def _curves(result: RunResult, derived: ConfigResult) -> Iterator[Difference]:
    """The config's lines of ``metrics.csv``, as far as they exist."""
    file = result.folder.curves
    if result.store is not None or not file.is_file():
        return
    rows = [
        replace(row, members=[derived if each.config == derived.config else each for each in row.members])
        if row.members
        else (derived if row.config == derived.config else row)
        for row in result.leaderboard
    ]
    written = curve_lines(file.read_text(encoding="utf-8", errors="replace"), derived.config)
    for line, expected in zip(written, curve_lines(curves_text(rows), derived.config), strict=False):
        if line != expected:
            yield Difference(file.name, line, expected)


def _units(result: RunResult, config: str) -> Iterator[list[tuple[Config, Visit]]]:
    """The visits that led to the present state of ``config``, by unit. A split unit has several."""
    configs, visits = result.view.state.configs, result.view.visits
    unit: list[tuple[Config, Visit]] = []
    for at, visit in history(result.config(config).config, configs, visits, result.spec.plan):
        if unit:
            before = unit[-1][1]
            other = (visit.unit.config, visit.strategy) != (before.unit.config, before.strategy)
            if before.whole or other:
                yield unit
                unit = []
        unit.append((at, visit))
    if unit:
        yield unit


def _in_one_go(
    replayer: VisitReplayer,
    unit: Sequence[tuple[Config, Visit]],
    start: CheckpointRef | None,
    end: CheckpointRef,
    url: str,
) -> Iterator[Difference]:
    (first, _), (_, last) = unit[0], unit[-1]
    whole = replayer(first, last, start, url).visit.output
    if whole.digest != end.digest:
        yield Difference("state in parts and in one go", end.digest, whole.digest)


def _differences(visit: Visit, replayed: Visit) -> Iterator[Difference]:
    """The differences in the fields of a visit, except times and places."""
    values: dict[str, tuple[Any, Any]] = {
        "input": (_digest(visit.input), _digest(replayed.input)),
        "digest": (visit.output.digest, replayed.output.digest),
        "bytes": (visit.output.bytes, replayed.output.bytes),
        "samples": (visit.samples, replayed.samples),
        "batches": (visit.batches, replayed.batches),
        "whole": (visit.whole, replayed.whole),
        "done": (visit.done, replayed.done),
    }
    for name in sorted({*visit.metrics, *replayed.metrics}):
        values[f"metric {name}"] = (visit.metrics.get(name), replayed.metrics.get(name))
    for field, (ours, theirs) in values.items():
        if not _same(ours, theirs):
            yield Difference(field, ours, theirs)


def _rows(visit: Visit, replayed: Sequence[Mapping[str, Any]]) -> Iterator[Difference]:
    """The differences in the logged rows."""
    try:
        recorded = read_rows(visit.log) if visit.log is not None else []
    except (CerebroError, OSError, ValueError) as error:
        yield Difference("rows", f"unreadable ({error})", len(replayed))
        return
    if len(recorded) != len(replayed):
        yield Difference("rows", len(recorded), len(replayed))
    for number, (ours, theirs) in enumerate(zip(recorded, replayed, strict=False), start=1):
        for name in sorted({*ours, *theirs}):
            if not _same(ours.get(name), theirs.get(name)):
                yield Difference(f"row {number}, {name}", ours.get(name), theirs.get(name))


def _digest(ref: CheckpointRef | None) -> str | None:
    return ref.digest if ref is not None else None


def _same(ours: Any, theirs: Any) -> bool:
    """Whether two values are bit-identical; NaN equals NaN."""
    return bool(ours == theirs) or repr(ours) == repr(theirs)
