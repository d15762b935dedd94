"""What a run's page shows, computed from its events as they come."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import yaml

from cerebro_elastic.core.history.estimates import begun_at
from cerebro_elastic.core.history.lineage import in_order
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.attempts import Attempt, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.state import Point
from cerebro_elastic.recipes import Objective
from cerebro_elastic.reporting.progress import seconds_left, unit_counts
from cerebro_elastic.reporting.results import ConfigResult, config_result, ranked
from cerebro_elastic.ui.board import Board
from cerebro_elastic.ui.rows import config_row, curves_of, node_row, unit_under_way, visit_span

_TOP = 5
"""The number of best configs to show where many runs are."""
_Cause = tuple[Config, Attempt | None, bool, tuple[Point, ...], str | None]


class RunPage(RunView):
    """The view of a run, which writes what has changed to the ``board``."""

    def __init__(self, board: Board, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        self.plan = spec.plan
        self.objective = Objective.model_validate(spec.recipe.get("objective", {}))
        self.events: list[Event] = []
        self.results: dict[str, ConfigResult] = {}
        self._board = board
        self._causes: dict[str, _Cause] = {}
        self._first_seen: dict[int, float] = {}
        self._drawn: Sequence[Visit] = ()
        self._sent = 0

    def take(self, event: Event) -> list[tuple[int, Visit]]:
        """Take in the next event."""
        added = super().take(event)
        self.events.append(event)
        return added

    def publish(self, *, live: bool) -> None:
        """Write what has changed. In a run that is not live no node is there, whatever the record says."""
        state = self.state
        if not live:
            state = replace(state, nodes={}, attempts={}, queued={}, saving={}, leader=None)
        running = {attempt.unit.config: attempt for attempt in state.underway()}
        for config in state.configs.values():
            self._publish_config(config, running.get(config.id))
        self._board.keep("configs", state.configs)
        self._board.keep("curves", state.configs)
        for name, node in state.nodes.items():
            attempt = state.attempts.get(name)
            unit = None if attempt is None else self._unit(attempt)
            row = node_row(node, unit, state.saving.get(name), state.quarantined.get(name))
            self._board.put("nodes", name, row)
        self._board.keep("nodes", state.nodes)
        self._publish_spans()
        homes = {str(partition): names for partition, names in state.homes.items()}
        self._board.put("run", "homes", homes)
        self._board.put("run", "summary", self.summary(live=live))

    def _publish_config(self, config: Config, attempt: Attempt | None) -> None:
        """Write a config's row if something has changed that it shows."""
        points = self.state.curves.get(config.id, ())
        last = self._last_node(config.id)
        queued = attempt is not None and self.state.is_queued(attempt)
        cause = (config, attempt, queued, points, last)
        known = self._causes.get(config.id)
        if known is not None and all(a is b for a, b in zip(cause, known, strict=True)):
            return
        self._causes[config.id] = cause
        metric, mode = self.objective.metric, self.objective.mode
        result = self.results[config.id] = config_result(config, points, (), metric, mode)
        self._board.put("configs", config.id, config_row(config, result, attempt, queued, last, self.plan))
        if known is None or known[3] is not points:
            self._board.put("curves", config.id, curves_of(points))

    def _publish_spans(self) -> None:
        afresh = self.log is not self._drawn
        if afresh:
            self._drawn, self._sent = self.log, 0
        for visit in self.log[self._sent :]:
            for node in visit.nodes:
                self._board.put("spans", f"{visit.attempt} {node}", visit_span(visit, node))
        self._sent = len(self.log)
        if afresh:
            self._board.keep(
                "spans", {f"{visit.attempt} {node}" for visit in self.log for node in visit.nodes}
            )

    def _last_node(self, config: str) -> str | None:
        visits = self.visits.get(config)
        return visits[-1].node if visits else None

    def _unit(self, attempt: Attempt) -> dict[str, Any]:
        began = begun_at(self.state, attempt)
        if began is None:  # the run's first units: nothing in the record says when
            began = self._first_seen.setdefault(attempt.token, time.time())
        return unit_under_way(attempt, began, self._last_node(attempt.unit.config))

    def ranked(self) -> list[ConfigResult]:
        """The configs that have a value of the objective, the best first."""
        configs = in_order(self.state.configs.values())
        rows = [self.results[config.id] for config in configs if config.id in self.results]
        return ranked(rows, self.objective.mode)

    def summary(self, *, live: bool) -> dict[str, Any]:
        """How the run stands, in few values."""
        state, plan = self.state, self.plan
        of_config = plan.epochs * (plan.partitions + plan.evaluations)
        return {
            "run": plan.run,
            "live": live and state.outcome is None,
            "outcome": state.outcome,
            "leader": state.leader if live else None,
            "objective": [self.objective.metric, self.objective.mode],
            "configs": dict(Counter(config.status.value for config in state.configs.values())),
            "units": unit_counts(state.configs.values(), plan),
            "unitsOfConfig": of_config,
            "epochs": plan.epochs,
            "partitions": plan.partitions,
            "nodes": len(state.nodes) if live else 0,
            "busy": len(state.attempts) if live else 0,
            "began": state.usage.began,
            "until": state.usage.until,
            "left": seconds_left(state, plan) if live and state.plan else None,
            "best": [
                {"config": row.config, "best": row.best, "hparams": row.hparams}
                for row in self.ranked()[:_TOP]
            ],
        }

    def publish_recipe(self) -> None:
        """Write what never changes: the recipe, and where everything comes from."""
        spec = self.spec
        recipe = yaml.safe_dump(dict(spec.recipe), sort_keys=False, allow_unicode=True, width=100)
        self._board.put(
            "run",
            "spec",
            {
                "recipe": recipe,
                "seed": spec.plan.seed,
                "digest": spec.recipe_digest,
                "data": spec.data,
                "dataDigest": spec.data_digest,
                "root": spec.root,
                "code": spec.code,
                "storage": spec.storage,
                "version": spec.version,
            },
        )
