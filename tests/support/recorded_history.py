"""Records the history of this release: ``PYTHONPATH=tests .venv/bin/python -m support.recorded_history``.

Real ledger and controller, a search and people that do a bit of everything, nodes that come, fail, stall and
go. Only training is replaced. Record it again when a release is made; a former file stays as it is.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from cerebro_elastic.core.model.attempts import FailureKind
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.nodes import Stall
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from cerebro_elastic.store.ledger.journal import Journal
from cerebro_elastic.system.version import __version__
from support.world import RestlessSearch, World

RECORDS = Path(__file__).parents[1] / "simulation" / "records"
POLICY = LongestRemaining()
SEARCH = RestlessSearch([{"lr": 0.1 * (i + 1)} for i in range(3)])


def history() -> list[Event]:
    """The events of a run; the same each time."""
    strategies = (Strategy(), Strategy("ddp", 2))
    world = World(Plan("recorded", 3, 2, strategies=strategies), 3, POLICY, search=RestlessSearch, heads=True)
    world.elect()
    world.join("a", starting=True)
    world.join("b")
    world.ready("a", [0, 1])
    for moment in range(24):
        world.pass_time(10.0)
        for _ in range(4):
            world.control()
        for name in ("a", "b"):
            world.start(name)
        match moment:
            case 3:
                world.fail(0)
            case 4:
                world.fail(0, FailureKind.STORAGE)
            case 5:
                world.refuse(0)
            case 7:
                world.ledger.report_stall("b", "", Stall(10.0, "no progress"))
            case 8:
                world.ledger.report_stall("b", "", None)
                world.stop(0)
            case 9:
                world.clone(1)
                world.drain("b")
                world.split(0, 1)
            case 10:
                world.resume(0)
            case 11:
                world.lose("b")
                world.elect()
            case 12:
                world.join("b")
            case 14:
                world.stop(1)
            case _:
                for which in range(len(world.workers)):
                    world.trained(which)
        if moment not in (11, 14):  # what goes on there loses its node or its config
            while world.workers:
                world.commit(0)
    assert world.finish(["a", "b"], 200)
    world.extend(1, 0)
    world.elect()
    world.join("a")
    while all(config.status is not Status.FAILED for config in world.ledger.state().configs.values()):
        world.pass_time(10.0)
        world.control()
        world.start("a")
        while world.workers:
            world.fail(0, FailureKind.NOT_FINITE)
    assert world.finish(["a", "b"], 200)
    world.extend(0, 0)
    assert world.finish(["a", "b"], 200)
    assert world.check() == []
    return world.trace()


def main() -> None:
    """Write the history as a candidate would."""
    path = RECORDS / f"history-{__version__}.jsonl"
    path.unlink(missing_ok=True)
    journal = Journal(path)
    for _, events in groupby(history(), key=lambda event: event.revision):
        journal.append(list(events))


if __name__ == "__main__":
    main()
