"""The history that a release has recorded is read, folded and decided as it was then."""

from __future__ import annotations

from pathlib import Path

import pytest

from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.state import State
from cerebro_elastic.simulation import redecide
from cerebro_elastic.store.ledger.journal import chain_digest, read_lines
from support.recorded_history import POLICY, RECORDS, SEARCH


@pytest.mark.parametrize("record", sorted(RECORDS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_a_recorded_history_is_read_folded_and_decided_again(record: Path) -> None:
    digest, state = "", State()
    lines = read_lines(record)
    for line in lines:
        assert encode(line.event) == line.body
        digest = chain_digest(digest, line.body)
        assert line.digest == digest
        state = fold(state, line.event)
    events = [line.event for line in lines]
    assert check(events) == []
    assert redecide(events, POLICY, SEARCH).explanation is None
    assert state.outcome is not None
    assert {config.status for config in state.configs.values()} <= {Status.FINISHED, Status.STOPPED}
