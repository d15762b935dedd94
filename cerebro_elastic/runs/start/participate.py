"""Lets a machine take part in a live run: with nodes, and as a candidate for the lead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.controller.candidate import Candidate, Host
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.interfaces import Policy
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import CerebroError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.registry import load
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.from_recipe import make_search
from cerebro_elastic.runs.live import Watcher
from cerebro_elastic.runs.logging.loggers import Loggers
from cerebro_elastic.runs.start.agents import LocalAgents
from cerebro_elastic.runs.versions import deciding
from cerebro_elastic.store.ledger.journal import Journal
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.departure import interrupts_at_rest
from cerebro_elastic.system.files import write_text

_END_SECONDS = 20.0
"""Ranks take seconds to end: they have torch to unload."""


def take_part(
    record: Record,
    recipe: Recipe,
    journal: Journal,
    agents: LocalAgents,
    loggers: Loggers,
    watcher: Watcher,
    stop_condition: Callable[[list[Event], State], None],
) -> None:
    """Take part until the run has ended: keep this machine's nodes working, and lead whenever elected.

    ``stop_condition`` is called after each event and about twice a second; this machine stops taking part
    when it raises, and on Ctrl-C and SIGTERM. The ``journal`` also records what the nodes do while they are
    stopped.
    """
    with interrupts_at_rest(agents.grace) as look:

        def observe(events: list[Event], state: State) -> None:
            agents.observe(events)
            watcher.show(events, state)
            look()
            stop_condition(events, state)

        def pause(state: State) -> None:
            agents.keep()
            watcher.show([], state)
            look()
            stop_condition([], state)

        policy: Policy = load("cerebro.schedulers", recipe.scheduler)()
        candidate = Candidate(
            record,
            policy,
            make_search(recipe),
            journal,
            Host(observe=observe, say=watcher.say, pause=pause),
            versions=deciding(recipe),
        )
        with loggers.written(record, candidate, watcher.say):
            try:
                with agents:
                    candidate.run()
                    agents.wait(_END_SECONDS)
            except BaseException:  # Ctrl-C, too
                with suppress(CerebroError):  # such as one more DiskFull
                    candidate.catch_up()
                raise


@contextmanager
def publish_endpoint(folder: RunFolder, settings: StoreSettings) -> Iterator[None]:
    """Write the endpoint of the run's store to the folder, as long as this machine takes part."""
    write_text(folder.endpoint, ",".join(settings.endpoints))
    try:
        yield
    finally:
        folder.endpoint.unlink(missing_ok=True)
