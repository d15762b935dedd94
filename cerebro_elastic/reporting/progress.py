"""The view of a live run in the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

from rich.console import Group, OverflowMethod, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cerebro_elastic.core.decisions.gangs import Wait, waits
from cerebro_elastic.core.history.progress import units_left
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.recipes import Objective
from cerebro_elastic.reporting.gap import NO_END, SearchEnd, gap
from cerebro_elastic.reporting.results import ConfigResult, ranked, results
from cerebro_elastic.reporting.tables import (
    STYLES,
    brief,
    bytes_text,
    clock_text,
    own_text,
    resources_text,
    shared_hparams,
    time_text,
)
from cerebro_elastic.reporting.terminal import plain_table
from cerebro_elastic.reporting.traffic import data_text
from cerebro_elastic.system.explanations import shortened
from cerebro_elastic.system.words import counted, hparams_text, number

_BEST = 10
"""The number of best configs shown before those that failed."""


def progress_view(
    state: State,
    objective: Objective,
    elapsed: float | None,
    lines: int | None = None,
    whence: Mapping[str, str] | None = None,
    *,
    verbose: bool = False,
    notes: Sequence[str] = (),
    end: SearchEnd = NO_END,
    redrawn: bool = False,
) -> RenderableType:
    """Nodes with their units, configs with their progress, and the remaining time.

    Args:
        state: The run's state.
        objective: The metric by which configs are compared.
        elapsed: Seconds since the run's start, if known.
        lines: The most lines of the view. Idle nodes are left out first, then all configs except those in
            training, the best and those that failed.
        whence: By config: the node of its last unit, if known.
        verbose: Whether to show the optimality gap.
        notes: Further lines, such as the forecast of the budget.
        end: The end of the run's search.
        redrawn: Whether the view replaces an earlier one, so that each config has one line; else long
            hyper-parameters take several.
    """
    if state.plan is None:
        return Text("waiting for the run to be opened")
    waiting = waits(state, state.plan)
    lacks = lacking(waiting)
    shared = shared_hparams([config.hparams for config in state.configs.values()])
    room = None if lines is None else max(2, lines - 8 - len(lacks) - bool(shared))
    nodes = sorted(state.nodes, key=lambda name: (name not in state.attempts, name))
    rows = results(state, {}, objective)
    places = {name: place for place, name in enumerate(best_so_far(rows, objective)) if place < _BEST}
    configs = sorted(state.configs.values(), key=lambda config: _calm(state, config, places))
    shown_nodes = nodes[: None if room is None else max(1, room // 3)]
    shown = configs[: None if room is None else room - len(shown_nodes)]
    return Group(
        *([_nodes_table(state, sorted(shown_nodes), whence or {})] if nodes else []),
        *_left_out("nodes", ["busy" if n in state.attempts else "idle" for n in nodes[len(shown_nodes) :]]),
        *([""] if nodes else []),
        _configs_table(
            state,
            state.plan,
            objective,
            rows,
            sorted(shown, key=lambda config: config.id),
            waiting,
            shared,
            "ellipsis" if redrawn else "fold",
        ),
        *_left_out("configs", [_phase(state, config) for config in configs[len(shown) :]]),
        *([f"all have {hparams_text(shared)}"] if shared else []),
        *(Text(line, "yellow", no_wrap=True, overflow="ellipsis") for line in lacks),
        "",
        summary_line(state, objective, elapsed, verbose=verbose, end=end),
        *([f"data: {data_text(state.usage)}"] if state.usage.batches_shared or state.usage.differing else []),
        *notes,
    )


def lacking(waiting: Mapping[str, Wait]) -> list[str]:
    """The missing hardware of configs that cannot be trained on the present nodes."""
    lacks = Counter(wait.lacks for wait in waiting.values() if wait.lacks is not None)
    return [
        f"{count} config{'s wait' if count > 1 else ' waits'} for nodes: {what}"
        for what, count in lacks.items()
    ]


def _calm(state: State, config: Config, places: Mapping[str, int]) -> tuple[int, int, str]:
    """The sort key of configs: those in training first, then the best by their ``places``, those that failed
    and those that wait, then all others."""
    phases = ("in training", "best", "failed", "waiting")
    phase = _phase(state, config)
    if phase != "in training" and config.seen_as in places:
        phase = "best"
    order = phases.index(phase) if phase in phases else len(phases)
    return order, places.get(config.seen_as, 0), config.id


def _left_out(what: str, doing: Iterable[str]) -> list[str]:
    counts = Counter(doing)
    counted_words = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    return [f"and {counts.total()} more {what}: {counted_words}"] if counts else []


def _nodes_table(state: State, names: Sequence[str], whence: Mapping[str, str]) -> Table:
    fixed = ("node", "unit", "state from", "takes")
    table = plain_table(*fixed, "home of partitions", fixed=fixed)  # the last one shrinks
    for name in names:
        attempt = state.attempts.get(name)
        homes = " ".join(str(j) for j, names in state.homes.items() if name in names)
        note = node_note(state, name)
        partitions = Text(f"{homes} {note}" if note else homes, no_wrap=True, overflow="ellipsis")
        partitions.stylize("yellow", len(homes))
        idle = "starting" if state.nodes[name].starting else "idle"
        doing, state_from = (_attempt(attempt), _hop(attempt, whence)) if attempt else (idle, "")
        usage = state.usage.nodes.get(name)
        takes = "" if usage is None else resources_text(usage.resources)
        table.add_row(name, doing, state_from, takes, partitions)
    return table


def _attempt(attempt: Attempt) -> str:
    how = "" if attempt.strategy == Strategy() else f" by {attempt.strategy}"
    return str(attempt.unit) + how


def _hop(attempt: Attempt, whence: Mapping[str, str]) -> str:
    """The origin of the attempt's state, and its size."""
    if attempt.input is None:
        return "new"
    before = whence.get(attempt.unit.config)
    if before == attempt.node:
        return "here"
    size = bytes_text(attempt.input.hopping_bytes)
    return size if before is None else f"{before}, {size}"


def node_note(state: State, name: str) -> str:
    """A note on a node that is stalled, leaving or quarantined."""
    node = state.nodes[name]
    if node.stalled is not None:
        return f"stalled since {time_text(node.stalled.began)}: {brief(shortened(node.stalled.why))}"
    if node.drain is not None:
        return "leaving"
    return f"quarantined: {brief(shortened(state.quarantined[name]))}" if name in state.quarantined else ""


def _configs_table(
    state: State,
    plan: Plan,
    objective: Objective,
    rows: Sequence[ConfigResult],
    configs: Sequence[Config],
    waiting: Mapping[str, Wait],
    shared: Container[str],
    overflow: OverflowMethod,
) -> Table:
    """The value is the training's best at the end of any epoch; the gap is the distance of its config to the
    run's best one. ``shared`` hyper-parameters are left out; ``overflow`` is rich's mode for long ones."""
    fixed = ("config", "done", "epoch", objective.metric, "gap", "status")
    table = plain_table(*fixed, "hyper-parameters", fixed=fixed)  # the last one shrinks
    own = {each.config: each.best for row in rows for each in row.trainings}
    bests = best_so_far(rows, objective)
    lead = next(iter(bests), None)
    for config in configs:
        finished = config.status is Status.FINISHED  # perhaps before an extension of the run
        done, total = unit_counts([config], plan)
        value, mean = own.get(config.id), bests.get(config.seen_as)
        behind = number(abs(mean - bests[lead])) if lead and mean is not None else ""
        table.add_row(
            config.id,
            ProgressBar(total=max(total, 1), completed=done, width=6),
            f"{config.epoch if finished else min(config.epoch + 1, plan.epochs)}/{plan.epochs}",
            "-" if value is None else number(value),
            "best" if config.seen_as == lead else behind,
            Text(_doing(state, config, waiting), STYLES[config.status]),
            Text(own_text(config.hparams, shared), no_wrap=overflow == "ellipsis", overflow=overflow),
        )
    return table


def best_so_far(rows: Sequence[ConfigResult], objective: Objective) -> dict[str, float]:
    """Each config's best value of the objective at the end of an epoch, the best config first; without the
    configs that have no such value."""
    return {row.config: row.best for row in ranked(rows, objective.mode) if row.best is not None}


def leading(state: State, objective: Objective) -> tuple[str, float] | None:
    """The config with the best value of the objective so far, and that value."""
    return next(iter(best_so_far(results(state, {}, objective), objective).items()), None)


def summary_line(
    state: State,
    objective: Objective | None,
    elapsed: float | None,
    *,
    verbose: bool = False,
    end: SearchEnd = NO_END,
) -> str:
    """A line with the units done and the expected time of the rest. ``verbose`` adds the optimality gap, and
    an ``objective`` adds the best config so far."""
    assert state.plan is not None
    plan = state.plan
    done, total = unit_counts(state.configs.values(), plan)
    parts = [f"{done}/{total} units", counted(len(state.nodes), "node")]
    if elapsed is not None:
        parts.append(f"{clock_text(elapsed)} gone")
    if stalled := sorted(node.name for node in state.nodes.values() if node.stalled is not None):
        parts.append(f"{', '.join(stalled)} stalled")
    eta = seconds_left(state, end)
    if eta is not None and done < total:
        parts.append(f"about {clock_text(eta)} to go")
    if verbose and (behind := gap(state)):
        parts.append(f"optimality gap {behind.share:.1%}")
    if objective is not None and (lead := leading(state, objective)):
        parts.append(f"best so far {lead[0]}: {objective.metric} {number(lead[1])}")
    return ", ".join(parts)


def unit_counts(configs: Iterable[Config], plan: Plan) -> tuple[int, int]:
    """The units that the configs have done, and all of their units. For an ended config the two are equal: it
    may have ended early, or before the run was extended."""
    per_epoch = plan.trained + plan.evaluations
    done = left = 0
    for config in configs:
        done += config.epoch * per_epoch + len(config.visited) + len(config.evaluated)
        left += units_left(config, plan)
    return done, done + left


def _doing(state: State, config: Config, waiting: Mapping[str, Wait]) -> str:
    attempt = state.running(config.id)
    if attempt:
        what = "saved by" if attempt.trained else "next on" if state.is_queued(attempt) else "on"
        doing = f"{what} {attempt.node}"
        return f"{doing}, stalled" if stands_still(state, attempt) else doing
    wait = waiting.get(config.id, Wait())
    return f"waits for {' '.join(wait.nodes)}" if wait.nodes else _phase(state, config)


def stands_still(state: State, attempt: Attempt) -> bool:
    """Whether a node of the attempt is stalled."""
    nodes = (state.nodes.get(name) for name in attempt.nodes)
    return any(node is not None and node.stalled is not None for node in nodes)


def _phase(state: State, config: Config) -> str:
    if config.status is not Status.LIVE:
        return config.status.value
    attempt = state.running(config.id)
    return "waiting" if attempt is None or state.is_queued(attempt) else "in training"


def seconds_left(state: State, end: SearchEnd = NO_END) -> float | None:
    """Seconds from the last visit's end to the end of the run, by the forecast of ``gap``, so that all views
    of a run's end agree. ``None`` without a forecast, and while a unit is stalled."""
    forecast = gap(state, end)
    if forecast is None or any(stands_still(state, attempt) for attempt in state.underway()):
        return None
    return forecast.forecast - state.usage.elapsed
