"""A record that takes long to read is shown as far as it is read."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import ConfigCreated, RunOpened
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.front_end.live_page import feeds as module
from cerebro_elastic.front_end.live_page.feeds import Feed, Places
from cerebro_elastic.reporting.page.board import Board
from cerebro_elastic.store.ledger.journal import Journal
from support.waiting import SOON


def test_the_first_look_shows_what_is_read_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEP", 2)
    monkeypatch.setattr(module, "_FIRST", 0.0)
    written: list[tuple[str, str, Any]] = []
    put = Board.put

    def noting(board: Board, section: str, key: str, value: Any) -> None:
        written.append((section, key, value))
        put(board, section, key, value)

    monkeypatch.setattr(Board, "put", noting)
    plan = Plan("long", 1, 1)
    folder = tmp_path / "long"
    folder.mkdir()
    (folder / "spec.json").write_text(encode(Spec(plan, {}, "", "", "", str(tmp_path), {}, "", "0")))
    configs = (ConfigCreated(2 + i, Config(f"c{i}", {"lr": 0.1})) for i in range(5))
    Journal(folder / "history.jsonl").append([RunOpened(1, plan), *configs])
    with closing(Feed(Places(tmp_path).find("long"))) as feed:
        until = time.monotonic() + SOON
        while not any(key == "connection" and value["state"] == "record" for _, key, value in written):
            assert time.monotonic() < until, written
            time.sleep(0.01)
        assert not feed.reading
    reading = next(at for at, (_, key, value) in enumerate(written) if key == "connection")
    assert written[reading][2]["state"] == "reading"
    first_rows = {key for section, key, _ in written[:reading] if section == "configs"}
    assert first_rows == {"c0"}
    assert {key for section, key, _ in written if section == "configs"} == {f"c{i}" for i in range(5)}
