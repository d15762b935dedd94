"""The records of two machines of which one takes the lead over from the other: each can be held against the
heads that both have noted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.events import Event, LeaderChanged, NodeDraining, StateRead, UnitAssigned
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import RecordHead, Unit
from cerebro_elastic.runs.results import record_chain
from cerebro_elastic.store.ledger.journal import Journal, Line, chained, read_lines

JOINED, TAKES_OVER, COMES_BACK, END = 5, 20, 30, 40


def history(journals: dict[str, Journal]) -> Iterator[Event]:
    """One leads, another joins at ``JOINED``, takes over, and gives the lead back."""
    leader = "one"
    for revision in range(2, END):
        head = journals[leader].head
        if revision in (2, TAKES_OVER, COMES_BACK):
            leader = "two" if revision == TAKES_OVER else "one"
            yield LeaderChanged(revision, leader, record=journals[leader].head)
        elif revision in (TAKES_OVER - 1, COMES_BACK - 1):
            yield LeaderChanged(revision, None)
        elif revision % 3 == 0:
            yield UnitAssigned(revision, Attempt(Unit("c", 0, 0), "n", 1, 1, record=head))
        else:
            yield NodeDraining(revision, "n", 30.0)


@pytest.fixture
def records(tmp_path: Path) -> dict[str, list[Line]]:
    journals = {name: Journal(tmp_path / name) for name in ("one", "two")}
    journals["one"].resume(StateRead(1, State(revision=1)))
    for event in history(journals):
        if event.revision == JOINED:
            journals["two"].resume(StateRead(JOINED - 1, State(revision=JOINED - 1)))
        for journal in journals.values():
            if journal:
                journal.append([event])
    return {name: read_lines(journal.path) for name, journal in journals.items()}


def test_both_records_hold_against_their_heads(records: dict[str, list[Line]]) -> None:
    for lines in records.values():
        assert not list(record_chain.chain(lines))
        wrong, uncovered = record_chain.assignments(lines)
        assert not wrong
        # Between the last head of who led before and the first of who leads now, if that is another's.
        here = "one" if lines is records["one"] else "two"
        assert uncovered == {"one": ["lines 18 to 19"], "two": ["lines 1 to 2", "lines 24 to 26"]}[here]


@pytest.mark.parametrize("at", [10, 25, 35])
def test_a_takeover_that_never_was_hides_no_line(records: dict[str, list[Line]], at: int) -> None:
    """Whoever puts one in before a line has no head from which the lines behind it lead to the next."""
    lines = records["one"]
    place = next(n for n, line in enumerate(lines) if line.event.revision == at)
    revision = lines[place - 1].event.revision
    for head in (RecordHead(revision, "0" * 64), RecordHead(revision, lines[place - 1].digest)):
        events = [line.event for line in lines]
        events[place:place] = [LeaderChanged(revision, "nobody", record=head)]
        assert record_chain.assignments(chained(events))[0]


def test_a_state_may_be_read_that_the_leader_has_not_heard_of(tmp_path: Path) -> None:
    """It then decides by an earlier one, as over a bad network, and its assignment bears an earlier head."""
    one, two = Journal(tmp_path / "one"), Journal(tmp_path / "two")
    one.resume(StateRead(1, State(revision=1)))
    one.append([LeaderChanged(2, "one", record=one.head)])
    behind = one.head
    one.append([NodeDraining(3, "n", 30.0)])
    two.resume(StateRead(3, State(revision=3)))
    for revision in range(4, 12):
        head = behind if revision == 4 else one.head
        assigned = UnitAssigned(revision, Attempt(Unit("c", 0, 0), "n", 1, 1, record=head))
        for journal in (one, two):
            journal.append([assigned if revision % 3 == 1 else NodeDraining(revision, "n", 30.0)])
    lines = {journal: read_lines(journal.path) for journal in (one, two)}
    assert record_chain.assignments(lines[one]) == ([], [])
    assert record_chain.assignments(lines[two]) == ([], ["lines 1 to 4"])
    assert record_chain.heads(lines[two]).last == lines[one][-1].digest
    forged = forge(lines[two], 6, NodeDraining(9, "another", 30.0))
    assert record_chain.assignments(forged)[0]


@pytest.mark.parametrize("until", [12, TAKES_OVER + 5, COMES_BACK + 5, END])
def test_all_machines_have_the_head_of_the_leaders_record(records: dict[str, list[Line]], until: int) -> None:
    """Whoever leads, from the first assignment on; and each machine's record is held against it."""
    upto = {name: [line for line in lines if line.event.revision < until] for name, lines in records.items()}
    one, two = (record_chain.heads(upto[name]) for name in ("one", "two"))
    leader = "two" if TAKES_OVER < until <= COMES_BACK else "one"
    assert one.last == two.last == upto[leader][-1].digest
    for name, lines in records.items():
        assert record_chain.heads(lines).lines[one.last] == len(upto[name])


def forge(lines: list[Line], number: int, event: Event) -> list[Line]:
    return chained([event if n == number else line.event for n, line in enumerate(lines, 1)])
