"""A run's results, read from its history: as objects, and as tables for other programs, also as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.history.members import (
    by_config,
    came_to,
    deviation,
    first_members,
    half_interval,
    mean_curve,
    status_of,
)
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.best import best_end, epoch_ends, loss, ranking
from cerebro_elastic.core.model.configs import Config, HParams, Status
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import Point, State
from cerebro_elastic.core.model.units import CheckpointRef, Measurement
from cerebro_elastic.errors import did_you_mean
from cerebro_elastic.recipes import Objective
from cerebro_elastic.system.files import write_text
from cerebro_elastic.system.words import number

_FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
"""The first characters of formulas; the last four are full-width."""


@dataclass(frozen=True, slots=True, repr=False)
class ConfigResult:
    """The results of one config.

    Example:
        >>> row = Run.open("sweep").result.config("c0000")
        >>> row.status, len(row.curve), len(row.visits)
        (<Status.FINISHED: 'finished'>, 2, 4)
        >>> row.best == dict(row.values("val_acc"))[row.best_epoch]
        True
    """

    config: str
    hparams: HParams
    status: Status
    """Whether it is live, finished, stopped or failed."""
    reason: str
    """Why it was stopped or has failed; empty otherwise."""
    curve: Sequence[Mapping[str, float]]
    """The metrics of each full epoch of the config itself."""
    visits: Sequence[Visit]
    """Its committed units, in the order of their commits."""
    best_place: int | None = None
    """The index in ``curve`` of the epoch with the best value of the objective, the first of equals; ``None``
    without a finite value within its constraints."""
    best: float | None = None
    """That value."""
    checkpoint: CheckpointRef | None = None
    """The last committed state."""
    best_checkpoint: CheckpointRef | None = None
    """The state at the end of the best epoch."""
    behind: int = 0
    """The number of its parent's epochs when it began."""
    members: Sequence[ConfigResult] = ()
    """Its trainings, if it has several: on folds, or with several seeds. Then ``curve`` has their means (over
    those that have begun; one that is behind counts with its last epoch), ``visits`` are those of all, and
    each has its own checkpoints."""
    scores: Sequence[float] = ()
    """The value of each begun training at the best epoch: ``best`` is their mean."""
    std: float | None = None
    """The standard deviation of ``scores`` (with n - 1); ``None`` for fewer than two."""
    interval: float | None = None
    """Half the 95 % interval of their mean, by Student's t; for folds, which share training rows, with the
    correction of Nadeau and Bengio (2003)."""
    partial: bool = False
    """Fewer than all of its first trainings have a value: it ranks below configs where all have one."""
    test: Measurement | None = None
    """The measurement of this state on the test set; ``None`` without one."""

    def __repr__(self) -> str:
        hparams = " ".join(f"{name}={value}" for name, value in self.hparams.items())
        best = "" if self.best_epoch is None else f", best {self.best_text} in epoch {self.best_epoch}"
        return f"<ConfigResult {self.config} {hparams}: {self.status}{best}>"

    @property
    def best_text(self) -> str:
        """The best value for people: ``0.9123``, or ``0.9123 ± 0.0041 (5)`` with the standard deviation and
        number of its trainings; empty without one."""
        if self.best is None:
            return ""
        std = "" if self.std is None else f" ± {self.std:.2g}"
        missing = f" of {len(self.members)}" if self.partial else ""
        return f"{number(self.best)}{std}" + (f" ({len(self.scores)}{missing})" if self.members else "")

    @property
    def trainings(self) -> Sequence[ConfigResult]:
        """Its trainings: its members, else itself."""
        return self.members or (self,)

    @property
    def epochs(self) -> int:
        """The number of its full epochs, its parent's included."""
        return self.behind + len(self.curve)

    @property
    def best_epoch(self) -> int | None:
        """The number of the best epoch, from 1, its parent's counted."""
        return None if self.best_place is None else self.behind + self.best_place + 1

    def values(self, metric: str) -> list[tuple[int, float]]:
        """By the number of the epoch, counted like ``best_epoch``: the value of ``metric``, if it was
        logged."""
        numbered = enumerate(self.curve, start=self.behind + 1)
        return [(number, metrics[metric]) for number, metrics in numbered if metric in metrics]


def logged_metrics(rows: Iterable[ConfigResult]) -> list[str]:
    """The names of the metrics of all epochs, sorted."""
    return sorted({name for row in rows for metrics in row.curve for name in metrics})


def why_no_value(metric: str, rows: Iterable[ConfigResult]) -> str:
    """Why no config has a value of the ``metric`` by which it could be compared."""
    logged = logged_metrics(rows)
    if metric in logged:
        return "it was NaN or infinite in each epoch"
    return did_you_mean(metric, logged) if logged else "no epoch has ended with a metric"


def leaderboard(view: RunView, objective: Objective) -> list[ConfigResult]:
    """All configs, the best first by the best value of the objective over their epochs; those without
    a finite value within its constraints last, in the order of their creation."""
    state = view.state
    tests = {(found.config, found.checkpoint.url): found for found in state.measured}

    def tested(row: ConfigResult) -> ConfigResult:
        test = tests.get((row.config, row.best_checkpoint.url)) if row.best_checkpoint else None
        return replace(row, test=test, members=[tested(each) for each in row.members])

    rows = [tested(row) for row in results(state, view.visits, objective)]
    return [*ranked(rows, objective.mode), *(row for row in rows if row.best is None)]


def not_compared(rows: Sequence[ConfigResult], objectives: Sequence[Objective]) -> list[str]:
    """The ids of the configs whose best epoch lacks a finite value of one of the ``objectives``."""
    return [name for name, values in _losses(rows, objectives) if not all(map(math.isfinite, values))]


def _losses(
    rows: Sequence[ConfigResult], objectives: Sequence[Objective]
) -> Iterator[tuple[str, list[float]]]:
    for row in rows:
        if row.best_place is not None:
            end = row.curve[row.best_place]
            yield row.config, [loss(end.get(each.metric), each.mode) for each in objectives]


def front(rows: Sequence[ConfigResult], objectives: Sequence[Objective]) -> list[ConfigResult]:
    """The configs that no other one surpasses: no other is as good in all ``objectives`` and better in one.
    The values are those of each config's best epoch; a config that lacks one is not compared."""
    known = {name: values for name, values in _losses(rows, objectives) if all(map(math.isfinite, values))}

    def surpassed(values: Sequence[float]) -> bool:
        return any(
            other != values and all(a <= b for a, b in zip(other, values, strict=True))
            for other in known.values()
        )

    return [row for row in rows if row.config in known and not surpassed(known[row.config])]


def results(state: State, visits: Mapping[str, Sequence[Visit]], objective: Objective) -> list[ConfigResult]:
    """The results of all configs in the order of their creation; ``visits`` are those of each training."""
    rows = []
    for name, configs in by_config(state.configs.values()).items():
        curves = [state.curves.get(config.id, ()) for config in configs]
        own = [
            config_result(config, curve, visits.get(config.id, ()), objective)
            for config, curve in zip(configs, curves, strict=True)
        ]
        rows.append(own[0] if name in state.configs else group_result(own, curves, state.plan, objective))
    return rows


def ranked(rows: Sequence[ConfigResult], mode: str) -> list[ConfigResult]:
    """The ``rows`` (in the order of creation) that have a best value; the best first, those that are
    ``partial`` last."""
    order = [rows[place] for place in ranking(loss(row.best, mode) for row in rows)]
    return sorted(order, key=lambda row: row.partial)


def group_result(
    members: Sequence[ConfigResult],
    curves: Sequence[Sequence[Point]],
    plan: Plan | None,
    objective: Objective,
) -> ConfigResult:
    """The results of a config that has ``members`` with these curves."""
    assert plan is not None
    metric, first = objective.metric, members[0]
    ended = [True] * len(members)  # one that is behind counts with its last epoch
    means, at = mean_curve(curves, ended), came_to(curves, ended)
    place = best_end(means, objective)
    points = [] if place is None else at[means[place].epochs]
    values = [point.metrics[metric] for point in points if metric in point.metrics]
    status = status_of(row.status for row in members)
    return ConfigResult(
        config=first.config.partition(".")[0],
        hparams=first.hparams,
        status=status,
        reason=next((row.reason for row in members if row.status is status and row.reason), ""),
        curve=[point.metrics for point in means],
        visits=sorted((visit for row in members for visit in row.visits), key=lambda visit: visit.attempt),
        best_place=place,
        best=None if place is None else means[place].metrics[metric],
        behind=first.behind,
        members=members,
        scores=values,
        std=deviation(values),
        interval=half_interval(values, plan.folds),
        partial=len(values) < len(first_members(plan)),
    )


def config_result(
    config: Config, curve: Sequence[Point], visits: Sequence[Visit], objective: Objective
) -> ConfigResult:
    """The results of a config with these visits and the curve that they made."""
    ends = epoch_ends(curve)
    place = best_end(ends, objective, of_member=bool(config.member_of))
    return ConfigResult(
        config=config.id,
        hparams=config.hparams,
        status=config.status,
        reason=config.reason,
        curve=[end.metrics for end in ends],
        visits=visits,
        best_place=place,
        best=None if place is None else ends[place].metrics[objective.metric],
        checkpoint=config.head,
        best_checkpoint=None if place is None else ends[place].checkpoint,
        behind=born(config).epoch,
    )


def records(rows: Sequence[ConfigResult]) -> list[dict[str, Any]]:
    """A row for each config, and its members, and full epoch (from 1): hyper-parameters, then metrics, by
    name. A hyper-parameter with the name of another column is called ``hparam.<name>``, and such a metric, or
    one with the name of a hyper-parameter, ``metric.<name>``. A metric that was not logged is ``None``."""
    hparams = _titles_of_hparams(rows, _PLACE)
    taken = {*hparams, *_PLACE}
    metrics = {name: f"metric.{name}" if name in taken else name for name in logged_metrics(rows)}
    return [
        {
            "config": row.config,
            "epoch": number,
            **{title: row.hparams.get(name) for name, title in hparams.items()},
            **{title: values.get(name) for name, title in metrics.items()},
        }
        for row in sorted((each for row in rows for each in (row, *row.members)), key=lambda row: row.config)
        for number, values in enumerate(row.curve, start=row.behind + 1)
    ]


_PLACE = ("config", "epoch")
"""The columns of the curves that name the owner of a row's values."""


def _titles_of_hparams(rows: Sequence[ConfigResult], columns: Collection[str]) -> dict[str, str]:
    """The columns of the hyper-parameters by name, beside the table's other ``columns``."""
    names = sorted({name for row in rows for name in row.hparams})
    return {name: f"hparam.{name}" if name in columns else name for name in names}


def write_curves(rows: Sequence[ConfigResult], path: Path) -> None:
    """The ``records`` as a CSV file."""
    write_text(path, curves_text(rows))


def curves_text(rows: Sequence[ConfigResult]) -> str:
    """The text of the CSV file of ``write_curves``."""
    table = records(rows)
    names = list(table[0]) if table else [*_PLACE, *_titles_of_hparams(rows, _PLACE).values()]
    return _csv(names, table)


def leaderboard_records(rows: Sequence[ConfigResult], metric: str) -> list[dict[str, Any]]:
    """The leaderboard: a row for each config, in this order; ``best`` is the best value of ``metric``, with
    folds or several seeds a mean, of ``scores`` trainings. A hyper-parameter with the name of another column
    is called ``hparam.<name>``."""
    spread = any(row.members for row in rows)
    table: list[dict[str, Any]] = [
        {
            "place": place,
            "config": row.config,
            "status": row.status.value,
            "reason": row.reason,
            "metric": metric,
            "best": row.best,
            "best_epoch": row.best_epoch,
            "epochs": row.epochs,
            **({"std": row.std, "interval": row.interval, "scores": len(row.scores)} if spread else {}),
        }
        for place, row in enumerate(rows, start=1)
    ]
    titles = _titles_of_hparams(rows, list(table[0]) if table else ())
    for line, row in zip(table, rows, strict=True):
        line |= {title: row.hparams.get(name) for name, title in titles.items()}
    return table


def leaderboard_text(rows: Sequence[ConfigResult], metric: str) -> str:
    """The leaderboard as CSV."""
    table = leaderboard_records(rows, metric)
    return _csv(list(table[0]) if table else [], table)


def _csv(names: Sequence[str], table: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, names)
    writer.writerow({name: _csv_value(name) for name in names})
    writer.writerows({name: _csv_value(value) for name, value in row.items()} for row in table)
    return text.getvalue()


def _csv_value(value: Any) -> Any:
    """The value for a spreadsheet: a text that looks like a formula gets a quote in front."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
