"""A run's history in a file: one event a line, in the store's order. ``verify``, ``replay`` and
``open_run`` read it when the store is gone."""

from __future__ import annotations

from pathlib import Path

from cerebro_elastic.core.codec import UnreadableValue, encode
from cerebro_elastic.core.events import Event, LeaderChanged, NodeJoined, RunOpened
from cerebro_elastic.core.state import State
from cerebro_elastic.errors import Compacted, RunError
from cerebro_elastic.store.history import decode_event
from cerebro_elastic.store.ledger import Ledger


class Journal:
    """Appends events to ``path``; each revision once, whoever writes and however often it restarts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _drop_torn_line(path)
        events = read_journal(path) if path.exists() else []
        self.revision = max((e.revision for e in events), default=0)

    def catch_up(self, ledger: Ledger, state: State, leader: int) -> None:
        """Add what happened between the last line and the election at revision ``leader``, whose
        controller took over at ``state``. Raises ``RunError`` if the store has forgotten it."""
        if not self.revision and not state.configs:
            self._begin(ledger, state)
            return
        try:
            with ledger.events(self.revision + 1) as stream:
                while self.revision < leader:
                    self.append(stream.next())
        except Compacted as exc:
            raise RunError(
                f"{self.path} ends at revision {self.revision}, and the store has compacted away what came "
                f"then until revision {leader}: the run cannot go on with a complete record; start another "
                "with --run-id, and let etcd keep its history longer (--auto-compaction-retention)"
            ) from exc

    def _begin(self, ledger: Ledger, state: State) -> None:
        """A run that was just opened: its plan and who is there. What the store may know from before,
        of nodes that came and went or a deleted run of the same id, is not its history."""
        spec = ledger.store.get(ledger.keys.spec)
        assert spec is not None
        assert state.plan is not None
        joined = [NodeJoined(node.registration, node) for node in state.nodes.values()]
        opened: list[Event] = [RunOpened(spec.mod_revision, state.plan), *joined]
        opened.sort(key=lambda event: event.revision)
        self.append([*opened, LeaderChanged(state.revision, state.leader)])

    def append(self, events: list[Event]) -> None:
        """Add the events of one revision, unless they are there already."""
        new = [e for e in events if e.revision > self.revision]
        if new:
            with self.path.open("a", encoding="utf-8") as file:
                file.writelines(encode(e) + "\n" for e in new)
            self.revision = new[-1].revision


def read_journal(path: Path) -> list[Event]:
    """All events in ``path``; ``RunError`` names the first line that is not one."""
    events = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as exc:
        raise RunError(f"{path} does not exist: this folder holds no run, or one that never began") from exc
    for number, line in enumerate(lines, start=1):
        try:
            events.append(decode_event(line))
        except UnreadableValue as exc:
            raise RunError(f"{path}:{number}: the history is damaged: {exc}") from exc
    return events


def _drop_torn_line(path: Path) -> None:
    """A power cut may leave half a line; the store still has the event, ``catch_up`` writes it anew."""
    if not path.exists():
        return
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        path.write_bytes(content[: content.rfind(b"\n") + 1])
