"""Commands that check a run's record."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cerebro_elastic.cli.completion import config_ids
from cerebro_elastic.cli.options import Etcd, Home, Json, Run, echo, store_of
from cerebro_elastic.cli.output import head_text, json_text
from cerebro_elastic.core.model.events import UnitCommitted
from cerebro_elastic.reporting.tables import brief, unit_text
from cerebro_elastic.system.words import counted

_MOST_DIFFERENCES = 20
_DECIDING_SECONDS = 5.0


def verify(
    run: Run,
    head: Annotated[
        str | None,
        typer.Option(help="A head of the record that you noted earlier: the record must still contain it."),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(help="The folder of a model that was exported from the run: compare it, too."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0, help="The most seconds to spend on making the run's decisions again.")
    ] = _DECIDING_SECONDS,
    home: Home = None,
    etcd: Etcd = None,
    as_json: Json = False,
) -> None:
    """Check a run's history, and that everything made from it agrees with it.

    The command checks the history against the invariants and its chain of digests, then spec, checkpoints,
    data, logged rows, metrics.csv and report against the history. It also makes the run's decisions again and
    compares them.

    Example: cerebro verify digits
    """
    from cerebro_elastic.runs.results.result import open_run
    from cerebro_elastic.runs.results.verify import verify as check

    result = open_run(run, home=home, store=store_of(etcd))
    notes: list[str] = []
    violations = check(result, head=head, export=export, seconds=seconds, say=notes.append)
    visits = sum(isinstance(event, UnitCommitted) for event in result.events)
    if as_json:
        findings = {"visits": visits, "violations": [asdict(v) for v in violations], "notes": notes}
        echo(json_text({**findings, "head": result.head and asdict(result.head)}))
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
    run: Run,
    config: Annotated[
        str, typer.Option(help="The config to train again, or `best`.", autocompletion=config_ids)
    ],
    home: Home = None,
    etcd: Etcd = None,
) -> None:
    """Train one config again in the order of its visit log, and compare it with the record bit for bit.

    Compared are each visit's state, metrics, samples, batches and logged rows, and the values derived from
    them: best value, best checkpoint, lines of metrics.csv. Times and nodes are not compared.

    Example: cerebro replay digits --config best
    """
    from cerebro_elastic.runs.results.replay import compare_results
    from cerebro_elastic.runs.results.replay import replay as again
    from cerebro_elastic.runs.results.result import open_run
    from cerebro_elastic.runs.versions import other_code

    result = open_run(run, home=home, store=store_of(etcd))
    name = result.config(config).config
    replays = []
    for replayed in again(result, name):
        replays.append(replayed)
        mark = "same" if replayed.same else "DIFFERS"
        echo(f"{unit_text(replayed.visit.unit)} on {replayed.visit.node}: {replayed.digest[:12]} {mark}")
        for difference in replayed.differences[:_MOST_DIFFERENCES]:
            echo(f"  {difference}")
        if more := len(replayed.differences[_MOST_DIFFERENCES:]):
            echo(f"  and {more} more")
    derived = list(compare_results(result, name, replays))
    for difference in derived:
        echo(f"{name}, {difference}")
    total, differ = counted(len(replays), "visit"), sum(not replayed.same for replayed in replays)
    if differ or derived:
        echo(f"{differ} of {total} of {name} not as recorded", err=True)
        for text in other_code(result.spec):
            echo(f"note: {text}", err=True)
        raise typer.Exit(1)
    echo(f"bit-identical to the record: {total} of {name}")
