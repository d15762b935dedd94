"""A run's record that grows, with the rows that its visits logged, and the election of its leader."""

from __future__ import annotations

import json
from pathlib import Path

from cerebro_elastic.controller.candidate import Candidate, Host
from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.model import events as ev
from cerebro_elastic.core.model.attempts import Attempt, Visit
from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import CheckpointRef, Unit
from cerebro_elastic.reporting.logged import Logger
from cerebro_elastic.runs.logging.log_forwarder import FileLogPosition, LogForwarder, LogPosition
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from cerebro_elastic.store.client.base import Store
from cerebro_elastic.store.ledger.journal import Journal, chain_digest, with_digest
from support.ledger import Ledger
from support.world import FixedSearch

HPARAMS = {"lr": 0.1, "act": "relu", "layers": [8, 8]}


class Record:
    """A run's record that grows, and the rows beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.history = folder / "history.jsonl"
        self._digest = ""
        self.revision = 1
        self.state = State()
        self.said: list[str] = []
        self.tell(ev.RunOpened(self.next(), Plan("r", 2, 4, max_nodes=2)))
        for name in ("n0", "n1"):
            self.tell(ev.NodeJoined(self.next(), Node(name, "host", registration=self.revision)))

    def next(self) -> int:
        self.revision += 1
        return self.revision

    def tell(self, event: ev.Event) -> None:
        self.state = fold(self.state, event)
        with self.history.open("a") as file:
            file.write(self.line(event))

    def line(self, event: ev.Event) -> str:
        """The next line of the record."""
        self._digest = chain_digest(self._digest, encode(event))
        return with_digest(encode(event), self._digest) + "\n"

    def create(self, *names: str) -> None:
        for name in names:
            self.tell(ev.ConfigCreated(self.next(), Config(name, HPARAMS)))

    def visit(self, config: str, place: int, rows: int = 2) -> Visit:
        """The ``place``-th visit of a config logs ``rows`` rows, one for each step."""
        log = self.folder / f"{config}-{place}.jsonl"
        steps = range(place * rows, (place + 1) * rows)
        logged = [{"step": s, "epoch": place // 2, "loss": 1 / (1 + s)} for s in steps]
        log.write_text("".join(json.dumps(row) + "\n" for row in logged))
        ref = CheckpointRef("/a", "d", 1)
        at = 1000.0 + place
        unit, head = Unit(config, place // 2, place % 2), self.state.configs[config].head
        return Visit(
            unit, place % 2, f"n{place % 2}", self.revision, head, ref, 1, 1, 0.8, 0.2, at, log=str(log)
        )

    def assign(self, config: str, place: int) -> None:
        row, node = self.state.configs[config], self.state.nodes[f"n{place % 2}"]
        unit = Unit(config, place // 2, place % 2)
        attempt = Attempt(unit, node.name, node.registration, row.revision, row.head)
        self.tell(ev.UnitAssigned(self.next(), attempt))

    def commit(self, config: str, place: int) -> Visit:
        self.assign(config, place)
        visit = self.visit(config, place)
        self.tell(ev.UnitCommitted(self.next(), visit))
        return visit

    def scribe(self, logger: Logger, note: LogPosition | None = None) -> LogForwarder:
        note = note or FileLogPosition(self.folder / "logged.json")
        return LogForwarder(self.history, "kept", logger, note, self.said.append)


class Election:
    """Candidates who keep the same record, one of whom leads."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.ledger = Ledger(store, "r")
        self._folder = folder
        self._lease = 0

    def candidate(self, name: str) -> Candidate:
        journal = Journal(self._folder / f"{name}.jsonl")
        made = Candidate(self.ledger, LongestRemaining(), FixedSearch([]), journal, Host(), name=name)
        made.state = State(leader=name)  # as when it was elected
        return made

    def elect(self, name: str) -> None:
        if self._lease:
            self.ledger.store.revoke(self._lease)
        self._lease = self.ledger.store.grant(60)
        assert self.ledger.lead(name, self._lease) is not None
