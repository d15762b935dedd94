"""When a run cannot go on: nobody is left who could do a unit."""

from __future__ import annotations

from cerebro_elastic.core.model.events import Event, NodeForgiven, NodeSetAside
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.start.agents import LocalAgents


class Judge:
    """Ends a run in which no node can work any more, by a ``RunError``: all are set aside, since this
    process began, for trouble of their own (a full disk); or ours have ended, and there is no other."""

    def __init__(self, agents: LocalAgents) -> None:
        self._agents = agents
        self._aside: dict[str, str] = {}

    def __call__(self, events: list[Event], state: State) -> None:
        for event in events:
            match event:
                case NodeSetAside(node=name) if name in state.streaks and state.streaks[name].kind.of_node:
                    self._aside[name] = state.streaks[name].story
                case NodeForgiven(node=name):
                    self._aside.pop(name, None)
        if state.nodes and state.nodes.keys() <= self._aside.keys():
            told = "\n".join(f"  {name}: {self._aside[name]}" for name in sorted(state.nodes))
            raise RunError(
                f"no node can work:\n{told}\n"
                "what was committed is safe: mend this, then the same command goes on"
            )
        if self._agents.gone and not state.nodes.keys() - self._agents.names:
            raise RunError(f"all nodes have ended: {self._agents.last_words()}")
