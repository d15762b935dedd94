"""Commands that serve: the live page to people, a run to an agent, an etcd to the hosts of a run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from cerebro_elastic.cli.commands import Command, InPlace, OnRun
from cerebro_elastic.cli.options import (
    Home,
    SubmittedBy,
    argument,
    echo,
    ended_by_ctrl_c,
    option,
    parent,
    run_ids,
    watch,
)
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.folder import find_run, home_of
from cerebro_elastic.system.addresses import without_brackets
from cerebro_elastic.system.words import one_line

if TYPE_CHECKING:
    from cerebro_elastic.front_end.live_page.feeds import Places

_SWITCH_SECONDS = 0.0005
"""Seconds after which a thread that reads a long record yields to the page's requests: Python's default is
ten times as long, and a page of 1,000 configs then takes twice the time to open
(`benchmarks/first_look.py`)."""
_SHORTEST_TOKEN = 12
_LONGEST_NAME = 80


class Ui(InPlace):
    """Show live and ended runs in the browser, and steer them.

    The page stops, resumes and adds configs, lets nodes leave, and ends, extends and exports runs. It needs
    no leader and no network. Ctrl-C ends the server; no run notices.

    Example: cerebro ui digits
    """

    run: str | None = argument(
        None, "Run id, or the run's folder.", show_default="all runs", autocompletion=run_ids
    )
    host: str = option("127.0.0.1", "The address to listen on.")
    port: int | None = option(
        None, "The port; 0: any.", min=0, max=65535, show_default="the first free one from 8470"
    )
    token: str | None = option(
        None, "The secret in the address.", envvar="CEREBRO_UI_TOKEN", show_default="one that is made up"
    )
    trust_header: str | None = option(
        None, "Let in whoever a reverse proxy names in this header, without a token.", metavar="NAME"
    )
    read_only: bool = option(False, "Show everything, change nothing.")

    def __call__(self) -> None:
        from cerebro_elastic.front_end.live_page.serve import (
            address,
            check_host,
            check_installed,
            make_server,
            open_socket,
        )

        check_installed()
        host = without_brackets(self.host)
        check_host(host, token=self.token, trust_header=self.trust_header)
        if self.token is not None and len(self.token) < _SHORTEST_TOKEN:
            raise RunError(f"the token has {len(self.token)} characters: give {_SHORTEST_TOKEN} or more")
        where, shown = self._places()
        from cerebro_elastic.front_end.live_page.access import Access, kept_token

        access = Access(self.token or kept_token(where.home), self.trust_header, self.read_only)
        listener = open_socket(host, self.port)
        server = make_server(where, access)
        sys.setswitchinterval(_SWITCH_SECONDS)
        echo(f"open {address(listener, host, shown, access)}")
        echo("Ctrl-C ends the page, not the run.")
        with listener:
            server.run(sockets=[listener])

    def _places(self) -> tuple[Places, str | None]:
        """The place of the shown runs, and the run whose page is opened."""
        from cerebro_elastic.front_end.live_page.feeds import Places

        home, store = home_of(self.home), self.store
        if store is not None:
            where = Places(home, store)
            return where, where.find(self.run).id if self.run else None
        if self.run is not None:
            folder = find_run(self.run, home)
            return Places(folder.path.parent), folder.run
        if not home.is_dir():
            raise RunError(
                f"there is no folder of runs at {home.resolve()}: name one with --home, or an etcd with "
                "--etcd; `cerebro run` makes one"
            )
        return Places(home), None


class Mcp(OnRun):
    """Serve a run to an agent by the Model Context Protocol.

    The server speaks over standard input and output. The agent reads the run and, if you allow it, adds and
    stops configs: each time with a reason, which the record keeps with the agent's name. By default it may
    only read.

    Example: cerebro mcp digits --configs 5
    """

    configs: int = option(0, "How many configs the agent may add.", min=0)
    units: int | None = option(
        None, "How many units these may train in all.", min=1, show_default="any number"
    )
    stop: bool = option(False, "The agent may stop configs.")
    by: str = option("agent", "The agent's name, for the record.")

    def __call__(self) -> None:
        from cerebro_elastic.registry import load
        from cerebro_elastic.store.ledger.operators import Allowance

        run, name = self.opened(), one_line(self.by.strip())
        if not 0 < len(name) <= _LONGEST_NAME:
            raise RunError(f"--by has {len(name)} characters: give the agent a name of 1 to {_LONGEST_NAME}")
        if self.units is not None and not self.configs:
            raise RunError(f"--units is {self.units}, but no config may be added: also give --configs")
        serve = load("cerebro.servers", "mcp")
        may = "may change it" if self.configs or self.stop else "may only read it"
        echo(f"serving run {run.spec.plan.run}; the agent {may}", err=True)
        serve(run, Allowance(name, self.configs, self.units), may_stop=self.stop)


class Etcd(Command):
    """Serve an etcd for the hosts of one run, until they have ended.

    The command makes the run's key. Clients need it, and connections are encrypted. An etcd that is lost with
    its disk is restored from the record, on any machine that has the key.

    Example: cerebro etcd digits --listen 0.0.0.0
    """

    run: str = argument(..., "The id of the run that the etcd serves.")
    port: int = option(2379, "The port for clients.", min=1, max=65535)
    listen: str = option(
        "127.0.0.1", "This machine's address or name for clients; 0.0.0.0 for all its addresses."
    )
    restore: bool = option(False, "Begin with the record of the run, whose etcd is lost.")
    storage: str | None = option(
        None,
        "The run's checkpoints, with a copy of its record: an etcd without data begins with that.",
        show_default=False,
    )
    home: Home
    submitted_by: SubmittedBy

    def __call__(self) -> None:
        from cerebro_elastic.runs.start.etcd_server import FAREWELL, serve
        from cerebro_elastic.runs.terminal_view import TerminalView

        stopped = "etcd stopped; the same command continues with its data."
        with ended_by_ctrl_c(stopped, FAREWELL), TerminalView(moving=False) as view:
            watch(self.submitted_by)
            # A job on the submitting machine serves no other machine.
            listen = "127.0.0.1" if self.submitted_by == parent() else self.listen
            serve(
                self.run,
                port=self.port,
                listen=listen,
                home=self.home,
                restore=self.restore,
                storage=self.storage,
                watcher=view.watcher,
            )
