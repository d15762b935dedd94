"""A server of live pages in this process, and a live run that the test plays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from cerebro_elastic.core.history.progress import next_units, position
from cerebro_elastic.core.model.attempts import Attempt, Visit
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.front_end.live_page.access import Access
from cerebro_elastic.front_end.live_page.feeds import Places
from cerebro_elastic.front_end.live_page.serve import PageServer
from support.ledger import Leader, Ledger

TOKEN = "a-token-of-the-tests"
HOSTILE = "<img src=x onerror=\"document.title='hacked'\">"


@dataclass(frozen=True)
class Page:
    """Where a server listens."""

    port: int

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def url(self, path: str = "") -> str:
        return f"{self.origin}/{path}?token={TOKEN}"


@contextmanager
def served(places: Places, *, port: int = 0, read_only: bool = False) -> Iterator[Page]:
    """A server, as ``cerebro ui`` starts it; in a thread."""
    with closing(PageServer(places, Access(TOKEN, read_only=read_only), port)) as server:
        yield Page(server.port)


@dataclass
class LiveRun:
    """A run in the store; the test plays its leader and its node."""

    ledger: Ledger
    leader: Leader
    plan: Plan
    leader_lease: int

    @property
    def name(self) -> str:
        return self.plan.run

    def assign(self, config: str) -> Attempt:
        state = self.ledger.state()
        row = state.configs[config]
        unit = next_units(row, self.plan)[0]
        node = state.nodes["node-a"]
        self.leader.assign(Attempt(unit, node.name, node.registration, row.revision, input=row.head))
        attempt = self.ledger.assignment(node.name)
        assert attempt is not None
        return attempt

    def visit(self, config: str, accuracy: float, log: str | None = None) -> None:
        attempt = self.assign(config)
        row = self.ledger.state().configs[config]
        output = CheckpointRef(f"/states/{attempt.token}", str(attempt.token), 1000)
        done = Visit(
            unit=attempt.unit,
            index_in_epoch=position(row),
            node=attempt.node,
            attempt=attempt.token,
            input=row.head,
            output=output,
            samples=10,
            batches=1,
            seconds=1.0,
            hop_seconds=0.1,
            started=1_700_000_000.0 + 2 * attempt.token,
            metrics={"val_acc": accuracy},
            log=log,
        )
        assert self.ledger.commit(attempt, row, done, self.plan)
