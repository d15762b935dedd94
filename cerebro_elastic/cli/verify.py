"""Commands that check what a run has on record."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cerebro_elastic.cli.options import Etcd, Home, Json, echo, store_of
from cerebro_elastic.cli.output import head_text, json_text
from cerebro_elastic.core.model.events import UnitCommitted
from cerebro_elastic.reporting.tables import brief, unit_text
from cerebro_elastic.words import counted

_MOST_DIFFERENCES = 20
_DECIDING_SECONDS = 5.0


def verify(
    run: Annotated[str, typer.Argument(help="Run id, or the run's folder.")],
    head: Annotated[
        str | None, typer.Option(help="A head of its record that you have noted: it must have it still.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="The folder of a model that was exported from it, to be compared.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0, help="For so long its decisions are made again.")
    ] = _DECIDING_SECONDS,
    home: Home = None,
    etcd: Etcd = None,
    as_json: Json = False,
) -> None:
    """Check a run's record: its history, and that all that was made of it agrees with it.

    The history is held against the invariants and its own chain of digests; then spec, checkpoints, data,
    logged rows, metrics.csv and report against the history. Its decisions are made again: they follow from
    the record.
    """
    from cerebro_elastic.runs.results.result import open_run
    from cerebro_elastic.runs.results.verify import verify as check

    result = open_run(run, home=home, store=store_of(etcd))
    notes: list[str] = []
    violations = check(result, head=head, export=export, seconds=seconds, say=notes.append)
    visits = sum(isinstance(event, UnitCommitted) for event in result.events)
    if as_json:
        told = {"visits": visits, "violations": [asdict(v) for v in violations], "notes": notes}
        echo(json_text({**told, "head": result.head and asdict(result.head)}))
    else:
        for violation in violations:
            echo(f"{violation.invariant}: {brief(violation.story, 500)}", err=True)
        if not violations:
            echo(f"{counted(len(result.events), 'event')}, {counted(visits, 'visit')}: all invariants hold")
        for note in notes:
            echo(f"note: {brief(note, 500)}")
        if result.head is not None:
            echo(head_text(result.head))
    if violations:
        raise typer.Exit(1)


def replay(
    run: Annotated[str, typer.Argument(help="Run id, or the run's folder.")],
    config: Annotated[str, typer.Option(help="The config to train again; `best` for the leader.")],
    home: Home = None,
    etcd: Etcd = None,
) -> None:
    """Train one config again, alone, in the order of its visit log, and compare all that is on record of it.

    That is each visit's state, metrics, samples, batches and logged rows, and what follows from them: the
    best value and checkpoint, the lines of metrics.csv. Times and nodes are not compared.
    """
    from cerebro_elastic.runs.results.replay import compare_results
    from cerebro_elastic.runs.results.replay import replay as again
    from cerebro_elastic.runs.results.result import open_run

    result = open_run(run, home=home, store=store_of(etcd))
    name = result.config(config).config
    visits = []
    for done in again(result, name):
        visits.append(done)
        mark = "same" if done.same else "DIFFERS"
        echo(f"{unit_text(done.visit.unit)} on {done.visit.node}: {done.digest[:12]} {mark}")
        for difference in done.differences[:_MOST_DIFFERENCES]:
            echo(f"  {difference}")
        if more := len(done.differences[_MOST_DIFFERENCES:]):
            echo(f"  and {more} more")
    derived = list(compare_results(result, name, visits))
    for difference in derived:
        echo(f"{name}, {difference}")
    total, differ = counted(len(visits), "visit"), sum(not done.same for done in visits)
    if differ or derived:
        echo(f"{differ} of {total} of {name} not as recorded", err=True)
        raise typer.Exit(1)
    echo(f"bit-identical to the record: {total} of {name}")
