"""Checks that the parts of a run's record agree: spec, history, data, checkpoints, and the logged rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.invariants import Violation
from cerebro_elastic.core.invariants.trace import in_words
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.events import (
    ConfigCreated,
    ConfigEnded,
    ConfigResumed,
    Event,
    HomesAssigned,
    LeaderChanged,
    ProfileDone,
    RunEnded,
    UnitAssigned,
    UnitCommitted,
    UnitsReused,
)
from cerebro_elastic.core.model.origin import Origin, basis_of, origin_of
from cerebro_elastic.core.model.run import Spec, specs_of
from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.data.made_partition import recorded
from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.data.reading.batches import batch_count
from cerebro_elastic.data.shard import changed_shards
from cerebro_elastic.errors import CerebroError, DamagedCheckpoint
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.parallelism import AUTO
from cerebro_elastic.runs.from_recipe import batches_in, plan_of
from cerebro_elastic.system.files import content, locate
from cerebro_elastic.system.words import counted

if TYPE_CHECKING:
    from cerebro_elastic.hop import checkpoint

Manifests: TypeAlias = "Mapping[str, checkpoint.Manifest | DamagedCheckpoint]"
"""The checkpoints at rest, by their names: their manifests, or why they are not as written."""


@dataclass(frozen=True, slots=True)
class Note:
    """A remark about a record that is not a violation."""

    story: str


def check_spec(
    spec: Spec, recipe: Recipe, view: RunView, events: Sequence[Event]
) -> Iterator[Violation | Note]:
    """Check the spec against the history and itself: the plan follows from the recipe, each leader has led by
    this very spec, or by one from before an extension, and each extension is in the history."""
    specs = specs_of(spec)
    for _, plan, extension in view.plans:
        number = extension.number if extension is not None else 0
        if number < len(specs):
            what = "the plan in the spec and the one in the history"
            yield from _differ("spec", what, specs[number].plan, plan)
    yield from _check_extensions(spec, view)
    for each in specs:
        yield from _check_recipe(each, recipe if each is spec else each.load_recipe())
    leaders = [event for event in events if isinstance(event, LeaderChanged) and event.basis is not None]
    if not leaders:
        yield Note(
            "the record begins after the election of its leader: by which spec that led is not checked"
        )
        return
    ours = basis_of(spec)
    codes = {event.basis.code for event in leaders if event.basis is not None}
    if ours.code not in codes:
        yield Violation("spec", "the users' code in the spec is not that by which anybody led the run")
    for event in leaders:
        assert event.basis is not None
        right = replace(basis_of(specs[_extended_by(view, event.revision, spec)]), code=ours.code)
        if replace(event.basis, code=ours.code) != right:
            led, due = (f"the spec {b.spec[:16]} of run {b.run!r}" for b in (event.basis, right))
            yield Violation("spec", f"{event.leader} led by {led} at revision {event.revision}, not {due}")


def _check_recipe(spec: Spec, recipe: Recipe) -> Iterator[Violation]:
    """Check that plan and digest of a spec follow from its recipe."""
    follows = plan_of(recipe, spec.plan.run, spec.plan.partitions, spec.plan.evaluations)
    if recipe.parallelism == AUTO:  # as installed at that time
        follows = replace(follows, strategies=spec.plan.strategies)
    if recipe.progress is None:  # as the default was at that time
        follows = replace(follows, progress=spec.plan.progress)
    if recipe.search.concurrency is None and not recipe.has_members:
        begun, first = spec.plan.begun_per_node, spec.plan.finishes_first
        follows = replace(follows, begun_per_node=begun, finishes_first=first)
    yield from _differ("spec", "the plan in the spec and what its recipe makes of it", spec.plan, follows)
    has_warm_start = recipe.search.start is not None or recipe.search.known
    digest = hashlib.sha256(json.dumps(dict(spec.recipe), sort_keys=True).encode()).hexdigest()
    if not has_warm_start and spec.recipe_digest not in ("", digest):
        yield Violation("spec", f"its recipe has digest {digest}, it was given with {spec.recipe_digest}")


def _check_extensions(spec: Spec, view: RunView) -> Iterator[Violation | Note]:
    """Check that the extensions in the spec are those in the history. The last one may be still to come."""
    known = [extension for *_, extension in view.plans if extension is not None]
    for extension in known:
        if extension not in spec.extensions:
            yield Violation(
                "spec", f"it does not have the extension of the history to {extension.epochs} epochs"
            )
    last = max((extension.number for extension in known), default=0)
    if last < len(spec.extensions):
        yield Note(f"the run is to continue to {counted(spec.plan.epochs, 'epoch')}, and has not begun to")


def _extended_by(view: RunView, revision: int, spec: Spec) -> int:
    """The number of the run's extensions before this revision."""
    numbers = [extension.number for at, _, extension in view.plans if extension is not None and at < revision]
    return min(numbers[-1] if numbers else 0, len(spec.extensions))


def check_history(events: Sequence[Event]) -> Iterator[Violation | Note]:
    """Check the history against itself where the fold accepts any event: nothing is trained or decided after
    the run's end, and a state read afresh has the visits recorded before it. (It may lack some if the store
    was restored from a snapshot.)"""
    view = RunView()
    for number, event in enumerate(events, start=1):
        if view.state.outcome is not None and isinstance(event, _OVER):
            yield Violation("history", f"line {number}: {type(event).__name__} comes after the run's end")
        before = view.log
        view.take(event)
        if view.log is not before and number > 1:
            lost = len(before) - sum(visit in view.visits.get(visit.unit.config, ()) for visit in before)
            yield Note(
                f"line {number}: the state was read afresh, for the store had forgotten its history "
                f"or was restored; {counted(lost, 'visit')} of before not in it"
            )


_OVER = (
    ConfigCreated,
    ConfigEnded,
    ConfigResumed,
    UnitAssigned,
    UnitCommitted,
    UnitsReused,
    ProfileDone,
    HomesAssigned,
    RunEnded,
)
"""Events that an ended run does not have. (Nodes leave then, and give back their units.)"""


def check_data(
    spec: Spec, recipe: Recipe, manifest: Manifest | None, view: RunView
) -> Iterator[Violation | Note]:
    """Check the visits against the dataset: the number of samples and batches of each partition."""
    if manifest is None or manifest.digest != spec.data_digest:
        why = "are not in reach" if manifest is None else "are others now"
        yield Note(f"the data at {spec.data} {why}: what visits say of samples and batches was not compared")
        return
    plan, train = spec.plan, len(manifest.train)
    valid = manifest.train if plan.folds else manifest.valid
    evaluations = len(valid) // (plan.folds or 1) if plan.evaluations else 0
    if (train, evaluations) != (plan.partitions, plan.evaluations):
        yield Violation("data", f"they have {train} and {evaluations} partitions, the plan says {plan}")
        return
    for visit in view.log:
        unit = visit.unit
        partitions = valid if unit.phase is Phase.EVALUATE else manifest.train
        rows = partitions[unit.partition].rows
        size, drop_last = batches_in(recipe, manifest, view.state.configs[unit.config].hparams)
        end = visit.skip + visit.batches
        samples = min(rows, end * size) - min(rows, visit.skip * size)
        whole = batch_count(rows, size, drop_last and unit.phase is not Phase.EVALUATE)
        batches = whole - visit.skip if visit.whole else visit.batches
        if (visit.samples, visit.batches) != (samples, batches):
            yield Violation(
                "data",
                f"{in_words(unit)} says that it had {visit.samples} samples in {visit.batches} batches; of "
                f"the partition's {rows} rows these are {samples} in {batches}",
            )


def check_shards(spec: Spec, manifest: Manifest | None, view: RunView) -> Iterator[Violation | Note]:
    """Check the shards read by visits: the first host has recorded them, and they are unchanged."""
    if manifest is None or not manifest.shards:
        return
    trained = {visit.unit.partition for visit in view.trained if visit.unit.phase is not Phase.EVALUATE}
    for index in sorted(trained):
        if recorded(spec.data, "train", index) is None:
            yield Violation(
                "data",
                f"partition {index} was trained on, and nothing at {spec.data} says what its shards held",
            )
    try:
        for problem in changed_shards(manifest.shards):
            yield Note(f"{problem}. What is not in a cache cannot be replayed")
    except CerebroError as error:
        yield Note(f"the shards were not looked at: {error}")


def check_rows(view: RunView) -> Iterator[Violation]:
    """Check the rows logged by tasks against the visits that name them."""
    for visit in view.log:
        if visit.log is None:
            continue
        try:
            digest = content(locate(visit.log)).sha256
        except (CerebroError, OSError) as error:
            yield Violation("rows", f"{in_words(visit.unit)}: its rows cannot be read: {error}")
            continue
        if digest != visit.log_digest:
            yield Violation(
                "rows",
                f"{in_words(visit.unit)}: {visit.log} has sha256 {digest}, it was committed with "
                f"{visit.log_digest}",
            )


def check_manifests(
    spec: Spec, view: RunView, events: Sequence[Event], manifests: Manifests
) -> Iterator[Violation | Note]:
    """Check the manifests of the checkpoints at rest: each is as it was written, and has the digest and the
    origin of the visit that wrote the checkpoint."""
    assigned = {e.revision for e in events if isinstance(e, UnitAssigned) and e.attempt.record is not None}
    made_again = 0
    prefix = f"{spec.storage}/checkpoints/"
    bases = [basis_of(each) for each in specs_of(spec)]
    leaders = [event.basis for event in events if isinstance(event, LeaderChanged)]
    known = {bases[-1].code, *(basis.code for basis in leaders if basis is not None)}
    for visit in view.log:
        name = visit.output.url.removeprefix(prefix)
        if not visit.output.url.startswith(prefix) and visit.unit.phase is not Phase.EVALUATE:
            yield Violation("checkpoints", f"{visit.output.url} of {in_words(visit.unit)} is not in {prefix}")
        manifest = manifests.get(name)
        if visit.unit.phase is Phase.EVALUATE or manifest is None or isinstance(manifest, DamagedCheckpoint):
            continue
        if manifest.digest != visit.output.digest:
            yield Violation(
                "checkpoints", f"{visit.output.url} is not the one that {in_words(visit.unit)} wrote"
            )
        origin = manifest.origin
        if origin is None:
            yield Violation("checkpoints", f"{visit.output.url} does not say where it comes from")
            continue
        if visit.reused:
            yield from _check_reused(spec, visit, view.state.configs[visit.unit.config].hparams, origin)
            continue
        made_again += visit.attempt in assigned and origin.record is None
        hparams = view.state.configs[visit.unit.config].hparams
        basis = bases[_extended_by(view, visit.attempt, spec)]
        if origin.record is None and origin.basis.spec in [later.spec for later in bases]:
            basis = origin.basis  # it was remade, perhaps after an extension
        expected = origin_of(replace(basis, code=origin.basis.code), hparams, visit, origin.record)
        if origin.basis.code not in known:
            yield Violation("checkpoints", f"{visit.output.url} was made by code that is not on record")
        what = f"what {visit.output.url} says of {in_words(visit.unit)} and what is on record"
        yield from _differ("checkpoints", what, origin, expected)
    for damage in manifests.values():
        if isinstance(damage, DamagedCheckpoint):
            yield Violation("checkpoints", str(damage))
    if made_again:
        yield Note(
            f"{counted(made_again, 'checkpoint')} made again after damage, without a head of the record in it"
        )


def _check_reused(spec: Spec, visit: Visit, hparams: HParams, origin: Origin) -> Iterator[Violation]:
    """Check the origin of a checkpoint that an earlier run made: the same unit of an equal config. (One
    remade after damage is of this run.)"""
    if origin.basis.run not in (visit.reused, spec.plan.run):
        yield Violation(
            "checkpoints", f"{visit.output.url} is of run {origin.basis.run!r}, not {visit.reused!r}"
        )
    theirs = replace(visit, unit=replace(visit.unit, config=origin.unit.config), attempt=origin.attempt)
    what = f"what {visit.output.url} says of {in_words(visit.unit)} and what is on record"
    yield from _differ("checkpoints", what, origin, origin_of(origin.basis, hparams, theirs, origin.record))


def _differ(invariant: str, what: str, one: Any, other: Any) -> Iterator[Violation]:
    """The differing fields of two values of a kind."""
    for field in fields(one):
        ours, theirs = getattr(one, field.name), getattr(other, field.name)
        if ours != theirs and repr(ours) != repr(theirs):  # NaN is NaN
            yield Violation(invariant, f"{what} differ in {field.name}: {ours} and {theirs}")
