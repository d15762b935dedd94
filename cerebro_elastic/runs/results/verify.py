"""``cerebro verify``: checks that a run's record is unchanged and possible, and that reports, curves and
exported models agree with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cerebro_elastic.config import DECIDING_SECONDS
from cerebro_elastic.core.invariants import Violation, check
from cerebro_elastic.core.model.events import ConfigMeasured, Event, LeaderChanged, RunExtended
from cerebro_elastic.core.model.interfaces import Policy
from cerebro_elastic.core.model.origin import Origin
from cerebro_elastic.core.model.reuse import FOLDER
from cerebro_elastic.core.model.run import Spec, specs_of
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.errors import (
    CheckpointError,
    DamagedCheckpoint,
    IllegalEvent,
    MissingExtra,
    PrunedCheckpoint,
    RecipeError,
    RunError,
    SearchError,
    TaskError,
)
from cerebro_elastic.registry import load
from cerebro_elastic.runs.from_recipe import make_search
from cerebro_elastic.runs.results import output_checks, record_chain, record_checks
from cerebro_elastic.runs.results.record_checks import Manifests, Note
from cerebro_elastic.runs.results.report import manifest_of
from cerebro_elastic.runs.results.result import RunResult, check_here, check_search
from cerebro_elastic.runs.versions import DECIDING, deciding
from cerebro_elastic.simulation import Redecision, redecide
from cerebro_elastic.system.words import counted, option
from cerebro_elastic.worker.rendezvous.compatibility import changed_code


def verify(
    result: RunResult,
    *,
    head: str | None = None,
    export: str | Path | None = None,
    seconds: float = DECIDING_SECONDS,
    say: Callable[[str], None] = lambda _text: None,
) -> list[Violation]:
    """``Run.verify``, of a ``result``."""
    check_here(result, checkpoints=result.spec.storage)
    findings = list(_findings(result, head, Path(export) if export is not None else None, seconds))
    for finding in findings:
        if isinstance(finding, Note):
            say(finding.story)
    return [finding for finding in findings if isinstance(finding, Violation)]


def redecide_run(result: RunResult, seconds: float) -> Redecision | None:
    """Make the recorded decisions again from the record alone, with the present code of the recipe's
    scheduler and search, for at most about ``seconds`` seconds. ``None`` if the history is not sound, or if
    scheduler or search are not installed here. Raises ``RunError`` as ``check_search``."""
    events, until = result.events, time.monotonic() + seconds
    if any(_foldable(result)):
        return None
    check_search(result)
    try:
        policy: Policy = load("cerebro.schedulers", result.recipe.scheduler)()
        searches = [make_search(each.load_recipe()) for each in specs_of(result.spec)]
        return redecide(events, policy, searches[-1], lambda: time.monotonic() > until, searches[:-1])
    except (MissingExtra, RecipeError, SearchError, TaskError):
        return None


def _findings(
    result: RunResult, head: str | None, export: Path | None, seconds: float
) -> Iterator[Violation | Note]:
    spec, events = result.spec, result.events
    impossible = list(_foldable(result))
    yield from impossible
    manifests = _manifests(spec)
    own = {name: found for name, found in manifests.items() if not name.startswith(FOLDER)}
    origins = [found.origin for found in own.values() if not isinstance(found, DamagedCheckpoint)]
    pruned: dict[str, str] = {}
    yield from check(
        events,
        readable=lambda ref: _readable(ref, pruned) or (not impossible and _given_up(result, ref, origins)),
    )
    yield from _chain(result, head)
    if impossible:
        return  # an impossible history has no decisions
    yield from _heads(result, own)
    yield from _best_readable(result, origins, pruned)
    if pruned:
        yield Note(
            f"{counted(len(pruned), 'checkpoint')} that the run had kept cannot be compared with the record: "
            f"{next(iter(pruned.values()))}"
        )
    manifest = manifest_of(spec)
    yield from record_checks.check_history(events)
    yield from _looks(events)
    yield from record_checks.check_spec(spec, result.recipe, result.view, events)
    yield from record_checks.check_data(spec, result.recipe, manifest, result.view)
    yield from record_checks.check_shards(spec, manifest, result.view)
    yield from record_checks.check_rows(result.view)
    yield from record_checks.check_manifests(spec, result.view, events, manifests)
    if result.store is None:
        yield from output_checks.check_curves(result)
        yield from output_checks.check_report(result)
    if export is not None:
        yield from output_checks.check_export(result, export)
    yield from _decisions(result, seconds)


def _looks(events: Sequence[Event]) -> Iterator[Note]:
    """A look at the test set before an extension: the person who extended the run may have known the
    values."""
    kinds = [type(event) for event in events]
    if ConfigMeasured in kinds and RunExtended in kinds[kinds.index(ConfigMeasured) :]:
        yield Note(
            "the test set was looked at before the run was extended: what was trained since then is measured "
            "too well, if the values were known to whoever extended it"
        )


def _chain(result: RunResult, head: str | None) -> Iterator[Violation | Note]:
    if result.store is not None:
        yield Note(
            "this is the store's record, which bears no digests: those of the machines that took part do"
        )
    else:
        yield from (Violation("record", story) for story in record_chain.chain(result.lines))
    if head is not None:
        place = result.line_of(head)
        if place is None:
            yield Violation(
                "record",
                f"no line of it has the head {head}: it was changed since you noted that, or you noted it on "
                "another machine before that one or this one had seen a unit assigned",
            )
        else:
            yield Note(f"it continues from the head {head[:16]}: line {place} of {len(result.lines)}")


def _heads(result: RunResult, manifests: Manifests) -> Iterator[Violation | Note]:
    """Check the heads. If the store was rewound, only those of the visits' checkpoints: others bear tokens of
    attempts that the store has lost."""
    wrong, uncovered = record_chain.assignments(result.lines)
    yield from (Violation("record", story) for story in wrong)
    if uncovered and result.store is None:
        yield Note(
            f"{', '.join(uncovered)} of the record: no head that was noted later in it covers them, for "
            "another machine led then, or the state was read afresh"
        )
    if record_chain.rewound(result.events):
        urls = {visit.output.url for visit in result.view.log}
        prefix = f"{result.spec.storage}/checkpoints/"
        manifests = {name: found for name, found in manifests.items() if prefix + name in urls}
    whole = (found for found in manifests.values() if not isinstance(found, DamagedCheckpoint))
    known = [found.origin for found in whole if found.origin is not None]
    late = any(origin.attempt > result.events[-1].revision for origin in known)
    grows = late and len(result.now().events) > len(result.events)
    yield from (
        Violation("record", story) for story in record_chain.checkpoints(result.lines, known, grows=grows)
    )


def _decisions(result: RunResult, seconds: float) -> Iterator[Violation | Note]:
    """Decisions that do not follow from the record. With the same scheduler and search they are forged."""
    try:
        again = redecide_run(result, seconds)
    except RunError as error:
        yield Note(f"its decisions were not made again: {error}")
        return
    if again is None:
        yield Note("its decisions were not made again: what decided is not to be had here")
    elif again.explanation is None:
        rest = f"; {option('all', 'seconds=math.inf')} makes all" if again.matched < again.total else ""
        yield Note(f"{again.matched} of {counted(again.total, 'decision')} made again, all the same{rest}")
    else:
        story = (
            f"of {counted(again.total, 'decision')} {again.matched} are the same when made again, and then "
            f"comes another one: {again.explanation}"
        )
        why = _other_deciders(result)
        yield Violation("decisions", story) if why is None else Note(f"{why}: {story}")


def _other_deciders(result: RunResult) -> str | None:
    """Why decisions here may differ from those in the run; ``None`` without a reason."""
    leaders = [event.versions for event in result.events if isinstance(event, LeaderChanged)]
    here, recorded = deciding(result.recipe), list(filter(None, leaders))
    if not recorded:
        return "the record does not say by which versions of packages it was decided"
    differ = sorted(
        {
            f"{name} {versions.get(name, '(none)')} decided, here is {here.get(name, '(none)')}"
            for versions in recorded
            for name in {*DECIDING, *here}
            if versions.get(name) != here.get(name)
        }
    )
    differ += [f"{name} is not as it was" for name in changed_code(result.spec)]
    return "; ".join(differ) or None


def _foldable(result: RunResult) -> Iterator[Violation]:
    """Check that each event is possible at its place."""
    try:
        _ = result.view
    except (IllegalEvent, KeyError) as error:
        yield Violation("history", str(error))


def _manifests(spec: Spec) -> Manifests:
    from cerebro_elastic.hop import checkpoint

    return dict(checkpoint.manifests(f"{spec.storage}/checkpoints"))


def _readable(ref: CheckpointRef, pruned: dict[str, str]) -> bool:
    """Whether the checkpoint is whole, or was removed by a person: then it is noted as ``pruned``."""
    from cerebro_elastic.hop import checkpoint

    try:
        checkpoint.verify(ref)
    except PrunedCheckpoint as error:
        pruned[ref.url] = str(error)
    except CheckpointError:
        return False
    return True


def _given_up(result: RunResult, ref: CheckpointRef, origins: Sequence[Origin | None]) -> bool:
    """Whether the run, which may be live, no longer keeps this checkpoint. If this machine has left the run,
    only later checkpoints show that."""
    rows = result.now().trainings
    config = next((row.config for row in rows if ref in (row.checkpoint, row.best_checkpoint)), None)
    return config is None or any(
        origin is not None and origin.unit.config == config and origin.attempt > result.events[-1].revision
        for origin in origins
    )


def _best_readable(
    result: RunResult, origins: Sequence[Origin | None], pruned: dict[str, str]
) -> Iterator[Violation]:
    """Each config's best state must be readable, too."""
    for row in result.trainings:
        best = row.best_checkpoint
        if (
            best is not None
            and best != row.checkpoint
            and not (_readable(best, pruned) or _given_up(result, best, origins))
        ):
            yield Violation(
                "durability", f"{row.config}: its best checkpoint {best.url} cannot be read whole"
            )
