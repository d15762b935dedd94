"""Checks that the parts of a run's record agree: spec, history, data, checkpoints, and the logged rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

from cerebro_elastic.core.invariants import Violation
from cerebro_elastic.core.invariants.trace import in_words
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.events import (
    ConfigCreated,
    ConfigEnded,
    ConfigResumed,
    Event,
    HomesAssigned,
    LeaderChanged,
    ProfileDone,
    RunEnded,
    RunOpened,
    StateRead,
    UnitAssigned,
    UnitCommitted,
)
from cerebro_elastic.core.model.origin import Origin, basis_of, origin_of
from cerebro_elastic.core.model.run import Basis, Plan, Spec
from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.data.batches import batch_count
from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.errors import CerebroError
from cerebro_elastic.files import content, locate
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.parallelism import AUTO
from cerebro_elastic.reporting.results import gather
from cerebro_elastic.runs.from_recipe import batches_in, plan_of
from cerebro_elastic.words import counted


@dataclass(frozen=True, slots=True)
class Note:
    """A remark about a record that is no violation."""

    story: str
    """The note in words."""


def check_spec(spec: Spec, recipe: Recipe, events: Sequence[Event]) -> Iterator[Violation | Note]:
    """Check the spec against the history and itself: the plan follows from the recipe, and each leader has
    led by this very spec."""
    for plan in _plans(events):
        yield from _differ("spec", "the plan in the spec and the one in the history", spec.plan, plan)
    follows = plan_of(recipe, spec.plan.run, spec.plan.partitions, spec.plan.evaluations)
    if recipe.parallelism == AUTO:  # as installed then
        follows = replace(follows, strategies=spec.plan.strategies)
    if recipe.progress is None:  # as the default was then
        follows = replace(follows, progress=spec.plan.progress)
    yield from _differ("spec", "the plan in the spec and what its recipe makes of it", spec.plan, follows)
    has_warm_start = recipe.search.start is not None or recipe.search.known
    digest = hashlib.sha256(json.dumps(dict(spec.recipe), sort_keys=True).encode()).hexdigest()
    if not has_warm_start and spec.recipe_digest not in ("", digest):
        yield Violation("spec", f"its recipe has digest {digest}, it was given with {spec.recipe_digest}")
    leaders = [event for event in events if isinstance(event, LeaderChanged) and event.basis is not None]
    if not leaders:
        yield Note("the record does not say by which spec its leaders led: it is of an earlier version")
        return
    ours = basis_of(spec)
    codes = {event.basis.code for event in leaders if event.basis is not None}
    if ours.code not in codes:
        yield Violation("spec", "the users' code in the spec is not that by which anybody led the run")
    for event in leaders:
        assert event.basis is not None
        if replace(event.basis, code=ours.code) != ours:
            yield Violation(
                "spec",
                f"{event.leader} led by {_of(event.basis)} at revision {event.revision}, not {_of(ours)}",
            )


def check_history(events: Sequence[Event]) -> Iterator[Violation | Note]:
    """Check the history against itself, where the machine that folds it takes any event: nothing is trained
    or decided after the run's end, and a state that was read afresh has the visits on record before it. (It
    may lack some if the store was restored from a snapshot.)"""
    visits: dict[str, Visit] = {}
    ended = False
    for number, event in enumerate(events, start=1):
        match event:
            case StateRead(state=state, visits=read):
                read_visits = {_key(visit): visit for visit in read}
                lost = sum(read_visits.get(key) != visit for key, visit in visits.items())
                if number > 1:
                    yield Note(
                        f"line {number}: the state was read afresh, for the store had forgotten its history "
                        f"or was restored; {counted(lost, 'visit')} of before not in it"
                    )
                visits, ended = read_visits, state.outcome is not None
            case UnitCommitted(visit=visit):
                visits[_key(visit)] = visit
        if ended and isinstance(event, _OVER):
            yield Violation("history", f"line {number}: {type(event).__name__} comes after the run's end")
        ended = ended or isinstance(event, RunEnded)


_OVER = (
    ConfigCreated,
    ConfigEnded,
    ConfigResumed,
    UnitAssigned,
    UnitCommitted,
    ProfileDone,
    HomesAssigned,
    RunEnded,
)
"""What does not happen in a run that has ended. (Nodes leave then, and give back what they have.)"""


def _key(visit: Visit) -> str:
    return f"{visit.unit.config} {visit.unit.epoch} {visit.k}"


def check_data(
    spec: Spec, recipe: Recipe, manifest: Manifest | None, events: Sequence[Event]
) -> Iterator[Violation | Note]:
    """Check the visits against the dataset: the number of samples and batches of each partition."""
    if manifest is None or manifest.digest != spec.data_digest:
        why = "are not in reach" if manifest is None else "are others now"
        yield Note(f"the data at {spec.data} {why}: what visits say of samples and batches was not compared")
        return
    state, visits = gather(events)
    plan, train = spec.plan, len(manifest.train)
    evaluations = len(manifest.valid) if plan.evaluations else 0
    if (train, evaluations) != (plan.partitions, plan.evaluations):
        yield Violation("data", f"they have {train} and {evaluations} partitions, the plan says {plan}")
        return
    for visit in chain.from_iterable(visits.values()):
        unit = visit.unit
        partitions = manifest.valid if unit.phase is Phase.EVALUATE else manifest.train
        rows = partitions[unit.partition].rows
        size, drop_last = batches_in(recipe, manifest, state.configs[unit.config].hparams)
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


def check_rows(events: Sequence[Event]) -> Iterator[Violation | Note]:
    """Check the rows that tasks logged against the visits that name them."""
    unknown = 0
    for visit in chain.from_iterable(gather(events)[1].values()):
        if visit.log is None or not visit.log_digest:
            unknown += visit.log is not None
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
    if unknown:
        yield Note(f"{counted(unknown, 'file')} of logged rows cannot be checked: of an earlier version")


def check_origins(
    spec: Spec, events: Sequence[Event], origins: Mapping[str, Origin | None]
) -> Iterator[Violation | Note]:
    """Check the origins that the checkpoints at rest bear against the visits that wrote them. ``origins`` has
    them by the checkpoints' names. A checkpoint whose assignment has a head must bear one."""
    state, visits = gather(events)
    assigned = {e.revision for e in events if isinstance(e, UnitAssigned) and e.attempt.record is not None}
    silent = made_again = 0
    prefix = f"{spec.storage}/checkpoints/"
    basis = basis_of(spec)
    known = {basis.code, *_codes(events)}
    for visit in chain.from_iterable(visits.values()):
        name = visit.output.url.removeprefix(prefix)
        if not visit.output.url.startswith(prefix) and visit.unit.phase is not Phase.EVALUATE:
            yield Violation("checkpoints", f"{visit.output.url} of {in_words(visit.unit)} is not in {prefix}")
        if visit.unit.phase is Phase.EVALUATE or name not in origins:
            continue
        origin = origins[name]
        if origin is None:
            silent += 1
            if visit.attempt in assigned:
                yield Violation("checkpoints", f"{visit.output.url} does not say where it comes from")
            continue
        made_again += visit.attempt in assigned and origin.record is None
        hparams = state.configs[visit.unit.config].hparams
        expected = origin_of(replace(basis, code=origin.basis.code), hparams, visit, origin.record)
        if origin.basis.code not in known:
            yield Violation("checkpoints", f"{visit.output.url} was made by code that is not on record")
        what = f"what {visit.output.url} says of {in_words(visit.unit)} and what is on record"
        yield from _differ("checkpoints", what, origin, expected)
    if silent:
        what = counted(silent, "checkpoint")
        yield Note(f"{what} without a word of where it comes from, as earlier versions wrote them")
    if made_again:
        yield Note(
            f"{counted(made_again, 'checkpoint')} made again after damage, without a head of the record in it"
        )


def _codes(events: Sequence[Event]) -> set[str]:
    return {e.basis.code for e in events if isinstance(e, LeaderChanged) and e.basis is not None}


def _plans(events: Sequence[Event]) -> Iterator[Plan]:
    for event in events:
        match event:
            case RunOpened(plan=plan):
                yield plan
            case StateRead(state=state) if state.plan is not None:
                yield state.plan


def _of(basis: Basis) -> str:
    return f"the spec {basis.spec[:16]} of run {basis.run!r}"


def _differ(invariant: str, what: str, one: Any, other: Any) -> Iterator[Violation]:
    """The fields of two values of a kind that differ."""
    for field in fields(one):
        ours, theirs = getattr(one, field.name), getattr(other, field.name)
        if ours != theirs and repr(ours) != repr(theirs):  # NaN is NaN
            yield Violation(invariant, f"{what} differ in {field.name}: {ours} and {theirs}")
