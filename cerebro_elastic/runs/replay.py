"""Replay: a config trained again, alone and in order, from its visit log; and the invariants, checked
over the recorded history."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cerebro_elastic.core.events import Event
from cerebro_elastic.core.invariants import Violation, check
from cerebro_elastic.core.lineage import history
from cerebro_elastic.core.machine import fold
from cerebro_elastic.core.ports import Policy
from cerebro_elastic.core.state import State
from cerebro_elastic.core.values import CheckpointRef, Config, Visit
from cerebro_elastic.errors import (
    CheckpointError,
    IllegalEvent,
    MissingExtra,
    RecipeError,
    SearchError,
    TaskError,
)
from cerebro_elastic.registry import load
from cerebro_elastic.report.results import gather
from cerebro_elastic.runs.part import make_search
from cerebro_elastic.runs.result import RunResult, check_here
from cerebro_elastic.scratch import Scratch
from cerebro_elastic.sim import Redecided, redecide


@dataclass(frozen=True, slots=True)
class ReplayedVisit:
    """A visit done again: ``digest`` is the new one, equal to the recorded one if all is well."""

    visit: Visit
    digest: str

    @property
    def same(self) -> bool:
        return self.digest == self.visit.output.digest


def replay(result: RunResult, config: str) -> Iterator[ReplayedVisit]:
    """Train ``config`` from its beginning on this machine, in the order of its visits (imports torch); one
    that began with another's checkpoint, from that one's beginning; one that began with a checkpoint from
    outside the run, from there. Each unit is trained by the choice by which it was; several ranks are
    processes of their own.

    Nothing of the recorded states is used: each unit continues from the one replayed before. A unit that was
    split is done in one go: it makes the same state.
    """
    from cerebro_elastic.worker.again import Again

    check_here(result, modules=result.spec.root, data=result.spec.data)
    with (
        Scratch("replay") as scratch,
        Again(result.spec, _cache(result, scratch.path)) as again,
    ):
        head: CheckpointRef | None = None
        for number, (at, visit) in enumerate(_in_one_go(result, config)):
            head = again(at, visit, head if number else at.head, str(scratch.path / str(number)))
            yield ReplayedVisit(visit, head.digest)


def _cache(result: RunResult, scratch: Path) -> Path:
    """The machine's, if it took part in the run."""
    return result.folder.cache if result.folder.spec.exists() else scratch / "cache"


def _in_one_go(result: RunResult, config: str) -> Iterator[tuple[Config, Visit]]:
    """The visits that led to where ``config`` is, without those that the next one takes up by the same
    choice: a unit begins where its first part did."""
    state, visits = gather(result.events)
    steps = history(result.config(config).config, state.configs, visits, result.spec.plan)
    first: Config | None = None
    for place, (at, visit) in enumerate(steps):
        first = first or at
        follows = steps[place + 1][1] if place + 1 < len(steps) else None
        if visit.whole or (follows is not None and not _takes_up(follows, visit)):
            yield first, visit
            first = None


def _takes_up(visit: Visit, part: Visit) -> bool:
    return (visit.unit.config, visit.choice) == (part.unit.config, part.choice)


def verify(result: RunResult, say: Callable[[str], None] = lambda _text: None) -> list[Violation]:
    """The invariants that the recorded history or the checkpoints at rest break (imports torch)."""
    check_here(result, checkpoints=result.spec.storage)
    say("reading the history")
    events = list(result.events)
    violations = list(_foldable(events))
    say("reading the checkpoints")
    sound = not violations
    violations += check(events, readable=lambda ref: _readable(ref) or (sound and _given_up(result, ref)))
    if not any(violation.invariant == "history" for violation in violations):
        violations += _best_readable(result)
    return violations


def decided_again(result: RunResult, seconds: float) -> Redecided | None:
    """Whether the recorded decisions follow from the record alone: by the recipe's scheduler and search, as
    they are now. At most about so many ``seconds``; ``None`` if the history is not sound, or if what decides
    cannot be had here."""
    events, until = list(result.events), time.monotonic() + seconds
    if any(_foldable(events)):
        return None
    try:
        policy: Policy = load("cerebro.schedulers", result.recipe.scheduler)()
        return redecide(events, policy, make_search(result.recipe), lambda: time.monotonic() > until)
    except (MissingExtra, RecipeError, SearchError, TaskError):
        return None


def _foldable(events: list[Event]) -> Iterator[Violation]:
    """The machine's own opinion: is each event possible where it stands?"""
    state = State()
    for event in events:
        try:
            state = fold(state, event)
        except (IllegalEvent, KeyError) as error:
            yield Violation("history", str(error))
            return


def _readable(ref: CheckpointRef) -> bool:
    from cerebro_elastic import checkpoint

    try:
        checkpoint.verify(ref)
    except CheckpointError:
        return False
    return True


def _given_up(result: RunResult, ref: CheckpointRef) -> bool:
    """Whether the run, which may go on while it is verified, keeps this checkpoint no more."""
    rows = result.now().leaderboard
    return all(ref not in (row.checkpoint, row.best_checkpoint) for row in rows)


def _best_readable(result: RunResult) -> Iterator[Violation]:
    """The leaderboard promises each config's best state, too."""
    for row in result.leaderboard:
        best = row.best_checkpoint
        if best is not None and best != row.checkpoint and not (_readable(best) or _given_up(result, best)):
            yield Violation(
                "durability", f"{row.config}: its best checkpoint {best.url} cannot be read whole"
            )
