"""The commands. Each does what a function of the package does, and shows it to people or machines."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from cerebro_elastic import __version__
from cerebro_elastic.cli import checking, hosts, people, results
from cerebro_elastic.cli.check import check
from cerebro_elastic.cli.init import init
from cerebro_elastic.cli.options import (
    Checkpoints,
    Epochs,
    Etcd,
    Grace,
    Home,
    Json,
    Verbose,
    echo,
    overrides,
    stopped_as_by_ctrl_c,
    store_of,
)
from cerebro_elastic.cli.plan import plan
from cerebro_elastic.cli.prepare import prepare
from cerebro_elastic.cli.shown import head_text, in_vain, json_text, outcome_json, show_outcome, state_json
from cerebro_elastic.cli.simulate import simulate
from cerebro_elastic.cli.trials import trials
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Objective, load_recipe
from cerebro_elastic.report.progress import progress_view
from cerebro_elastic.report.terminal import terminal
from cerebro_elastic.runs.agents import GRACE
from cerebro_elastic.runs.drain import A_DAY
from cerebro_elastic.runs.folder import default_home
from cerebro_elastic.runs.live import LiveView

app = typer.Typer(
    name="cerebro",
    help="Train many configurations by Model Hopper Parallelism: the data stay, the models hop.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def run(
    recipe: Annotated[
        Path | None, typer.Argument(help="The recipe, a YAML file.", show_default=False)
    ] = None,
    run_id: Annotated[
        str | None, typer.Option(help="The run's id.", show_default="the recipe's name")
    ] = None,
    nodes: Annotated[str | None, typer.Option(help="Number of local nodes, instead of the recipe's.")] = None,
    epochs: Epochs = None,
    checkpoints: Checkpoints = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Throw away what a run of this id has left.")
    ] = False,
    home: Home = None,
    etcd: Etcd = None,
    grace: Grace = GRACE,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Run a recipe on this machine, or go on with an unfinished run of it.

    Ctrl-C or SIGTERM stops it cleanly; the same command goes on where it stood. Nodes may join at any time.
    """
    if recipe is None:
        raise RecipeError(
            "name a recipe: cerebro run my_run.yaml. `cerebro init digits` writes one to begin with, and "
            "`cerebro init` lists others"
        )
    from cerebro_elastic.runs.launch import run as launch

    checked = load_recipe(recipe, **overrides(nodes=nodes, epochs=epochs, checkpoints=checkpoints))
    view = LiveView(checked.objective, terminal(stderr=as_json), verbose=verbose)
    try:
        with stopped_as_by_ctrl_c(), view:
            result = launch(
                checked,
                run_id=run_id,
                home=home,
                fresh=fresh,
                store=store_of(etcd),
                grace=grace,
                watcher=view.watcher,
            )
    except KeyboardInterrupt:
        echo("stopped; what was committed is safe. The same command goes on from there.", err=True)
        raise typer.Exit(130) from None
    if as_json:
        echo(json_text(outcome_json(result)))
    else:
        show_outcome(result)
    if in_vain(result):
        raise typer.Exit(1)


@app.command()
def join(
    run: Annotated[str, typer.Argument(help="Run id, or the run's folder.")],
    name: Annotated[
        str | None, typer.Option(help="The node's name.", show_default="the host's with a suffix")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of this machine, which share its GPUs.")] = 1,
    home: Home = None,
    etcd: Etcd = None,
    grace: Grace = GRACE,
) -> None:
    """Make this machine a node of a run that goes on, and a candidate for its lead.

    It ends with the run. Ctrl-C or SIGTERM lets the node leave: it finishes its unit or hands it on part-way.
    """
    from cerebro_elastic.runs.join import join as take_part

    view = LiveView(None, terminal(), moving=False)
    try:
        with stopped_as_by_ctrl_c(), view:
            result = take_part(
                run,
                name=name,
                nodes=nodes,
                home=home,
                store=store_of(etcd),
                grace=grace,
                watcher=view.watcher,
            )
    except KeyboardInterrupt:
        echo("left the run; nothing that was committed is lost, and others go on.")
        return
    echo(f"a record of the run is at {result.folder.path}")


@app.command()
def drain(
    run: Annotated[str, typer.Argument(help="Run id, or the run's folder.")],
    node: Annotated[str, typer.Argument(help="The node, as `cerebro status` names it.")],
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds; what takes longer is handed on part-way.")
    ] = A_DAY,
    home: Home = None,
    etcd: Etcd = None,
) -> None:
    """Ask a node to leave: it gets no more units, finishes its present one, and ends."""
    from cerebro_elastic.runs.drain import drain as ask

    ask(run, node, grace=grace, home=home, store=store_of(etcd))
    given = "" if grace >= A_DAY else f", or part-way through it after {grace:g} s"
    echo(f"{node} leaves run {run} when its unit is done{given}")


app.command()(check)
app.command()(init)
app.command()(prepare)


@app.command()
def status(
    run: Annotated[str, typer.Argument(help="Run id, or the run's folder.")],
    home: Home = None,
    etcd: Etcd = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Show how a run stands, while it goes on or afterwards."""
    from cerebro_elastic.runs.status import head_now
    from cerebro_elastic.runs.status import status as ask

    spec, state, live = ask(run, home=home, store=store_of(etcd))
    head = head_now(run, state, home=home, store=store_of(etcd))
    if as_json:
        told = state_json(spec.plan.run, state, live)
        echo(json_text({**told, "head": asdict(head) if head is not None else None}))
        return
    console = terminal()
    how = "live" if live else state.outcome or "not running; the same `cerebro run` goes on from here"
    led = f", led by {state.leader}" if state.leader else ""
    console.print(f"run {spec.plan.run}: {how}{led}", soft_wrap=True)
    objective = Objective.model_validate(spec.recipe.get("objective", {}))
    console.print(progress_view(state, objective, None, verbose=verbose))
    if head is not None:
        console.print(head_text(head), soft_wrap=True)


@app.command()
def doctor(home: Home = None, etcd: Etcd = None) -> None:
    """Try what a run needs of this machine, and say what works."""
    from cerebro_elastic.runs.doctor import examine

    table = Table("", "", Column(overflow="fold"), box=None, show_header=False, padding=(0, 2, 0, 0))
    marks = {True: Text("ok", "green"), False: Text("bad", "red"), None: Text("absent", "yellow")}
    findings = list(examine(home or default_home(), store_of(etcd)))
    for finding in findings:
        table.add_row(marks[finding.ok], finding.what, finding.told)
    terminal().print(table)
    if any(finding.ok is False for finding in findings):
        raise typer.Exit(1)


app.command()(hosts.host)
app.command()(hosts.etcd)
app.command()(people.stop)
app.command()(people.resume)
app.command()(people.clone)
app.command()(checking.verify)
app.command()(checking.replay)
app.command()(results.export)
app.command()(results.report)
app.command()(trials)
app.command()(plan)
app.command()(simulate)


@app.callback(invoke_without_command=True)
def _main(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        echo(__version__)
        raise typer.Exit
