"""The commands. Each does what a function of the package does, and shows it to people or machines."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from cerebro_elastic import __version__
from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.events import UnitCommitted
from cerebro_elastic.core.values import Attempt, Config
from cerebro_elastic.errors import RunError
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.report.tables import leaderboard_table, progress_view, unit_text
from cerebro_elastic.runs.folder import default_home
from cerebro_elastic.runs.live import LiveView
from cerebro_elastic.runs.result import RunResult

app = typer.Typer(
    name="cerebro",
    help="Train many configurations by Model Hopper Parallelism: the data stay, the models hop.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Home = Annotated[Path | None, typer.Option(help="Folder of runs.", show_default="$CEREBRO_HOME, else ./runs")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]
Etcd = Annotated[
    str | None, typer.Option(help="HOST:PORT of an etcd; login and TLS come from CEREBRO_ETCD_*.")
]


def _store(etcd: str | None) -> StoreSettings | None:
    """An external etcd, if one is named."""
    return StoreSettings.from_env({**os.environ, "CEREBRO_ETCD_ENDPOINTS": etcd}) if etcd else None


@app.command()
def run(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file.")],
    run_id: Annotated[
        str | None, typer.Option(help="The run's id.", show_default="the recipe's name")
    ] = None,
    nodes: Annotated[str | None, typer.Option(help="Number of local nodes, instead of the recipe's.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs, instead of the recipe's.")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Throw away what a run of this id has left.")
    ] = False,
    home: Home = None,
    etcd: Etcd = None,
    as_json: Json = False,
) -> None:
    """Run a recipe on this machine, or go on with an unfinished run of it.

    Ctrl-C stops it cleanly; the same command goes on where it stood. More nodes may join at any time.
    """
    from cerebro_elastic.runs.launch import run as launch

    overrides: dict[str, Any] = {k: v for k, v in {"nodes": nodes, "epochs": epochs}.items() if v is not None}
    checked = load_recipe(recipe, **overrides)
    view = LiveView(checked.objective.metric, Console(stderr=as_json))
    try:
        with view:
            result = launch(
                checked,
                run_id=run_id,
                home=home,
                fresh=fresh,
                store=_store(etcd),
                watcher=view.watcher,
            )
    except KeyboardInterrupt:
        typer.echo("stopped; what was committed is safe. The same command goes on from there.", err=True)
        raise typer.Exit(130) from None
    if as_json:
        typer.echo(json.dumps(_outcome_json(result)))
        return
    console = Console()
    console.print(leaderboard_table(result.leaderboard, result.recipe.objective.metric))
    failed = [row for row in result.leaderboard if row.status == "failed"]
    for row in failed:
        console.print(f"{row.config} failed: {row.reason}", style="red", highlight=False, soft_wrap=True)
    try:
        best = result.best
    except RunError as error:
        console.print(str(error), style="yellow", highlight=False, soft_wrap=True)
    else:
        assert best.best_checkpoint is not None
        console.print(f"best checkpoint: {best.best_checkpoint.url}", highlight=False, soft_wrap=True)
    console.print(f"curves: {result.folder.curves}", highlight=False, soft_wrap=True)
    name = result.run
    console.print(f"next: cerebro verify {name}, cerebro replay {name} --config CONFIG", highlight=False)
    if failed and len(failed) == len(result.leaderboard):
        raise typer.Exit(1)


@app.command()
def prepare(
    source: Annotated[str, typer.Argument(help=".npz, .npy folder, CSV, Parquet, or module:function.")],
    destination: Annotated[str, typer.Argument(help="Where the dataset goes: a folder or any fsspec URL.")],
    partitions: Annotated[int, typer.Option(min=1, help="Number of training partitions.")],
    seed: Annotated[int, typer.Option(help="Seed of the shuffle.")] = 0,
    valid: Annotated[str, typer.Option(help="Share of rows for validation, or a source of its own.")] = "0.2",
    labels: Annotated[list[str] | None, typer.Option(help="Columns that may hold no NaN.")] = None,
) -> None:
    """Shuffle a dataset once and write it as partitions.

    A run does so itself with the `source` of its recipe; what is prepared here serves several runs, as `url`.
    """
    from cerebro_elastic.runs.prepare import prepare_dataset

    manifest = prepare_dataset(
        source,
        destination,
        partitions=partitions,
        seed=seed,
        valid=valid,
        labels=labels or (),
        root=Path.cwd(),
    )
    rows, valid_rows = manifest.rows, sum(part.rows for part in manifest.valid)
    typer.echo(
        f"{sum(rows)} training rows in {len(rows)} partitions, {valid_rows} validation rows "
        f"at {destination} (digest {manifest.digest[:12]})"
    )


@app.command()
def status(
    run: Annotated[str, typer.Argument(help="Run id, or the run's folder.")],
    home: Home = None,
    etcd: Etcd = None,
    as_json: Json = False,
) -> None:
    """Show how a run stands, while it goes on or afterwards."""
    from cerebro_elastic.runs.status import status as ask

    spec, state, live = ask(run, home=home, store=_store(etcd))
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "run": spec.plan.run,
                    "live": live,
                    "outcome": state.outcome,
                    "nodes": {n: _unit(state.attempts.get(n)) for n in state.nodes},
                    "configs": {name: _config_json(c) for name, c in state.configs.items()},
                }
            )
        )
        return
    console = Console()
    how = "live" if live else state.outcome or "not running; the same `cerebro run` goes on from here"
    console.print(f"run {spec.plan.run}: {how}", highlight=False)
    metric = str(spec.recipe.get("objective", {}).get("metric", "val_loss"))
    console.print(progress_view(state, metric, None))


def _outcome_json(result: RunResult) -> dict[str, Any]:
    """A finished run for machines."""
    return {
        "run": result.run,
        "folder": str(result.folder.path),
        "objective": result.recipe.objective.model_dump(),
        "leaderboard": [
            {
                "config": row.config,
                "hparams": dict(row.hparams),
                "status": row.status,
                "reason": row.reason,
                "best": row.best,
                "best_epoch": row.best_epoch,
                "metrics": dict(row.curve[-1]) if row.curve else {},
                "checkpoint": row.best_checkpoint.url if row.best_checkpoint else None,
            }
            for row in result.leaderboard
        ],
    }


def _config_json(config: Config) -> dict[str, Any]:
    return {
        "status": config.status,
        "epoch": config.epoch,
        "visited": config.visited,
        "metrics": dict(config.metrics),
    }


def _unit(attempt: Attempt | None) -> str | None:
    return unit_text(attempt.unit) if attempt else None


@app.command()
def verify(
    run: Annotated[str, typer.Argument(help="Run id, or the run's folder.")],
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Check a run's recorded history and its checkpoints against the invariants."""
    from cerebro_elastic.runs.replay import verify as check
    from cerebro_elastic.runs.result import open_run

    result = open_run(run, home=home)
    violations = check(result)
    visits = sum(isinstance(event, UnitCommitted) for event in result.events)
    if as_json:
        typer.echo(json.dumps({"visits": visits, "violations": [asdict(v) for v in violations]}))
    else:
        for violation in violations:
            typer.echo(f"{violation.invariant}: {violation.story}", err=True)
        if not violations:
            typer.echo(f"{len(result.events)} events, {visits} visits: all invariants hold")
    if violations:
        raise typer.Exit(1)


@app.command()
def replay(
    run: Annotated[str, typer.Argument(help="Run id, or the run's folder.")],
    config: Annotated[str, typer.Option(help="The config to train again; `best` for the leader.")],
    home: Home = None,
) -> None:
    """Train one config again, alone, in the order of its visit log, and compare every digest."""
    from cerebro_elastic.runs.replay import replay as again
    from cerebro_elastic.runs.result import open_run

    result = open_run(run, home=home)
    name = result.best.config if config == "best" else config
    differ = total = 0
    for done in again(result, name):
        total += 1
        differ += not done.same
        mark = "same" if done.same else f"DIFFERS: recorded {done.visit.output.digest[:12]}"
        typer.echo(f"{unit_text(done.visit.unit)} on {done.visit.node}: {done.digest[:12]} {mark}")
    if differ:
        typer.echo(f"{differ} of {total} visits of {name} differ from their record", err=True)
        raise typer.Exit(1)
    typer.echo(f"all {total} visits of {name} are bit-identical to their record")


@app.command()
def doctor(home: Home = None, etcd: Etcd = None) -> None:
    """Try what a run needs of this machine, and say what works."""
    from cerebro_elastic.runs.doctor import examine

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    marks = {True: "[green]ok[/]", False: "[red]bad[/]", None: "[yellow]absent[/]"}
    findings = list(examine(home or default_home(), _store(etcd)))
    for finding in findings:
        table.add_row(marks[finding.ok], finding.what, finding.told)
    Console().print(table)
    if any(finding.ok is False for finding in findings):
        raise typer.Exit(1)


@app.callback(invoke_without_command=True)
def _main(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit
