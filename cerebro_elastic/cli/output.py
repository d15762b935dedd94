"""Runs and their results, for people and as JSON for machines."""

from __future__ import annotations

from functools import partial

import typer

from cerebro_elastic.cli.options import echo_json
from cerebro_elastic.cli.shapes import ConfigJson, ExactnessJson, OutcomeJson, RowJson, StatusJson, filled
from cerebro_elastic.core.decisions.gangs import waits
from cerebro_elastic.core.model.units import RecordHead
from cerebro_elastic.errors import RunError
from cerebro_elastic.recipes import Objective
from cerebro_elastic.reporting.budget import budget_outlook, ended_early
from cerebro_elastic.reporting.gap import NO_END, SearchEnd, gap
from cerebro_elastic.reporting.profiles import profile_rows
from cerebro_elastic.reporting.progress import best_so_far
from cerebro_elastic.reporting.results import not_compared, results
from cerebro_elastic.reporting.tables import (
    failure_texts,
    front_table,
    leaderboard_table,
    measured_note,
    measured_table,
    spread_text,
)
from cerebro_elastic.reporting.terminal import terminal
from cerebro_elastic.runs.exactness.outcome import CheckOutcome, Verdict
from cerebro_elastic.runs.folder import how_to_retry
from cerebro_elastic.runs.recorded import RunStatus
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.system.files import here


def head_text(run: str, head: RecordHead) -> str:
    """The digest to note, and its purpose."""
    return (
        f"head of the record: {head.digest} (revision {head.revision}): note it, and by "
        f"`cerebro verify {run} --head {head.digest[:12]}` you can prove that nothing before it was changed"
    )


def state_json(run: str, status: RunStatus, objective: Objective, end: SearchEnd = NO_END) -> StatusJson:
    """A run's state for machines."""
    state = status.state
    bests = best_so_far(results(state, {}, objective), objective)
    return filled(
        StatusJson,
        state,
        run=run,
        objective=objective.model_dump(exclude_none=True),
        best=next(iter(bests), None),
        head=status.head,
        live=status.live,
        nodes={n: str(a.unit) if (a := state.attempts.get(n)) else None for n in state.nodes},
        saving={n: str(attempt.unit) for n, attempt in state.saving.items()},
        queued={n: str(attempt.unit) for n, attempt in state.queued.items()},
        draining={n: node.drain for n, node in state.nodes.items() if node.drain is not None},
        stalled={n: node.stalled for n, node in state.nodes.items() if node.stalled is not None},
        resources={n: u.resources for n, u in state.usage.nodes.items() if n in state.nodes},
        configs={n: filled(ConfigJson, c, best=bests.get(c.seen_as)) for n, c in state.configs.items()},
        gap=gap(state, end),
        budget=budget_outlook(state, end),
        waits=waits(state, state.plan) if state.plan else {},
        profiles=profile_rows(state),
    )


def outcome_json(result: RunResult) -> OutcomeJson:
    """A finished run for machines."""
    return filled(
        OutcomeJson,
        result,
        folder=str(result.folder.path),
        objective=result.recipe.objective.model_dump(exclude_none=True),
        front=[row.config for row in result.front],
        exactness=filled(ExactnessJson, result.exactness),
        leaderboard=[
            filled(
                RowJson,
                row,
                metrics=row.curve[-1] if row.curve else {},
                checkpoint=here(row.best_checkpoint.url) if row.best_checkpoint else None,
                scores={each.config: each.best for each in row.members},
            )
            for row in result.leaderboard
        ],
    )


def conclude(result: RunResult, *, as_json: bool = False, shown: bool = False) -> None:
    """Print the outcome of a command's run, unless it was ``shown``. The exit status is 1 if a run that has
    ended has no result: all configs failed, or none has a value of the objective."""
    if as_json:
        echo_json(outcome_json(result))
    elif not shown:
        show_outcome(result)
    rows = result.leaderboard
    none_works = all(row.status == "failed" for row in rows) or all(row.best is None for row in rows)
    if result.ended and none_works:
        raise typer.Exit(1)


def show_outcome(result: RunResult) -> None:
    """Print a run's results, and their place, for people."""
    console, recipe, name = terminal(), result.recipe, result.run
    say = partial(console.print, soft_wrap=True)
    note = partial(say, style="yellow")
    console.print(leaderboard_table(result.leaderboard, recipe.objective.metric))
    several = [row for row in result.leaderboard if row.members[1:] and row.curve]
    if several and all(each.curve == row.members[0].curve for row in several for each in row.members):
        note(
            "all seeds gave the same values: the task draws nothing from its seed, and `repeats` tells "
            "nothing: leave it out"
        )
    if objectives := recipe.search.objectives:
        console.print(front_table(result.front, objectives, len(result.leaderboard)))
        if lacking := not_compared(result.leaderboard, objectives):
            say(f"not compared, without finite values of all: {', '.join(lacking)}")
    if constraints := recipe.objective.constraints:
        outside = [row.config for row in result.leaderboard if row.curve and row.best is None]
        none_within = f"; no epoch of {', '.join(outside)} is within" if outside else ""
        say(f"constraints: {'; '.join(map(str, constraints))}{none_within}")
    if tested := [row.test for row in result.trainings if row.test is not None]:
        console.print(measured_table(tested))
        say(measured_note(tested))
    if early := ended_early(result.view.state, recipe.search.budget, result.folder.argument):
        note(f"budget: {early}")
    differs = result.exactness.verdict is Verdict.DIFFERS
    say(f"exactness: {result.exactness.text}", style="yellow" if differs else None)
    failures = list(failure_texts(result.view.state.configs.values(), result.folder.logs))
    for text in failures:
        say(text, style="red")
    if failures:
        say(f"once that is corrected, {how_to_retry(result.folder)}")
    try:
        best = result.best
    except RunError as error:
        if not all(row.status == "failed" for row in result.leaderboard):
            note(str(error))
    else:
        if best.members:
            say(f"best: {best.config}, {spread_text(best)}")
        for row in best.trainings:
            if row.best_checkpoint is not None:
                say(f"best checkpoint: {here(row.best_checkpoint.url)}")
    if result.store is None:
        say(f"curves: {result.folder.curves}")
        say(f"report: {result.folder.report}")
    if result.head is not None:
        say(head_text(name, result.head))
    say(f"next: cerebro verify {name}, cerebro replay {name}, cerebro export {name} FOLDER")
    silent = {CheckOutcome.EQUAL, CheckOutcome.FAILED} if failures else {CheckOutcome.EQUAL}
    for checked in result.exactness.checked:
        if checked.exactness.outcome not in silent:
            note(f"note: {checked.text}")
