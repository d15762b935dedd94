"""The commands. Each does what a function of the package does, and shows it to people or machines."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cerebro_elastic.cli.options import echo
from cerebro_elastic.version import __version__

_HOMES = {
    "run": "run",
    "join": "join",
    "drain": "join",
    "check": "check",
    "init": "init",
    "prepare": "prepare",
    "status": "status",
    "doctor": "status",
    "host": "hosts",
    "etcd": "hosts",
    "stop": "control",
    "resume": "control",
    "clone": "control",
    "verify": "verify",
    "replay": "verify",
    "export": "results",
    "report": "results",
    "trials": "profile",
    "plan": "plan",
    "simulate": "simulate",
}
"""Each command and the module with the function of that name, in the order of ``cerebro --help``."""


class _Commands(MutableMapping[str, Any]):
    """The commands by name. One is imported when it is asked for: all of them take more than a second."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name in _HOMES and name not in self._made:
            alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            alone.command(name)(getattr(import_module(f"cerebro_elastic.cli.{_HOMES[name]}"), name))
            self._made[name] = typer.main.get_command(alone)
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*_HOMES, *self._made]))

    def __len__(self) -> int:
        return len({*_HOMES, *self._made})


class _Group(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()


app = typer.Typer(
    name="cerebro",
    cls=_Group,
    help="Train many configurations by Model Hopper Parallelism: the data stay, the models hop.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _main(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        echo(__version__)
        raise typer.Exit
