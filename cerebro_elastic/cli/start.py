"""Commands that run a recipe, alone or with other machines. Heavy modules are imported where they are used:
what all processes of a run share is imported beside them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cerebro_elastic.cli.options import (
    By,
    Checkpoints,
    Epochs,
    Etcd,
    Grace,
    Home,
    Json,
    Reuse,
    RunId,
    RunName,
    SubmittedBy,
    Verbose,
    Yes,
    agreement,
    config_ids,
    echo,
    ended_by_ctrl_c,
    overrides,
    parent,
    store_of,
    watch,
)
from cerebro_elastic.config import GRACE
from cerebro_elastic.errors import RecipeError, RunError
from cerebro_elastic.runs.start.imports import SharedImports
from cerebro_elastic.system.addresses import with_port
from cerebro_elastic.system.words import one_line

if TYPE_CHECKING:
    from cerebro_elastic.recipes.fields import NodeRange
    from cerebro_elastic.runs.folder import RunFolder
    from cerebro_elastic.runs.run import Run
    from cerebro_elastic.runs.start.extend_and_retry import Terms
    from cerebro_elastic.runs.terminal_view import TerminalView

_LEFT = "left the run; what was committed is safe, others continue, and the same command takes part again."
_STOPPED = "stopped; what was committed is safe. The same command continues from there."


NodesHere = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Nodes on this machine; they share its GPUs.",
        show_default="one for each of its GPUs, else 1",
    ),
]


def run(
    recipe: Annotated[
        Path | None, typer.Argument(help="The recipe, a YAML file.", show_default=False)
    ] = None,
    run_id: RunId = None,
    nodes: Annotated[
        str | None, typer.Option(help="Number of nodes on this machine, instead of the recipe's.")
    ] = None,
    epochs: Epochs = None,
    checkpoints: Checkpoints = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Delete what an earlier run of this id has left.")
    ] = False,
    reuse: Reuse = False,
    yes: Yes = False,
    home: Home = None,
    etcd: Etcd = None,
    grace: Grace = GRACE,
    verbose: Verbose = False,
    as_json: Json = False,
    ui: Annotated[
        bool, typer.Option("--ui", help="Serve the live page beside the run (see `cerebro ui`).")
    ] = False,
) -> None:
    """Run a recipe on this machine, or continue an unfinished run of it.

    With --reuse, configs that earlier runs of the home have trained begin where these left them. Ctrl-C or
    SIGTERM stops the run cleanly; the same command continues it. Nodes may join at any time.

    Example: cerebro run recipes/digits.yaml --nodes 2
    """
    if recipe is None:
        raise RecipeError(
            "name a recipe: cerebro run my_run.yaml. `cerebro init digits` writes one to begin with, and "
            "`cerebro init` lists others"
        )
    echo(f"reading {recipe}", err=as_json)
    with ended_by_ctrl_c(_STOPPED, grace), SharedImports() as imports:  # they continue beside all below
        from cerebro_elastic.recipes import load_recipe
        from cerebro_elastic.recipes.references import check_named
        from cerebro_elastic.runs.folder import run_folder
        from cerebro_elastic.runs.start.places import check_places

        checked = load_recipe(recipe, **overrides(nodes=nodes, epochs=epochs, checkpoints=checkpoints))
        check_named(checked)  # at once, without what takes a while
        if fresh or not run_folder(run_id or checked.name, home).spec.exists():
            check_places(checked)
        from cerebro_elastic.cli.output import conclude, show_outcome
        from cerebro_elastic.reporting.gap import search_end
        from cerebro_elastic.reporting.terminal import terminal
        from cerebro_elastic.runs.start.launch import Launch
        from cerebro_elastic.runs.terminal_view import TerminalView

        launch = Launch.of(
            checked,
            run_id=run_id,
            home=home,
            fresh=fresh,
            store=store_of(etcd),
            grace=grace,
            agrees=agreement(yes),
            reuse=reuse,
        )
        console, end = terminal(stderr=as_json), search_end(launch.recipe.resolved())
        show = None if as_json else show_outcome
        view = TerminalView(launch.recipe.objective, console, verbose=verbose, end=end, conclude=show)
        with _page(launch.folder) if ui else nullcontext(), view:
            result = launch(view.watcher, imports)
    conclude(result, as_json=as_json, shown=view.concluded)


def extend(
    run: RunName,
    epochs: Annotated[int | None, typer.Option(help="Epochs of each config in all.")] = None,
    num: Annotated[int | None, typer.Option(help="Configs that the search may propose in all.")] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="A later bound of search.budget: units=400, deadline=2026-12-01T08:00."
        ),
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option(help="Only this config gets more epochs; may be given again.")
    ] = None,
    top: Annotated[
        int | None, typer.Option(help="How many of the best configs get more epochs; all by default.")
    ] = None,
    by: By = "",
    yes: Yes = False,
    home: Home = None,
    etcd: Etcd = None,
    grace: Grace = GRACE,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Continue an ended run, for more epochs, configs or budget.

    Each config continues from its last checkpoint, as a resumed fit does: a schedule that was made for the
    former number of epochs stays as it was. Ctrl-C stops the run cleanly; `cerebro run` with its recipe
    continues it.

    Example: cerebro extend digits --epochs 20 --top 3
    """
    bounds = dict(map(_bound, budget or []))
    with _going_on(run, home, etcd, grace, yes, verbose, as_json) as (opened, terms, view):
        from cerebro_elastic.cli.output import conclude
        from cerebro_elastic.runs.extension import Wish
        from cerebro_elastic.runs.start.extend_and_retry import extend as perform

        wish = Wish(epochs, num, bounds, tuple(config or ()), top, by)
        result = perform(opened.result, wish, terms)
    conclude(result, as_json=as_json, shown=view.concluded)


def retry(
    run: RunName,
    configs: Annotated[
        list[str] | None,
        typer.Argument(metavar="CONFIG", help="Failed configs; by default all.", autocompletion=config_ids),
    ] = None,
    by: By = "",
    yes: Yes = False,
    home: Home = None,
    etcd: Etcd = None,
    grace: Grace = GRACE,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Train failed configs again, with the code as it is now.

    They continue from their last checkpoints, or from the start if they have none; all others stay as they
    are. An ended run continues in this command, and the record says which were tried again. In a live run
    they continue at once, with the code that the run has imported.

    Example: cerebro retry digits
    """
    with _going_on(run, home, etcd, grace, yes, verbose, as_json) as (opened, terms, view):
        from cerebro_elastic.cli.output import conclude
        from cerebro_elastic.runs.start.extend_and_retry import retry as perform

        result = perform(opened, configs or (), one_line(by), terms)
    if result.view.state.outcome is not None:
        conclude(result, as_json=as_json, shown=view.concluded)


def host(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file: the same on all machines.")],
    run_id: RunId = None,
    hosts: Annotated[
        str | None, typer.Option(help="Machines, MIN:MAX; with --nodes it replaces the recipe's `nodes`.")
    ] = None,
    nodes: NodesHere = None,
    epochs: Epochs = None,
    checkpoints: Checkpoints = None,
    home: Home = None,
    etcd: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of an etcd, by default the recipe's; @NAME:PORT reads the host from $NAME."
        ),
    ] = None,
    grace: Grace = GRACE,
    reuse: Reuse = False,
    verbose: Verbose = False,
    submitted_by: SubmittedBy = None,
) -> None:
    """Take part in a recipe's run, together with other machines.

    All of them run the same command. The first machine opens the run, the others join; each may lead it.
    Configs that earlier runs of the first machine's home have trained begin where these left them. The
    command ends with the run. On SIGTERM the machine's nodes leave: they finish their units, or hand them on
    part-way.

    Example: cerebro host recipes/digits.yaml --etcd etcd.example.org:2379 --hosts 2:8
    """
    with ended_by_ctrl_c(_LEFT, grace), SharedImports() as imports:
        watch(submitted_by)
        from cerebro_elastic.cli.output import conclude, show_outcome
        from cerebro_elastic.recipes import load_recipe
        from cerebro_elastic.reporting.gap import search_end
        from cerebro_elastic.reporting.terminal import terminal
        from cerebro_elastic.runs.start.host import host as take_part
        from cerebro_elastic.runs.start.host import nodes_of_hosts
        from cerebro_elastic.runs.terminal_view import TerminalView

        machines = _range(hosts)
        size = None if machines is None else nodes_of_hosts(machines, nodes)  # its gangs may need as many
        checked = load_recipe(recipe, **overrides(nodes=size, epochs=epochs, checkpoints=checkpoints))
        end = search_end(checked.resolved())
        view = TerminalView(
            checked.objective,
            terminal(),
            moving=False,
            verbose=verbose,
            end=end,
            conclude=show_outcome,
        )
        with view:
            result = take_part(
                checked,
                run_id=run_id,
                hosts=machines,
                nodes=nodes,
                home=home,
                store=store_of(host_resolved(etcd, os.environ)),
                grace=grace,
                reuse=reuse,
                watcher=view.watcher,
                imports=imports,
            )
    conclude(result, shown=view.concluded)


def join(
    run: RunName,
    name: Annotated[
        str | None, typer.Option(help="The node's name.", show_default="the host's with a suffix")
    ] = None,
    nodes: NodesHere = None,
    home: Home = None,
    etcd: Etcd = None,
    grace: Grace = GRACE,
) -> None:
    """Make this machine a node of a live run.

    The machine may also lead the run. The command ends with the run. On Ctrl-C or SIGTERM the node leaves: it
    finishes its unit, or hands it on part-way.

    Example: cerebro join digits --etcd etcd.example.org:2379
    """
    with ended_by_ctrl_c(_LEFT, grace):
        from cerebro_elastic.reporting.terminal import terminal
        from cerebro_elastic.runs.start.join import join as take_part
        from cerebro_elastic.runs.terminal_view import TerminalView

        with TerminalView(None, terminal(), moving=False) as view:
            result = take_part(
                run,
                name=name,
                nodes=nodes,
                home=home,
                store=store_of(etcd),
                grace=grace,
                watcher=view.watcher,
            )
    echo(f"a record of the run is at {result.folder.path}")


def etcd(
    run: Annotated[str, typer.Argument(help="The id of the run that the etcd serves.")],
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port for clients.")] = 2379,
    listen: Annotated[
        str, typer.Option(help="This machine's address or name for clients; 0.0.0.0 for all its addresses.")
    ] = "127.0.0.1",
    restore: Annotated[
        bool, typer.Option("--restore", help="Begin with the record of the run, whose etcd is lost.")
    ] = False,
    storage: Annotated[
        str | None,
        typer.Option(
            help="The run's checkpoints, with a copy of its record: an etcd without data begins with that.",
            show_default=False,
        ),
    ] = None,
    home: Home = None,
    submitted_by: SubmittedBy = None,
) -> None:
    """Serve an etcd for the hosts of one run, until they have ended.

    The command makes the run's key. Clients need it, and connections are encrypted. An etcd that is lost with
    its disk is restored from the record, on any machine that has the key.

    Example: cerebro etcd digits --listen 0.0.0.0
    """
    from cerebro_elastic.reporting.terminal import terminal
    from cerebro_elastic.runs.start.etcd_server import FAREWELL, serve
    from cerebro_elastic.runs.terminal_view import TerminalView

    stopped = "etcd stopped; the same command continues with its data."
    with ended_by_ctrl_c(stopped, FAREWELL), TerminalView(None, terminal(), moving=False) as view:
        watch(submitted_by)
        # A job on the submitting machine serves no other machine.
        listen = "127.0.0.1" if submitted_by == parent() else listen
        serve(
            run,
            port=port,
            listen=listen,
            home=home,
            restore=restore,
            storage=storage,
            watcher=view.watcher,
        )


def ray(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file.")],
    run_id: RunId = None,
    hosts: Annotated[
        str | None, typer.Option(help="Hosts, MIN:MAX; each is an actor of Ray.", show_default="its nodes")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Nodes of each host.", show_default="one per GPU")
    ] = None,
    cpus: Annotated[
        int | None, typer.Option(min=1, help="CPUs of each host.", show_default="those of its nodes")
    ] = None,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of each host.")] = 0,
    address: Annotated[str, typer.Option(help="HOST:PORT of the cluster's head.")] = "auto",
    working_dir: Annotated[
        Path | None, typer.Option(help="The project's folder, which Ray copies to the machines.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for larger machines, which the autoscaler is to bring.")
    ] = False,
    epochs: Epochs = None,
    checkpoints: Checkpoints = None,
    home: Home = None,
    etcd: Etcd = None,
    grace: Grace = GRACE,
    reuse: Reuse = False,
    verbose: Verbose = False,
) -> None:
    """Run a recipe on a Ray cluster, or continue its run there.

    Ray places the hosts, and replaces those that it loses. Ctrl-C or SIGTERM stops the run cleanly; the same
    command continues it, also after a kill.

    Example: cerebro ray recipes/digits.yaml --hosts 2:8 --cpus 4 --working-dir .
    """
    from cerebro_elastic.cli.output import conclude
    from cerebro_elastic.registry import load
    from cerebro_elastic.runs.terminal_view import Watcher

    launch = load("cerebro.launchers", "ray")
    with ended_by_ctrl_c(_STOPPED):
        result = launch(
            recipe,
            run_id=run_id,
            hosts=hosts,
            nodes=nodes,
            cpus=cpus,
            gpus=gpus,
            address=address,
            working_dir=working_dir,
            wait=wait,
            home=home,
            etcd=etcd,
            epochs=epochs,
            checkpoints=checkpoints,
            grace=grace,
            reuse=reuse,
            verbose=verbose,
            watcher=Watcher(say=echo),
        )
    conclude(result)


@contextmanager
def _going_on(
    run: str, home: str | None, etcd: str | None, grace: float, yes: bool, verbose: bool, as_json: bool
) -> Iterator[tuple[Run, Terms, TerminalView]]:
    """The run that a command continues, on which terms, and the view that shows it meanwhile."""
    stopped = "stopped; what was committed is safe. `cerebro run` with the run's recipe continues from there."
    with ended_by_ctrl_c(stopped, grace), SharedImports() as imports:
        from cerebro_elastic.cli.output import show_outcome
        from cerebro_elastic.reporting.terminal import terminal
        from cerebro_elastic.runs.run import Run
        from cerebro_elastic.runs.start.extend_and_retry import Terms
        from cerebro_elastic.runs.terminal_view import TerminalView

        opened = Run.open(run, home=home, store=store_of(etcd))
        objective, console = opened.result.recipe.objective, terminal(stderr=as_json)
        show = None if as_json else show_outcome
        with TerminalView(objective, console, verbose=verbose, conclude=show) as view:
            terms = Terms(grace, watcher=view.watcher, imports=imports, agrees=agreement(yes))
            yield opened, terms, view


def host_resolved(address: str | None, env: Mapping[str, str]) -> str | None:
    """Replace NAME in ``@NAME:PORT`` by the variable's value; return any other address as it is.

    Each scheduler of torchx has a variable of its own for the host. Where it is not set, the host is this
    machine.
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


def _bound(text: str) -> tuple[str, float | str]:
    name, _, value = text.partition("=")
    if name == "deadline":
        return name, value
    try:
        return name, float(value)
    except ValueError as exc:
        raise typer.BadParameter(f"{text!r} is not KEY=NUMBER, such as units=400") from exc


@contextmanager
def _page(folder: RunFolder) -> Iterator[None]:
    """Serve the live page, in a thread."""
    from cerebro_elastic.front_end.live_page.feeds import Places
    from cerebro_elastic.front_end.live_page.serve import served

    with served(Places(folder.path.parent), folder.run) as address:
        echo(f"live page: {address}", err=True)
        yield
