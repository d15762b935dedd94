"""Did the right nodes work on the right units, and for what time are they paid? Exclusive access,
non-preemption, fencing, paid time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from cerebro_elastic.core.invariants.trace import NodeRoster, Stretch, ended_tokens, in_words
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.events import (
    ConfigEnded,
    Event,
    NodeJoined,
    NodeLeft,
    ProfileDone,
    StayEnded,
    UnitAssigned,
    UnitCommitted,
    UnitFailed,
    UnitTrained,
    UnitWithdrawn,
)
from cerebro_elastic.core.model.units import Unit


def exclusive_access(stretch: Stretch) -> Iterator[str]:
    """A node trains at most one attempt at a time, and saves at most one more; at most one waits, behind an
    attempt of a single rank. A gang has as many nodes as its strategy takes, and all of them train its
    attempt alone."""
    assigned = {name: [attempt] for name, attempt in stretch.start.attempts.items()}
    for name, attempt in stretch.start.queued.items():
        assigned[name].append(attempt)
    saving = {name: attempt.token for name, attempt in stretch.start.saving.items()}
    for event in stretch.events:
        match event:
            case UnitAssigned(attempt=attempt):
                for name in sorted({*attempt.nodes}):
                    before = assigned.setdefault(name, [])
                    if (before or attempt.queued_behind) and not _may_follow(before, attempt):
                        yield (
                            f"node {name} got {in_words(attempt.unit)} at revision {event.revision} "
                            f"while {_tokens(before)} were open on it"
                        )
                    before.append(replace(attempt, token=event.revision))
                if len({*attempt.nodes}) != attempt.strategy.nodes:
                    yield f"{in_words(attempt.unit)} by {attempt.strategy} was given to {attempt.nodes}"
            case UnitTrained(node=name, token=trained):
                nodes = [n for n, attempts in assigned.items() if trained in _tokens(attempts)]
                if nodes != [name]:
                    yield f"node {name} reported attempt {trained}, which is open on {nodes}"
                if name in saving:
                    yield f"node {name} saves attempt {trained} while it saves attempt {saving[name]}"
                assigned = _without(assigned, (trained,))
                saving[name] = trained
            case _ if ended := ended_tokens(event):
                assigned = _without(assigned, ended)
                saving = {name: token for name, token in saving.items() if token not in ended}


def _may_follow(before: Sequence[Attempt], attempt: Attempt) -> bool:
    if len(before) != 1:
        return False
    ahead = before[0]
    queued = attempt.queued_behind == ahead.token and attempt.second_key != ahead.second_key
    return queued and ahead.may_queue and attempt.may_queue


def _tokens(attempts: Sequence[Attempt]) -> list[int]:
    return [attempt.token for attempt in attempts]


def _without(assigned: Mapping[str, Sequence[Attempt]], ended: Collection[int]) -> dict[str, list[Attempt]]:
    return {name: [a for a in attempts if a.token not in ended] for name, attempts in assigned.items()}


def non_preemption(stretch: Stretch) -> Iterator[str]:
    """A started unit is never stopped in favour of another unit.

    An assignment is withdrawn, or left before its end, only if the registration of one of its nodes is gone,
    if its config has ended or was restored since it began, or if one of its nodes must leave.
    """
    attempts = {attempt.token: attempt for attempt in stretch.start.underway()}
    withdrawable = {token for token, attempt in attempts.items() if not stretch.start.may_report(attempt)}
    roster = NodeRoster(stretch.start)
    for event in stretch.events:
        roster.read(event)
        match event:
            case UnitAssigned(attempt=attempt):
                attempts[event.revision] = attempt
            case ConfigEnded(config=name):
                withdrawable |= {token for token, attempt in attempts.items() if attempt.unit.config == name}
            case UnitCommitted(visit=visit) if not visit.whole and not roster.leaving & {*visit.nodes}:
                yield f"{in_words(visit.unit)} was left on {visit.node}, which nobody asked to leave"
            case UnitWithdrawn(token=token) if token in attempts:
                attempt = attempts.pop(token)
                stays = roster.may_report(attempt) and not roster.leaving & {*attempt.nodes}
                if stays and token not in withdrawable:
                    yield f"{in_words(attempt.unit)} was taken from {attempt.node} without need, {event}"


def fencing(stretch: Stretch) -> Iterator[str]:
    """An attempt cannot report anything once it was withdrawn or one of its nodes has lost its registration:
    no visit, no failure, no profile, no trained unit. Nodes that know the plan from before an extension get
    no units."""
    attempts = {attempt.token: attempt for attempt in stretch.start.underway()}
    roster = NodeRoster(stretch.start)
    for event in stretch.events:
        roster.read(event)
        ended = [attempts.pop(token, None) for token in ended_tokens(event)]
        attempt = ended[0] if len(ended) == 1 else None
        match event:
            case UnitAssigned(attempt=assigned):
                attempts[event.revision] = assigned
                for member in assigned.members:
                    if member.registration < roster.extended:
                        yield f"{member.node} got {in_words(assigned.unit)}, and knows the plan of before"
            case UnitTrained(node=name, token=token):
                trained = attempts.get(token)
                if trained is None or not roster.may_report(trained):
                    yield f"attempt {token} on {name} was trained, but is not open at {event.revision}"
            case UnitCommitted(visit=visit):
                yield from _unfenced(attempt, roster, visit.unit, visit.nodes, event)
            case UnitFailed(failure=failure):
                yield from _unfenced(attempt, roster, failure.unit, [failure.node], event)
            case ProfileDone(profile=profile):
                yield from _unfenced(attempt, roster, profile.unit, [profile.node], event)


def _unfenced(
    attempt: Attempt | None, roster: NodeRoster, unit: Unit, nodes: Sequence[str], event: Event
) -> Iterator[str]:
    if attempt is None or attempt.unit != unit or not {*nodes} <= {*attempt.nodes}:
        yield f"{in_words(unit)} on {', '.join(nodes)} had no open assignment at revision {event.revision}"
    elif not roster.may_report(attempt):
        gone = [m.node for m in attempt.members if roster.registrations.get(m.node) != m.registration]
        yield f"{in_words(unit)}: the registration of {', '.join(gone)} was gone at revision {event.revision}"


def paid_time(stretch: Stretch) -> Iterator[str]:
    """A node is paid from its registration on. The end of a stay is noted once, when the node is gone: not
    before the stay's start, and not after the last visit."""
    begun = {name: stay.joined for name, stay in stretch.start.stays.items() if stay.left is None}
    present = {node.name: node.joined for node in stretch.start.nodes.values()}
    last = stretch.start.usage.until
    for event in stretch.events:
        match event:
            case NodeJoined(node=node):
                present[node.name] = node.joined
                begun |= {f"{node.name}/{node.joined:.3f}": node.joined} if node.joined else {}
            case NodeLeft(node=name):
                present.pop(name, None)
            case UnitCommitted(visit=visit):
                last = max(last, visit.ended)
            case StayEnded(stay=name, left=left) if name not in begun:
                yield f"the stay {name} ended at {left}, but no such stay was open"
            case StayEnded(stay=name, left=left):
                joined = begun.pop(name)
                if present.get(name.rpartition("/")[0]) == joined:
                    yield f"the stay {name} ended while its node was registered"
                if not joined <= left <= max(joined, last):
                    yield f"the stay {name} ended at {left}, and the last visit at {last}"
