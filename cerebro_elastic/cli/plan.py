"""``cerebro plan``: when does a run end, and what does it cost?"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cerebro_elastic.cli.options import (
    Epochs,
    Etcd,
    Home,
    Json,
    config_ids,
    echo_json,
    overrides,
    run_ids,
    store_of,
)
from cerebro_elastic.errors import RecipeError, RunError

if TYPE_CHECKING:
    from cerebro_elastic.simulation import Times


def plan(
    what: Annotated[
        str, typer.Argument(metavar="RECIPE|RUN", help="A recipe, or a live run.", autocompletion=run_ids)
    ],
    nodes: Annotated[
        str | None,
        typer.Option(
            help="Numbers of nodes to compare; of a live run `+2`: how many join.",
            show_default="1,2,4,8 and the recipe's",
        ),
    ] = None,
    partitions: Annotated[
        str | None,
        typer.Option(
            help="Numbers of partitions to compare.", show_default="the recipe's, and the numbers of nodes"
        ),
    ] = None,
    epochs: Epochs = None,
    price: Annotated[
        float | None, typer.Option(min=0, help="The price of a node for an hour, in any currency.")
    ] = None,
    toy: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS", help="Units take this long: a number, or a JSON file by config and node."
        ),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="RUN", help="Units take what they took in this run, and log the same."
        ),
    ] = None,
    noise: Annotated[
        float, typer.Option(min=0, max=3, help="Spread of the toy's seconds (sigma of a log-normal).")
    ] = 0.0,
    faults: Annotated[
        Path | None, typer.Option(help="A file with lines like `kill node-1 at 30 for 10`, for a toy.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="A toy's seed, instead of the recipe's.")] = None,
    report: Annotated[str | None, typer.Option(help="Write a toy's report page: a file or URL.")] = None,
    lose: Annotated[
        list[str] | None, typer.Option(metavar="NODE", help="A node that the live run loses; also several.")
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONFIG",
            help="A config of the live run that is stopped; also several.",
            autocompletion=config_ids,
        ),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Does the live run meet it? 2h30m, or a date, T, and a time."),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Prices of spot machines (CSV: time,price): when shall nodes join and leave?",
        ),
    ] = None,
    home: Home = None,
    etcd: Etcd = None,
    as_json: Json = False,
) -> None:
    """Forecast when a run ends and what it costs.

    Of a recipe the command trains a few batches here by each parallelism, simulates the rest, and finds the
    best numbers of nodes and partitions. With --toy or --from it trains nothing: seconds are those given, or
    those of a recorded run.

    Of a live run it simulates the rest from its present state: as it is, and if nodes are lost or join, or
    configs are stopped. If a deadline is missed, the answer has how many more nodes, or which fewer configs,
    meet it. With prices it has when nodes join and leave, so that the run costs least. Nothing is changed.

    Example: cerebro plan recipes/digits.yaml --nodes 1,2,4 --price 2.50

    Example: cerebro plan recipes/digits.yaml --toy 12 --noise 0.2 --nodes 4

    Example: cerebro plan digits --lose digits-node-1 --nodes +2 --deadline 2h
    """
    of_recipe: dict[str, object] = {"--partitions": partitions, "--price": price}
    of_toy: dict[str, object] = {
        "--noise": noise or None,
        "--faults": faults,
        "--seed": seed,
        "--report": report,
    }
    of_run: dict[str, object] = {
        "--lose": lose,
        "--stop": stop,
        "--deadline": deadline,
        "--prices": prices,
        "--etcd": etcd,
    }
    is_toy: dict[str, object] = {"--toy": toy, "--from": like}
    if not (Path(what).is_file() or what.endswith((".yaml", ".yml"))):
        _only("a live run", of_recipe | of_toy | is_toy | {"--epochs": epochs})
        _live(what, home, etcd, _joining(nodes), lose or [], stop or [], deadline, prices, as_json)
    elif toy is not None or like is not None:
        _only("a toy", of_recipe | of_run)
        changed = overrides(nodes=nodes, epochs=epochs, seed=seed)
        _toy(what, changed, _times(toy), like, noise, faults, report, home, as_json)
    else:
        _only("a recipe without --toy or --from", of_toy | of_run)
        numbers = _numbers(nodes, "--nodes"), _numbers(partitions, "--partitions")
        _measured(what, numbers, epochs, price, home, as_json)


def _only(what: str, others: Mapping[str, object]) -> None:
    """Refuse options that say nothing of this."""
    if given := [name for name, value in others.items() if value]:
        raise RecipeError(
            f"{', '.join(given)} would do nothing for {what}: leave it out (cerebro plan --help)"
        )


def _measured(
    recipe: str,
    numbers: tuple[list[int], list[int]],
    epochs: int | None,
    price: float | None,
    home: str | None,
    as_json: bool,
) -> None:
    from cerebro_elastic.cli.plan_views import planned_json, show_planned
    from cerebro_elastic.recipes import load_recipe
    from cerebro_elastic.reporting.terminal import terminal
    from cerebro_elastic.runs.forecast.plan import plan as forecast

    checked, console = load_recipe(recipe, **overrides(epochs=epochs)), terminal(stderr=True)
    found = forecast(
        checked,
        nodes=numbers[0],
        partitions=numbers[1],
        home=home,
        say=lambda text: console.print(text, soft_wrap=True, style="dim"),
    )
    if as_json:
        _print_json(measured=planned_json(found, price))
    else:
        show_planned(terminal(), checked, found, price)


def _toy(
    recipe: str,
    changed: Mapping[str, Any],
    times: Times | None,
    like: str | None,
    noise: float,
    faults: Path | None,
    report: str | None,
    home: str | None,
    as_json: bool,
) -> None:
    from cerebro_elastic.cli.plan_views import show_simulated, simulated_json
    from cerebro_elastic.recipes import load_recipe
    from cerebro_elastic.reporting.tables import clock_text
    from cerebro_elastic.runs.forecast.simulate import simulate
    from cerebro_elastic.runs.results.report import write_page

    checked = load_recipe(recipe, **changed)
    result = simulate(
        checked,
        seconds=times,
        like=like,
        noise=noise,
        faults=_text(faults),
        start_time=time.time() if report else 0.0,
        home=home,
    )
    if report is not None:
        write_page(result.spec, result.simulation.events, report)
    if as_json:
        _print_json(simulated=simulated_json(result))
    else:
        show_simulated(checked, result, report)
    if result.simulation.state.outcome is None:
        raise RunError(
            f"the run stands still after {clock_text(result.simulation.seconds)}: no node is left that could "
            "do a unit, and none comes; give it nodes that come back (`kill NODE at 30 for 10`, `join`)"
        )


def _live(
    run: str,
    home: str | None,
    etcd: str | None,
    add: int,
    lose: list[str],
    stop: list[str],
    deadline: str | None,
    prices: Path | None,
    as_json: bool,
) -> None:
    from cerebro_elastic.cli.plan_views import show_live
    from cerebro_elastic.runs.run import Run

    opened = Run.open(run, home=home, store=store_of(etcd))
    answer = opened.plan(lose=lose, add=add, stop=stop, deadline=deadline, prices=prices)
    if as_json:
        _print_json(live=answer)
    else:
        show_live(answer)


def _print_json(**part: object) -> None:
    echo_json({"measured": None, "simulated": None, "live": None, **part})


def _numbers(text: str | None, option: str) -> list[int]:
    """``1,2,4``."""
    numbers = [] if text is None else [part.strip() for part in text.split(",")]
    if not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise RecipeError(f"{option} is {text!r}: give whole numbers above 0, like 1,2,4")
    return [int(number) for number in numbers]


def _joining(text: str | None) -> int:
    """``+2``."""
    if text is None:
        return 0
    if not (text.startswith("+") and text[1:].isdecimal()):
        raise RunError(f"--nodes is {text!r}: of a live run give how many join, like +2, or --lose NODE")
    return int(text)


def _times(seconds: str | None) -> Times | None:
    from cerebro_elastic.scheduling.openshop.checks import LARGEST
    from cerebro_elastic.simulation import Times, read_times

    if seconds is None:
        return None
    try:
        number = float(seconds)
    except ValueError:
        return read_times(Path(seconds))
    if not 0 < number <= LARGEST:
        raise RecipeError(
            f"--toy is {seconds}: a unit takes a number above 0, at most {LARGEST:g}, or what a JSON "
            "file says"
        )
    return Times(usual=number)


def _text(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as exc:
        raise RecipeError(
            f"the faults cannot be read: {exc}: --faults names a file of sentences, one on each line, such "
            "as `kill node-1 at 30 for 10` (docs/how-to/forecast.md)"
        ) from exc
