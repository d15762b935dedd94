"""Commands that show the state of a run, and of this machine."""

from __future__ import annotations

from dataclasses import asdict

import typer
from rich.table import Column, Table
from rich.text import Text

from cerebro_elastic.cli.options import Etcd, Home, Json, Run, Verbose, echo, store_of
from cerebro_elastic.cli.output import head_text, json_text, state_json
from cerebro_elastic.errors import RunError
from cerebro_elastic.recipes import Objective
from cerebro_elastic.reporting.progress import progress_view
from cerebro_elastic.reporting.terminal import terminal
from cerebro_elastic.runs.folder import default_home


def status(
    run: Run,
    home: Home = None,
    etcd: Etcd = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Show the state of a run, live or ended: its nodes, configs and metrics.

    Example: cerebro status digits --verbose
    """
    from cerebro_elastic.runs.control.status import head_now
    from cerebro_elastic.runs.control.status import status as ask

    if verbose and as_json:
        raise RunError("--verbose would do nothing with --json, which has it all: leave it out")
    spec, state, live = ask(run, home=home, store=store_of(etcd))
    head = head_now(run, state, home=home, store=store_of(etcd))
    if as_json:
        values = state_json(spec.plan.run, state, live)
        echo(json_text({**values, "head": asdict(head) if head is not None else None}))
        return
    console = terminal()
    how = "live" if live else state.outcome or "not running; the same `cerebro run` goes on from here"
    led = f", led by {state.leader}" if state.leader else ""
    console.print(f"run {spec.plan.run}: {how}{led}", soft_wrap=True)
    objective = Objective.model_validate(spec.recipe.get("objective", {}))
    console.print(progress_view(state, objective, None, verbose=verbose))
    if head is not None:
        console.print(head_text(head), soft_wrap=True)


def doctor(home: Home = None, etcd: Etcd = None) -> None:
    """Check what a run needs on this machine, and show what works.

    Example: cerebro doctor --home /scratch/runs
    """
    from cerebro_elastic.runs.start.doctor import examine

    table = Table("", "", Column(overflow="fold"), box=None, show_header=False, padding=(0, 2, 0, 0))
    marks = {True: Text("ok", "green"), False: Text("bad", "red"), None: Text("absent", "yellow")}
    findings = list(examine(home or default_home(), store_of(etcd)))
    for finding in findings:
        table.add_row(marks[finding.ok], finding.what, finding.detail)
    terminal().print(table)
    if any(finding.ok is False for finding in findings):
        raise typer.Exit(1)
