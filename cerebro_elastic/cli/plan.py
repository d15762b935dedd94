"""``cerebro plan``: when does a run end, and what does it cost?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

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
    like: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="Train nothing: units take what they took in this run, and log the same.",
        ),
    ] = None,
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
    home: Home = None,
    etcd: Etcd = None,
    as_json: Json = False,
) -> None:
    """Forecast when a run ends and what it costs.

    Of a recipe the command trains a few batches here by each parallelism, simulates the rest, and finds the
    best numbers of nodes and partitions. With --from it trains nothing: seconds are those of a recorded run.

    Of a live run it simulates the rest from its present state: as it is, and if nodes are lost or join, or
    configs are stopped. If a deadline is missed, the answer has how many more nodes, or which fewer configs,
    meet it. Nothing is changed.

    Example: cerebro plan recipes/digits.yaml --nodes 1,2,4 --price 2.50

    Example: cerebro plan recipes/digits.yaml --from digits --nodes 4

    Example: cerebro plan digits --lose digits-node-1 --nodes +2 --deadline 2h
    """
    of_recipe: dict[str, object] = {"--partitions": partitions, "--price": price}
    of_run: dict[str, object] = {"--lose": lose, "--stop": stop, "--deadline": deadline, "--etcd": etcd}
    if not (Path(what).is_file() or what.endswith((".yaml", ".yml"))):
        _only("a live run", of_recipe | {"--from": like, "--epochs": epochs})
        _live(what, home, etcd, _joining(nodes), lose or [], stop or [], deadline, as_json)
    elif like is not None:
        _only("--from", of_recipe | of_run)
        _recorded(what, overrides(nodes=nodes, epochs=epochs), like, home, as_json)
    else:
        _only("a recipe", of_run)
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


def _recorded(recipe: str, changed: Mapping[str, Any], like: str, home: str | None, as_json: bool) -> None:
    from cerebro_elastic.cli.plan_views import show_simulated, simulated_json
    from cerebro_elastic.recipes import load_recipe
    from cerebro_elastic.runs.forecast.simulate import simulate

    checked = load_recipe(recipe, **changed)
    result = simulate(checked, like=like, home=home)
    if as_json:
        _print_json(simulated=simulated_json(result))
    else:
        show_simulated(checked, result)


def _live(
    run: str,
    home: str | None,
    etcd: str | None,
    add: int,
    lose: list[str],
    stop: list[str],
    deadline: str | None,
    as_json: bool,
) -> None:
    from cerebro_elastic.cli.plan_views import show_live
    from cerebro_elastic.runs.run import Run

    opened = Run.open(run, home=home, store=store_of(etcd))
    answer = opened.plan(lose=lose, add=add, stop=stop, deadline=deadline)
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
