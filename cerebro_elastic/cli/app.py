"""The commands. Each calls one function of the package and prints its result for people or as JSON."""

from __future__ import annotations

from collections import UserDict
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cerebro_elastic.cli.options import echo
from cerebro_elastic.system.version import __version__

_MODULES = {
    "run": "start",
    "join": "start",
    "drain": "control",
    "check": "check",
    "init": "init",
    "prepare": "prepare",
    "status": "status",
    "ui": "ui",
    "doctor": "status",
    "host": "start",
    "etcd": "start",
    "ray": "start",
    "stop": "control",
    "resume": "control",
    "clone": "control",
    "extend": "start",
    "retry": "start",
    "verify": "results",
    "replay": "results",
    "export": "results",
    "report": "results",
    "track": "results",
    "profile": "status",
    "plan": "plan",
    "simulate": "simulate",
}
"""The module of each command, which has a function of that name. The order is that of ``cerebro --help``."""


class _Commands(UserDict[str, Any]):
    """The commands by name. Each is imported when it is used: importing all takes more than a second."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(_MODULES))

    def __getitem__(self, name: str) -> Any:
        if super().__getitem__(name) is None:
            single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            single.command(name)(getattr(import_module(f"cerebro_elastic.cli.{_MODULES[name]}"), name))
            self[name] = typer.main.get_command(single)
        return super().__getitem__(name)


class _Group(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()


app = typer.Typer(
    name="cerebro",
    cls=_Group,
    help="Train many configurations by Model Hopper Parallelism: the data stay in place, the models move.\n\n"
    "Example: cerebro init digits, then cerebro run digits.yaml",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _main(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        echo(__version__)
        raise typer.Exit
