"""``cerebro plan``: when does a run end, and what does it cost?"""

from __future__ import annotations

from pathlib import Path

from cerebro_elastic.cli.commands import InPlace
from cerebro_elastic.cli.options import (
    Epochs,
    Json,
    argument,
    config_ids,
    echo_json,
    option,
    overrides,
    run_ids,
)
from cerebro_elastic.errors import RecipeError, RunError
from cerebro_elastic.reporting.terminal import terminal

_OF_RECIPE, _OF_RUN = ("partitions", "price"), ("lose", "stop", "deadline", "etcd")


class Plan(InPlace):
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

    what: str = argument(..., "A recipe, or a live run.", metavar="RECIPE|RUN", autocompletion=run_ids)
    nodes: str | None = option(
        None,
        "Numbers of nodes to compare; of a live run `+2`: how many join.",
        show_default="1,2,4,8 and the recipe's",
    )
    partitions: str | None = option(
        None, "Numbers of partitions to compare.", show_default="the recipe's, and the numbers of nodes"
    )
    epochs: Epochs
    price: float | None = option(None, "The price of a node for an hour, in any currency.", min=0)
    like: str | None = option(
        None,
        "Train nothing: units take what they took in this run, and log the same.",
        "--from",
        metavar="RUN",
    )
    lose: list[str] = option([], "A node that the live run loses; also several.", metavar="NODE")
    stop: list[str] = option(
        [],
        "A config of the live run that is stopped; also several.",
        metavar="CONFIG",
        autocompletion=config_ids,
    )
    deadline: str | None = option(
        None, "Does the live run meet it? 2h30m, or a date, T, and a time.", metavar="WHEN"
    )
    as_json: Json

    def __call__(self) -> None:
        if not (Path(self.what).is_file() or self.what.endswith((".yaml", ".yml"))):
            self._refuse("a live run", *_OF_RECIPE, "like", "epochs")
            self._live()
        elif self.like is not None:
            self._refuse("--from", *_OF_RECIPE, *_OF_RUN)
            self._recorded(self.like)
        else:
            self._refuse("a recipe", *_OF_RUN)
            self._measured()

    def _refuse(self, what: str, *others: str) -> None:
        """Refuse options that have no meaning for ``what``."""
        if given := ["--from" if name == "like" else f"--{name}" for name in others if getattr(self, name)]:
            raise RecipeError(
                f"{', '.join(given)} would do nothing for {what}: leave it out (cerebro plan --help)"
            )

    def _measured(self) -> None:
        from cerebro_elastic.cli.plan_views import planned_json, show_planned
        from cerebro_elastic.recipes import load_recipe
        from cerebro_elastic.runs.forecast.plan import plan

        nodes, partitions = _numbers(self.nodes, "--nodes"), _numbers(self.partitions, "--partitions")
        recipe, console = load_recipe(self.what, **overrides(epochs=self.epochs)), terminal(stderr=True)

        def say(text: str) -> None:
            console.print(text, soft_wrap=True, style="dim")

        found = plan(recipe, nodes=nodes, partitions=partitions, home=self.home, say=say)
        if self.as_json:
            _print_json(measured=planned_json(found, self.price))
        else:
            show_planned(terminal(), recipe, found, self.price)

    def _recorded(self, like: str) -> None:
        from cerebro_elastic.cli.plan_views import show_simulated, simulated_json
        from cerebro_elastic.recipes import load_recipe
        from cerebro_elastic.runs.forecast.simulate import simulate

        recipe = load_recipe(self.what, **overrides(nodes=self.nodes, epochs=self.epochs))
        result = simulate(recipe, like=like, home=self.home)
        if self.as_json:
            _print_json(simulated=simulated_json(result))
        else:
            show_simulated(recipe, result)

    def _live(self) -> None:
        from cerebro_elastic.cli.plan_views import show_live
        from cerebro_elastic.runs.run import Run

        run, add = Run.open(self.what, home=self.home, store=self.store), _joining(self.nodes)
        answer = run.plan(lose=self.lose, add=add, stop=self.stop, deadline=self.deadline)
        if self.as_json:
            _print_json(live=answer)
        else:
            show_live(answer)


def _print_json(**part: object) -> None:
    echo_json({"measured": None, "simulated": None, "live": None, **part})


def _numbers(text: str | None, option: str) -> list[int]:
    """The numbers in a text such as ``1,2,4``."""
    numbers = [] if text is None else [part.strip() for part in text.split(",")]
    if not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise RecipeError(f"{option} is {text!r}: give whole numbers above 0, like 1,2,4")
    return [int(number) for number in numbers]


def _joining(text: str | None) -> int:
    """The number in a text such as ``+2``."""
    if text is None:
        return 0
    if not (text.startswith("+") and text[1:].isdecimal()):
        raise RunError(f"--nodes is {text!r}: of a live run give how many join, like +2, or --lose NODE")
    return int(text)
