"""Runs side by side: their differences and their results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.events import LeaderChanged
from cerebro_elastic.reporting.results import ConfigResult, leaderboard_records
from cerebro_elastic.runs.results.result import RunResult

Subject: TypeAlias = Literal["recipe", "data", "code", "versions", "result"]


@dataclass(frozen=True, slots=True)
class ComparedValue:
    """A value of each run."""

    subject: Subject
    name: str
    """A key of the recipe with dots, a file of the code, a package, or the name of the result."""
    values: tuple[Any, ...]
    """The value of each run, in their order; ``None`` if a run has none."""

    @property
    def same(self) -> bool:
        """Whether it is the same in all runs."""
        return all(value == self.values[0] for value in self.values)


@dataclass(frozen=True, slots=True)
class ComparedConfig:
    """Configs of several runs with the same hyper-parameters."""

    hparams: HParams
    values: tuple[float | None, ...]
    """The best value of the objective in each run; ``None`` without one."""
    same: bool
    """Whether each has a state, and these are bit for bit the same, as far as all runs have come."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs side by side.

    Example:
        >>> short = run("sweep.yaml", run_id="one-epoch", epochs=1)
        >>> comparison = Run.open("sweep").compare(Run.open("one-epoch"))
        >>> [(row.name, row.values) for row in comparison.rows if row.subject == "recipe"]
        [('epochs', (2, 1))]
        >>> [len(curve) for curve in comparison.curves]
        [2, 1]
    """

    runs: tuple[str, ...]
    rows: tuple[ComparedValue, ...]
    """All differing values of recipes, data, code and versions, and all values of the results."""
    metrics: tuple[str, ...]
    """The objective of each run. Values of different objectives cannot be compared."""
    curves: tuple[tuple[float | None, ...], ...]
    """For each run: the objective of its best config after each epoch."""
    configs: tuple[ComparedConfig, ...]
    """The configs common to two or more runs, by their hyper-parameters; none if the objectives differ."""


def compare(results: Sequence[RunResult]) -> Comparison:
    parts: Mapping[Subject, list[dict[str, Any]]] = {
        "recipe": [dict(_flat(result.spec.recipe)) for result in results],
        "data": [{"digest": result.spec.data_digest[:12]} for result in results],
        "code": [
            {"folder": result.spec.root, **{name: digest[:12] for name, digest in result.spec.code.items()}}
            for result in results
        ],
        "versions": [_versions(result) for result in results],
        "result": [_outcome(result) for result in results],
    }
    rows = [
        ComparedValue(subject, name, tuple(part.get(name) for part in of_runs))
        for subject, of_runs in parts.items()
        for name in dict.fromkeys(name for part in of_runs for name in part)
    ]
    return Comparison(
        tuple(result.run for result in results),
        tuple(row for row in rows if row.subject == "result" or not row.same),
        tuple(result.recipe.objective.metric for result in results),
        tuple(map(_curve, results)),
        _configs(results),
    )


def _configs(results: Sequence[RunResult]) -> tuple[ComparedConfig, ...]:
    """The configs common to several runs."""
    if len({(result.recipe.objective.metric, result.recipe.objective.mode) for result in results}) > 1:
        return ()
    rows: dict[str, list[ConfigResult | None]] = {}
    for place, result in enumerate(results):
        for row in result.leaderboard:
            found = rows.setdefault(json.dumps(dict(row.hparams), sort_keys=True), [None] * len(results))
            found[place] = found[place] or row
    shared = [(of, [row for row in of if row is not None]) for of in rows.values()]
    return tuple(
        ComparedConfig(some[0].hparams, tuple(None if row is None else row.best for row in of), _same(some))
        for of, some in shared
        if len(some) > 1
    )


def _same(rows: Sequence[ConfigResult]) -> bool:
    """Whether the states are the same as far as all have come: with several trainings, those of each. (The
    order in which they train differs between runs.)"""
    states = [
        {
            each.config.partition(".")[2]: [visit.output.digest for visit in each.visits]
            for each in row.trainings
            if each.visits
        }
        for row in rows
    ]
    common = set.intersection(*map(set, states))
    pairs = ((states[0][name], each[name]) for name in common for each in states)
    return bool(common) and all(one == other for pair in pairs for one, other in zip(*pair, strict=False))


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All values except the name, by their keys with dots."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        elif f"{prefix}{key}" != "name":
            yield f"{prefix}{key}", value


def _versions(result: RunResult) -> dict[str, str]:
    """The versions of the package and of the deciding packages, as last recorded."""
    versions: dict[str, str] = {"cerebro-elastic": result.spec.version}
    for event in result.events:
        if isinstance(event, LeaderChanged):
            versions |= event.versions
    return versions


def _outcome(result: RunResult) -> dict[str, Any]:
    view, board = result.view, result.leaderboard
    best = board[0] if board and board[0].best is not None else None
    metric = result.recipe.objective.metric
    first = leaderboard_records(board[:1], metric)
    return {
        f"best {metric}": None if best is None else best.best,
        "config": None if best is None else best.config,
        "epoch": first[0]["best_epoch"] if first else None,
        "hyper-parameters": None if best is None else dict(best.hparams),
        "configs": len(board),
        "failed": sum(row.status == "failed" for row in board),
        "units": len(view.log),
        "units taken over": len(view.log) - len(view.trained),
        "seconds of training": round(sum(visit.seconds for visit in view.trained), 1),
        "outcome": view.state.outcome,
    }


def _curve(result: RunResult) -> tuple[float | None, ...]:
    if not result.leaderboard:
        return ()
    return tuple(metrics.get(result.recipe.objective.metric) for metrics in result.leaderboard[0].curve)
