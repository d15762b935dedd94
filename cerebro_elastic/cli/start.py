"""Commands that run a recipe, alone or with other machines. Heavy modules are imported where they are used:
the imports shared by all processes of a run are done beside them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cerebro_elastic.cli.commands import InPlace, OnRun
from cerebro_elastic.cli.options import (
    Epochs,
    Grace,
    Json,
    RecipeFile,
    RunId,
    SubmittedBy,
    Verbose,
    Yes,
    agreement,
    argument,
    echo,
    ended_by_ctrl_c,
    option,
    overrides,
    watch,
)
from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import RecipeError, RunError
from cerebro_elastic.reporting.terminal import terminal
from cerebro_elastic.runs import verbs
from cerebro_elastic.runs.start.imports import SharedImports
from cerebro_elastic.system.addresses import with_port

if TYPE_CHECKING:
    from cerebro_elastic.recipes import Recipe
    from cerebro_elastic.recipes.fields import NodeRange
    from cerebro_elastic.runs.folder import RunFolder
    from cerebro_elastic.runs.run import Run as OpenedRun
    from cerebro_elastic.runs.start.extend_and_retry import Terms
    from cerebro_elastic.runs.terminal_view import TerminalView

_LEFT = "left the run; what was committed is safe, others continue, and the same command takes part again."
_STOPPED = "stopped; what was committed is safe. The same command continues from there."


NodesHere = Annotated[
    int | None,
    option(
        None,
        "Nodes on this machine; they share its GPUs.",
        min=1,
        show_default="one for each of its GPUs, else 1",
    ),
]


class _OfRecipe(InPlace):
    """A command that runs a recipe."""

    run_id: RunId
    epochs: Epochs
    checkpoints: str | None = option(
        None, "URL of the checkpoints and logs, instead of the recipe's, e.g. s3://..."
    )
    reuse: bool = option(
        False, "Take over what earlier runs of the home have trained, if code and data are the same."
    )
    grace: Grace
    verbose: Verbose

    def changed(self, recipe: Path, nodes: object) -> Recipe:
        """The recipe with the replacements of the options."""
        from cerebro_elastic.recipes import load_recipe

        return load_recipe(recipe, **overrides(nodes=nodes, epochs=self.epochs, checkpoints=self.checkpoints))

    def view(self, recipe: Recipe, **settings: Any) -> TerminalView:
        """The view of the run while it is live."""
        from cerebro_elastic.reporting.gap import search_end
        from cerebro_elastic.runs.terminal_view import TerminalView

        return TerminalView(
            recipe.objective, verbose=self.verbose, end=search_end(recipe.resolved()), **settings
        )


class Run(_OfRecipe):
    """Run a recipe on this machine, or continue an unfinished run of it.

    With --reuse, configs that earlier runs of the home have trained begin where these left them. Ctrl-C or
    SIGTERM stops the run cleanly; the same command continues it. Nodes may join at any time.

    Example: cerebro run recipes/digits.yaml --nodes 2
    """

    recipe: Path | None = argument(None, "The recipe, a YAML file.", show_default=False)
    nodes: str | None = option(None, "Number of nodes on this machine, instead of the recipe's.")
    fresh: bool = option(False, "Delete what an earlier run of this id has left.")
    yes: Yes
    as_json: Json
    ui: bool = option(False, "Serve the live page beside the run (see `cerebro ui`).")

    def __call__(self) -> None:
        if self.recipe is None:
            raise RecipeError(
                "name a recipe: cerebro run my_run.yaml. `cerebro init digits` writes one to begin with, and "
                "`cerebro init` lists others"
            )
        echo(f"reading {self.recipe}", err=self.as_json)
        with ended_by_ctrl_c(_STOPPED, self.grace), SharedImports() as imports:  # beside all of the following
            recipe = self.changed(self.recipe, self.nodes)
            from cerebro_elastic.recipes.references import check_named
            from cerebro_elastic.runs.folder import run_folder
            from cerebro_elastic.runs.start.places import check_places

            check_named(recipe)  # at once, without the slow checks
            if self.fresh or not run_folder(self.run_id or recipe.name, self.home).spec.exists():
                check_places(recipe)
            from cerebro_elastic.cli.output import conclude, show_outcome
            from cerebro_elastic.runs.start.launch import Launch

            launch = Launch.of(
                recipe,
                run_id=self.run_id,
                home=self.home,
                fresh=self.fresh,
                store=self.store,
                grace=self.grace,
                agrees=agreement(self.yes),
                reuse=self.reuse,
            )
            show, console = None if self.as_json else show_outcome, terminal(stderr=self.as_json)
            page = _page(launch.folder) if self.ui else nullcontext()
            with page, self.view(launch.recipe, console=console, conclude=show) as view:
                result = launch(view.watcher, imports)
        conclude(result, as_json=self.as_json, shown=view.concluded)


class _Continued(OnRun, verbs.Verb):
    """A command that continues a run."""

    yes: Yes
    grace: Grace
    verbose: Verbose
    as_json: Json

    @contextmanager
    def going_on(self) -> Iterator[tuple[OpenedRun, Terms, TerminalView]]:
        """The run, the terms on which it continues, and the view that shows it."""
        stopped = (
            "stopped; what was committed is safe. `cerebro run` with the run's recipe continues from there."
        )
        with ended_by_ctrl_c(stopped, self.grace), SharedImports() as imports:
            from cerebro_elastic.cli.output import show_outcome
            from cerebro_elastic.runs.start.extend_and_retry import Terms
            from cerebro_elastic.runs.terminal_view import TerminalView

            run = self.opened()
            objective, console = run.result.recipe.objective, terminal(stderr=self.as_json)
            show = None if self.as_json else show_outcome
            with TerminalView(objective, console, verbose=self.verbose, conclude=show) as view:
                agrees = agreement(self.yes)
                yield run, Terms(self.grace, watcher=view.watcher, imports=imports, agrees=agrees), view


class Extend(verbs.Extend, _Continued):
    def __call__(self) -> None:
        with self.going_on() as (run, terms, view):
            from cerebro_elastic.cli.output import conclude
            from cerebro_elastic.runs.start.extend_and_retry import extend

            result = extend(run.result, self, terms)
        conclude(result, as_json=self.as_json, shown=view.concluded)


class Retry(verbs.Retry, _Continued):
    def __call__(self) -> None:
        with self.going_on() as (run, terms, view):
            from cerebro_elastic.cli.output import conclude
            from cerebro_elastic.runs.start.extend_and_retry import retry

            result = retry(run, self.configs, self.by, terms)
        if result.view.state.outcome is not None:
            conclude(result, as_json=self.as_json, shown=view.concluded)


class Host(_OfRecipe):
    """Take part in a recipe's run, together with other machines.

    All of them run the same command. The first machine opens the run, the others join; each may lead it.
    Configs that earlier runs of the first machine's home have trained begin where these left them. The
    command ends with the run. On SIGTERM the machine's nodes leave: they finish their units, or hand them on
    part-way.

    Example: cerebro host recipes/digits.yaml --etcd etcd.example.org:2379 --hosts 2:8
    """

    recipe: Path = argument(..., "The recipe, a YAML file: the same on all machines.")
    hosts: str | None = option(None, "Machines, MIN:MAX; with --nodes it replaces the recipe's `nodes`.")
    nodes: NodesHere
    etcd: str | None = option(
        None, "HOST:PORT of an etcd, by default the recipe's; @NAME:PORT reads the host from $NAME."
    )
    submitted_by: SubmittedBy

    @property
    def store(self) -> StoreSettings | None:
        address = host_resolved(self.etcd, os.environ)
        return StoreSettings.at(address) if address else None

    def __call__(self) -> None:
        with ended_by_ctrl_c(_LEFT, self.grace), SharedImports() as imports:
            watch(self.submitted_by)
            from cerebro_elastic.cli.output import conclude, show_outcome
            from cerebro_elastic.runs.start.host import host, nodes_of_hosts

            hosts = _range(self.hosts)
            size = None if hosts is None else nodes_of_hosts(hosts, self.nodes)  # its gangs may need as many
            recipe = self.changed(self.recipe, size)
            with self.view(recipe, moving=False, conclude=show_outcome) as view:
                result = host(
                    recipe,
                    run_id=self.run_id,
                    hosts=hosts,
                    nodes=self.nodes,
                    home=self.home,
                    store=self.store,
                    grace=self.grace,
                    reuse=self.reuse,
                    watcher=view.watcher,
                    imports=imports,
                )
        conclude(result, shown=view.concluded)


class Join(OnRun):
    """Make this machine a node of a live run.

    The machine may also lead the run. The command ends with the run. On Ctrl-C or SIGTERM the node leaves: it
    finishes its unit, or hands it on part-way.

    Example: cerebro join digits --etcd etcd.example.org:2379
    """

    name: str | None = option(None, "The node's name.", show_default="the host's with a suffix")
    nodes: NodesHere
    grace: Grace

    def __call__(self) -> None:
        with ended_by_ctrl_c(_LEFT, self.grace):
            from cerebro_elastic.runs.start.join import join
            from cerebro_elastic.runs.terminal_view import TerminalView

            with TerminalView(moving=False) as view:
                result = join(
                    self.run,
                    name=self.name,
                    nodes=self.nodes,
                    home=self.home,
                    store=self.store,
                    grace=self.grace,
                    watcher=view.watcher,
                )
        echo(f"a record of the run is at {result.folder.path}")


class Ray(_OfRecipe):
    """Run a recipe on a Ray cluster, or continue its run there.

    Ray places the hosts, and replaces those that it loses. Ctrl-C or SIGTERM stops the run cleanly; the same
    command continues it, also after a kill.

    Example: cerebro ray recipes/digits.yaml --hosts 2:8 --cpus 4 --working-dir .
    """

    recipe: RecipeFile
    hosts: str | None = option(None, "Hosts, MIN:MAX; each is an actor of Ray.", show_default="its nodes")
    nodes: int | None = option(None, "Nodes of each host.", min=1, show_default="one per GPU")
    cpus: int | None = option(None, "CPUs of each host.", min=1, show_default="those of its nodes")
    gpus: int = option(0, "GPUs of each host.", min=0)
    address: str = option("auto", "HOST:PORT of the cluster's head.")
    working_dir: Path | None = option(None, "The project's folder, which Ray copies to the machines.")
    wait: bool = option(False, "Wait for larger machines, which the autoscaler is to bring.")

    def __call__(self) -> None:
        from cerebro_elastic.cli.output import conclude
        from cerebro_elastic.registry import load
        from cerebro_elastic.runs.terminal_view import Watcher

        launch = load("cerebro.launchers", "ray")
        with ended_by_ctrl_c(_STOPPED):
            result = launch(**dict(self), watcher=Watcher(say=echo))
        conclude(result)


def host_resolved(address: str | None, env: Mapping[str, str]) -> str | None:
    """Replace NAME in ``@NAME:PORT`` by the variable's value; return any other address unchanged.

    Each scheduler of torchx has its own variable for the host. If it is unset, the host is this machine.
    """
    if address is None or not address.startswith("@"):
        return address
    name, colon, port = address[1:].partition(":")
    host = env.get(name) or "localhost"
    return with_port(host, port) if colon else host


def _range(hosts: str | None) -> NodeRange | None:
    from cerebro_elastic.recipes.fields import node_range

    try:
        return None if hosts is None else node_range(hosts)
    except ValueError:
        raise RunError(f"--hosts is {hosts!r}: give a number, or a range MIN:MAX such as 2:8") from None


@contextmanager
def _page(folder: RunFolder) -> Iterator[None]:
    """Serve the live page, in a thread."""
    from cerebro_elastic.front_end.live_page.feeds import Places
    from cerebro_elastic.front_end.live_page.serve import served

    with served(Places(folder.path.parent), folder.run) as address:
        echo(f"live page: {address}", err=True)
        yield
