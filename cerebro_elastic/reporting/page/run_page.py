"""The content of a run's page, computed from its events one by one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import groupby, starmap
from pathlib import Path
from typing import Any

import yaml

from cerebro_elastic.core.history.estimates import begun_at
from cerebro_elastic.core.history.members import by_config, mean_curve, statuses
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.attempts import Attempt, Failure, Visit
from cerebro_elastic.core.model.best import epoch_ends
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import (
    ConfigCreated,
    ConfigEnded,
    ConfigResumed,
    Event,
    RunExtended,
)
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.core.model.state import Point
from cerebro_elastic.core.model.units import Measurement, Strategy
from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.recipes import Objective
from cerebro_elastic.recipes.search import flattened
from cerebro_elastic.reporting.budget import budget_outlook
from cerebro_elastic.reporting.gap import gap, search_end
from cerebro_elastic.reporting.page.board import Board
from cerebro_elastic.reporting.profiles import profile_rows
from cerebro_elastic.reporting.progress import seconds_left, unit_counts
from cerebro_elastic.reporting.results import ConfigResult, config_result, front, group_result, ranked
from cerebro_elastic.reporting.tables import (
    failure_texts,
    measured_by,
    measured_rows,
    resources_text,
    spread_text,
)
from cerebro_elastic.reporting.timeline import Span, Timeline
from cerebro_elastic.reporting.traffic import summarize_traffic
from cerebro_elastic.system.explanations import frames_first, shortened

_TOP = 5
"""The number of best configs to show in a list of runs."""
_MOST_MARKS = 300
_Cause = tuple[Config, Attempt | None, bool, tuple[Point, ...], str | None]


class RunPage(RunView):
    """The view of a run, which writes its changes to the ``board``."""

    def __init__(self, board: Board, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        self.plan = spec.plan
        self.objective = spec.objective
        self._end = search_end(spec.recipe)
        several = spec.recipe.get("search", {}).get("objectives") or ()
        self._objectives = [Objective.model_validate(each) for each in several]
        self.events: list[Event] = []
        self.results: dict[str, ConfigResult] = {}
        self._board = board
        self._groups: dict[str, Sequence[ConfigResult]] = {}
        self._causes: dict[str, _Cause] = {}
        self._decisions: dict[str, list[dict[str, Any]]] = {}
        self._first_seen: dict[int, float] = {}
        self._drawn: Sequence[Visit] = ()
        self._sent = 0

    def take(self, event: Event) -> list[tuple[int, Visit]]:
        added = super().take(event)
        self.events.append(event)
        self._note_decision(event)
        return added

    def _note_decision(self, event: Event) -> None:
        """Note decisions on configs: their authors and approximate times (the last visit's end)."""
        by_hand, noted = False, {}
        match event:
            case ConfigCreated():
                by_hand = event.by_hand
                noted = {config.id: ("created", config.reason) for config in event.configs}
            case ConfigEnded(config=name, status=status, reason=reason):
                why = "" if status is Status.FAILED else reason  # the page has the full reason
                by_hand, noted = event.by_hand, {name: (status.value, why)}
            case ConfigResumed(config=name, reason=reason):
                by_hand, noted = event.by_hand, {name: ("resumed", reason)}
            case RunExtended(extension=extension):
                why = f"by {extension.by}" if extension.by else ""
                text = f"to go on up to epoch {extension.epochs}"
                by_hand, noted = True, dict.fromkeys(extension.configs, (text, why))
        for name, (what, why) in noted.items():
            by = "a person" if by_hand else "the task" if what in ("failed", "finished") else "the search"
            row = {"what": what, "why": why, "by": by, "at": self.state.usage.until or None}
            self._decisions.setdefault(name, []).append(row)

    def publish(self, *, live: bool) -> None:
        """Write the changes. A run that is not live has no nodes, even if the record has some."""
        state = self.state
        if not live:
            state = replace(state, nodes={}, attempts={}, queued={}, saving={}, leader=None)
        running = {attempt.unit.config: attempt for attempt in state.underway()}
        groups = by_config(state.configs.values()) if self.plan.has_members else {}
        for config in state.configs.values():
            self._publish_config(config, running.get(config.id))
        for name, members in groups.items():
            self._publish_group(name, members)
        for kind in ("configs", "curves", "stories"):
            self._board.keep(kind, {*state.configs, *groups})
        for name, node in state.nodes.items():
            attempt, saved = state.attempts.get(name), state.saving.get(name)
            usage, quarantined = state.usage.nodes.get(name), state.quarantined.get(name)
            row = {
                "host": node.host,
                "hardware": node.hardware,
                "starting": node.starting,
                "leaving": node.drain is not None,
                "stalled": None if node.stalled is None else shortened(node.stalled.why),
                "quarantined": None if quarantined is None else shortened(quarantined),
                "unit": None if attempt is None else self._unit(attempt),
                "saves": None if saved is None else saved.unit.config,
                "takes": None if usage is None else resources_text(usage.resources),
            }
            self._board.put("nodes", name, row)
        self._board.keep("nodes", state.nodes)
        homes = {str(partition): names for partition, names in state.homes.items()}
        self._board.put("run", "homes", homes)
        self._board.put("run", "summary", self.summary(live=live))
        self._board.put("run", "front", self._front())
        self._board.put("run", "tests", list(starmap(_measured_row, measured_rows(state.measured))))

    def publish_spans(self) -> None:
        """Write the units done since the last call."""
        afresh = self.log is not self._drawn
        if afresh:
            self._drawn, self._sent = self.log, 0
        for visit in self.log[self._sent :]:
            for node in visit.nodes:
                self._board.put("spans", f"{visit.attempt} {node}", _visit_span(visit, node))
        self._sent = len(self.log)
        if afresh:
            self._board.keep(
                "spans", {f"{visit.attempt} {node}" for visit in self.log for node in visit.nodes}
            )

    def publish_details(self, line: Timeline, manifest: Manifest | None, logs: Path | None) -> None:
        """Write the values computed from the whole history: the nodes' use of their time (``line``), faults,
        bytes moved. They lag behind a long run by as much as they cost.

        Args:
            line: The run's timeline.
            manifest: The manifest of its dataset, if it can be read.
            logs: The folder of the nodes' logs, whose files failures name; ``None`` to name none.
        """
        self._publish_nodes(line)
        health = {
            "failures": list(failure_texts(self.state.configs.values(), logs)),
            "marks": [
                {"at": at, **asdict(mark), "text": shortened(mark.text)}
                for at, mark in line.marks[-_MOST_MARKS:]
            ],
            "faults": sum(mark.fault for _, mark in line.marks),
            "earlier": max(0, len(line.marks) - _MOST_MARKS),
        }
        self._board.put("run", "health", health)
        self._board.put("run", "traffic", asdict(summarize_traffic(self, manifest)))
        rows = profile_rows(self.state)
        strategies = [{**asdict(row), "refusal": row.refusal and shortened(row.refusal)} for row in rows]
        self._board.put("run", "strategies", strategies)

    def _publish_nodes(self, line: Timeline) -> None:
        """Write each node's use of its time, and attempts and quarantines for the chart."""
        for share in line.shares:
            node = self.nodes.get(share.node)
            hardware = {
                "host": node.host if node else "",
                "hardware": node.hardware if node else "",
                "devices": node.devices if node else (),
                "ranks": node.ranks if node else 0,
                "version": node.version if node else "",
            }
            self._board.put("shares", share.node, {**share.values(), **hardware})
        self._board.keep("shares", {share.node for share in line.shares})
        lost = [
            {
                "node": span.node,
                "config": span.unit.config,
                "begin": span.start,
                "end": span.end,
                "why": shortened(span.why),
                "lost": span.lost,
            }
            for span in line.spans
            if span.visit is None
        ]
        self._board.put("run", "lost", lost)
        self._board.put("run", "quarantines", [asdict(quarantine) for quarantine in line.quarantines])

    def _publish_config(self, config: Config, attempt: Attempt | None) -> None:
        """Write a config's row if its content has changed."""
        points = self.state.curves.get(config.id, ())
        last = self._last_node(config.id)
        queued = attempt is not None and self.state.is_queued(attempt)
        cause = (config, attempt, queued, points, last)
        known = self._causes.get(config.id)
        if known is not None and all(a is b for a, b in zip(cause, known, strict=True)):
            return
        self._causes[config.id] = cause
        result = self.results[config.id] = config_result(config, points, (), self.objective)
        self._board.put("configs", config.id, _config_row(config, result, attempt, queued, last, self.plan))
        self._board.put("stories", config.id, self._story(config))
        if known is None or known[3] is not points:
            self._board.put("curves", config.id, _curves(points))

    def _publish_group(self, name: str, members: Sequence[Config]) -> None:
        """Write the row of a config that has members, if a member's row has changed."""
        own = [self.results[config.id] for config in members]
        known = self._groups.get(name, ())
        if len(own) == len(known) and all(a is b for a, b in zip(own, known, strict=True)):
            return
        self._groups[name] = own
        curves = [self.state.curves.get(config.id, ()) for config in members]
        result = group_result(own, curves, self.plan, self.objective)
        self.results[name] = result
        means = mean_curve(curves, [True] * len(members))
        row = _config_row(members[0], result, None, False, None, self.plan) | {
            "status": result.status,
            "reason": result.reason,
            "epoch": min(config.epoch for config in members),
            "done": unit_counts(members, self.plan)[0] // len(members)
            if result.status is Status.LIVE
            else None,
            "metrics": result.curve[-1] if result.curve else {},
            "members": [config.id for config in members],
            "memberOf": None,
            "text": result.best_text,
            "spread": spread_text(result),
            "partial": result.partial,
        }
        self._board.put("configs", name, row)
        self._board.put("curves", name, _curves(means))
        self._board.put("stories", name, {"failures": [], "why": None, "decisions": []})

    def _story(self, config: Config) -> dict[str, Any]:
        """A config's failures, the user's line first, and the decisions on it."""
        failed = config.status is Status.FAILED
        return {
            "failures": [
                _failure(failure, failed and failure.story in config.reason) for failure in config.failures
            ],
            "why": frames_first(shortened(config.reason)) if failed else None,
            "decisions": self._decisions.get(config.id, []),
        }

    def _last_node(self, config: str) -> str | None:
        visits = self.visits.get(config)
        return visits[-1].node if visits else None

    def _unit(self, attempt: Attempt) -> dict[str, Any]:
        """An attempt in training: ``from`` is the node with the config's state; ``None`` for a new config."""
        began = begun_at(self.state, attempt)
        if began is None:  # the run's first units: the record has no time for them
            began = self._first_seen.setdefault(attempt.token, time.time())
        return {
            "config": attempt.unit.config,
            "epoch": attempt.unit.epoch + 1,
            "partition": attempt.unit.partition,
            "began": began,
            "expected": attempt.expected,
            "from": self._last_node(attempt.unit.config) if attempt.input is not None else None,
            "strategy": _strategy_text(attempt.strategy),
        }

    def ranked(self) -> list[ConfigResult]:
        """The configs that have a value of the objective, the best first."""
        names = by_config(self.state.configs.values())
        rows = [self.results[name] for name in names if name in self.results]
        return ranked(rows, self.objective.mode)

    def _front(self) -> dict[str, Any] | None:
        """With several objectives: their names and modes, and the configs of the front with their values."""
        if not self._objectives:
            return None
        names = [each.metric for each in self._objectives]
        rows = [
            {"config": row.config, "values": [row.curve[row.best_place][name] for name in names]}
            for row in front(self.ranked(), self._objectives)
            if row.best_place is not None
        ]
        return {"objectives": [[each.metric, each.mode] for each in self._objectives], "rows": rows}

    def summary(self, *, live: bool) -> dict[str, Any]:
        """The run's progress, in few values."""
        state, plan = self.state, self.plan
        forecast = gap(self.state, self._end)
        of_config = plan.epochs * (plan.trained + plan.evaluations)
        return {
            "run": plan.run,
            "live": live and state.outcome is None,
            "outcome": state.outcome,
            "leader": state.leader if live else None,
            "objective": [self.objective.metric, self.objective.mode],
            "configs": dict(statuses(state.configs.values())),
            "units": unit_counts(state.configs.values(), plan),
            "unitsOfConfig": of_config,
            "epochs": plan.epochs,
            "partitions": plan.partitions,
            "nodes": len(state.nodes) if live else 0,
            "busy": len(state.attempts) if live else 0,
            "began": state.usage.began,
            "until": state.usage.until,
            "gap": forecast and [forecast.forecast, forecast.bound, forecast.share],
            "left": seconds_left(state, self._end) if live else None,
            "budget": outlook.text if (outlook := budget_outlook(state, self._end)) else None,
            "best": [
                {"config": row.config, "best": row.best, "hparams": row.hparams}
                for row in self.ranked()[:_TOP]
            ],
        }

    def publish_recipe(self) -> None:
        """Write the constant values: the recipe, and the origin of everything."""
        spec = self.spec
        recipe = yaml.safe_dump(dict(spec.recipe), sort_keys=False, allow_unicode=True, width=100)
        self._board.put(
            "run",
            "spec",
            {
                "recipe": recipe,
                "logarithmic": _logarithmic(spec),
                "choices": _choices(spec),
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


def _logarithmic(spec: Spec) -> dict[str, bool]:
    """The hyper-parameters drawn from a range, and whether they are drawn by their logarithm."""
    domains = flattened(spec.space)
    ranges = {n: d for n, d in domains.items() if d.uniform is not None or d.loguniform is not None}
    return {name: domain.loguniform is not None for name, domain in ranges.items()}


def _choices(spec: Spec) -> dict[str, list[Any]]:
    """The hyper-parameters chosen from a list, with their choices."""
    return {
        name: list(domain.choice if domain.choice is not None else domain.branches or ())
        for name, domain in flattened(spec.space).items()
        if domain.choice is not None or domain.branches is not None
    }


def _config_row(
    config: Config,
    result: ConfigResult,
    attempt: Attempt | None,
    queued: bool,
    last_node: str | None,
    plan: Plan,
) -> dict[str, Any]:
    """A config's row of the leaderboard. Its attempt may be ``queued`` behind another one."""
    return {
        "hparams": config.hparams,
        "status": config.status,
        "reason": config.reason,
        "epoch": config.epoch,
        "done": unit_counts([config], plan)[0] if config.status is Status.LIVE else None,
        "best": result.best,
        "at": result.best_epoch,
        "metrics": config.metrics,
        "parent": config.parent.config if config.parent else None,
        "memberOf": config.member_of or None,
        "on": attempt.node if attempt else None,
        "saving": bool(attempt and attempt.trained),
        "queued": queued,
        "last": last_node,
    }


def _measured_row(name: str, metrics: dict[str, str], found: Measurement | None) -> dict[str, Any]:
    """A row of the table of the test set."""
    return {
        "config": name,
        "epoch": found.epoch if found else "",
        "rows": found.rows if found else 0,
        "metrics": metrics,
        "measured": measured_by(found) if found else "",
    }


def _failure(failure: Failure, final: bool) -> dict[str, Any]:
    """An attempt that failed; with the ``final`` one its config has failed. ``story`` is the whole text, if
    it is longer than the part shown first."""
    text = frames_first(shortened(failure.story))
    return {
        "kind": failure.kind.value.replace("-", " "),
        "node": failure.node,
        "unit": str(failure.unit),
        "text": text,
        "story": failure.story if len(failure.story) > len(text) else None,
        "final": final,
    }


def _curves(points: tuple[Point, ...]) -> dict[str, list[tuple[int, float]]]:
    """A config's curves by metric: epochs and the values at their ends."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for end in epoch_ends(points):
        for name, value in end.metrics.items():
            curves.setdefault(name, []).append((end.epochs, value))
    return curves


def _strategy_text(strategy: Strategy) -> str:
    return "" if strategy == Strategy() else str(strategy)


def _visit_span(visit: Visit, node: str) -> list[Any]:
    """A visit's bar in the chart of nodes: the values named by ``spans`` in ``model.js``. ``left`` is the
    number of batches after which the config left its partition, 0 if it trained all of them."""
    unit = visit.unit
    return [
        node,
        unit.config,
        unit.epoch + 1,
        unit.partition,
        unit.phase,
        round(visit.started, 3),
        round(visit.freed, 3),
        round(visit.seconds, 3),
        round(visit.hop_seconds, 3),
        round(visit.fetch_seconds, 3),
        round(visit.save_seconds, 3),
        _strategy_text(visit.strategy),
        0 if visit.whole else visit.skip + visit.batches,
    ]


def spans_together(line: Timeline, least_seconds: float) -> list[dict[str, Any]]:
    """The attempts of a timeline as bars. Neighbouring attempts that are together shorter than
    ``least_seconds`` share a bar; longer ones have separate bars."""
    return [
        {
            "node": spans[0].node,
            "config": spans[0].unit.config if len(configs) == 1 else "",
            "begin": spans[0].start,
            "end": max(span.end for span in spans),
            "attempts": len(spans),
            "configs": len(configs),
            "lost": any(span.lost for span in spans),
        }
        for node, own in groupby(line.spans, key=lambda span: span.node)
        for spans in _neighbours(own, least_seconds)
        for configs in [{span.unit.config for span in spans}]
    ]


def _neighbours(spans: Iterator[Span], least_seconds: float) -> Iterator[list[Span]]:
    together: list[Span] = []
    for span in spans:
        if together and span.end - together[0].start >= least_seconds:
            yield together
            together = []
        together.append(span)
    if together:
        yield together
