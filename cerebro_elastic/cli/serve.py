"""Commands that serve runs: the live page to people, and one run to an agent."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cerebro_elastic.cli.options import Etcd, Home, echo, on_run, run_ids, store_of
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.folder import find_run, home_of
from cerebro_elastic.system.addresses import without_brackets
from cerebro_elastic.system.words import one_line

if TYPE_CHECKING:
    from cerebro_elastic.front_end.live_page.feeds import Places
    from cerebro_elastic.runs.run import Run

_SWITCH_SECONDS = 0.0005
"""How often a thread that reads a long record yields to the page's requests: by Python's default ten times as
seldom, with which a page of 1,000 configs opens in twice the time (`benchmarks/first_look.py`)."""
_SHORTEST_TOKEN = 12
_LONGEST_NAME = 80


def ui(
    run: Annotated[
        str | None,
        typer.Argument(help="Run id, or the run's folder.", show_default="all runs", autocompletion=run_ids),
    ] = None,
    home: Home = None,
    etcd: Etcd = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="The port; 0: any.", show_default="the first free one from 8470"),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="CEREBRO_UI_TOKEN", help="The secret in the address.", show_default="one that is made up"
        ),
    ] = None,
    trust_header: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Let in whoever a reverse proxy names in this header, without a token."
        ),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Show everything, change nothing.")] = False,
) -> None:
    """Show live and ended runs in the browser, and steer them.

    The page stops, resumes and adds configs, lets nodes leave, and ends, extends and exports runs. It needs
    no leader and no network. Ctrl-C ends the server; no run notices.

    Example: cerebro ui digits
    """
    from cerebro_elastic.front_end.live_page.serve import (
        address,
        check_host,
        check_installed,
        make_server,
        open_socket,
    )

    check_installed()
    host = without_brackets(host)
    check_host(host, token=token, trust_header=trust_header)
    if token is not None and len(token) < _SHORTEST_TOKEN:
        raise RunError(f"the token has {len(token)} characters: give {_SHORTEST_TOKEN} or more")
    where, shown = _places(run, home, etcd)
    from cerebro_elastic.front_end.live_page.access import Access, kept_token

    access = Access(token or kept_token(where.home), trust_header, read_only)
    listener = open_socket(host, port)
    server = make_server(where, access)
    sys.setswitchinterval(_SWITCH_SECONDS)
    echo(f"open {address(listener, host, shown, access)}")
    echo("Ctrl-C ends the page, not the run.")
    with listener:
        server.run(sockets=[listener])


def _places(run: str | None, home: str | None, etcd: str | None) -> tuple[Places, str | None]:
    """Where the runs are that are shown, and the run whose page is opened."""
    from cerebro_elastic.front_end.live_page.feeds import Places

    store = store_of(etcd)
    if store is not None:
        where = Places(home_of(home), store)
        return where, where.find(run).id if run else None
    if run is None:
        folder_of_runs = home_of(home)
        if not folder_of_runs.is_dir():
            raise RunError(
                f"there is no folder of runs at {folder_of_runs.resolve()}: name one with --home, or an etcd "
                "with --etcd; `cerebro run` makes one"
            )
        return Places(folder_of_runs), None
    folder = find_run(run, home)
    return Places(folder.path.parent), folder.run


@on_run
def mcp(
    run: Run,
    configs: Annotated[int, typer.Option(min=0, help="How many configs the agent may add.")] = 0,
    units: Annotated[
        int | None,
        typer.Option(min=1, help="How many units these may train in all.", show_default="any number"),
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="The agent may stop configs.")] = False,
    by: Annotated[str, typer.Option(help="The agent's name, for the record.")] = "agent",
) -> None:
    """Serve a run to an agent by the Model Context Protocol.

    The server speaks over standard input and output. The agent reads the run and, if you allow it, adds and
    stops configs: each time with a reason, which the record keeps with the agent's name. By default it may
    only read.

    Example: cerebro mcp digits --configs 5
    """
    from cerebro_elastic.registry import load
    from cerebro_elastic.store.ledger.operators import Allowance

    name = one_line(by.strip())
    if not 0 < len(name) <= _LONGEST_NAME:
        raise RunError(f"--by has {len(name)} characters: give the agent a name of 1 to {_LONGEST_NAME}")
    if units is not None and not configs:
        raise RunError(f"--units is {units}, but no config may be added: also give --configs")
    serve = load("cerebro.servers", "mcp")
    may = "may change it" if configs or stop else "may only read it"
    echo(f"serving run {run.spec.plan.run}; the agent {may}", err=True)
    serve(run, Allowance(name, configs, units), may_stop=stop)
