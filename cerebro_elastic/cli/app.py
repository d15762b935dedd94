"""The commands. Each calls the package and prints its result for people or as JSON."""

from __future__ import annotations

import inspect
from collections import UserDict
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from cerebro_elastic.cli.commands import as_typer
from cerebro_elastic.cli.options import echo
from cerebro_elastic.errors import did_you_mean
from cerebro_elastic.system.version import __version__

_MODULES = {
    "init": "recipe",
    "check": "recipe",
    "plan": "plan",
    "prepare": "prepare",
    "run": "start",
    "status": "status",
    "ui": "serve",
    "runs": "runs",
    "stop": "control",
    "resume": "control",
    "add": "control",
    "extend": "start",
    "retry": "start",
    "test": "results",
    "verify": "results",
    "replay": "results",
    "export": "results",
    "report": "results",
    "rm": "runs",
    "join": "start",
    "drain": "control",
    "host": "start",
    "etcd": "serve",
    "ray": "start",
    "mcp": "serve",
    "doctor": "status",
}
"""The module of each command, which has a class of that name. The order is that of ``cerebro --help``."""


class _PlainFlags:
    """Typer's help writes ``<bool>`` behind a flag, which takes no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters


class _Commands(UserDict[str, Any]):
    """The commands by name. Each is imported on use: importing all takes more than a second."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(_MODULES))

    def __getitem__(self, name: str) -> Any:
        if super().__getitem__(name) is None:
            single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            kind = getattr(import_module(f"cerebro_elastic.cli.{_MODULES[name]}"), name.capitalize())
            single.command(name, cls=_Command, help=unwrapped(inspect.getdoc(kind)))(as_typer(kind))
            self[name] = typer.main.get_command(single)
        return super().__getitem__(name)


def unwrapped(text: str | None) -> str:
    """A docstring with each paragraph on one line, so that the terminal wraps it."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


class _Command(_PlainFlags, TyperCommand):
    pass


class _Group(_PlainFlags, TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands and not args[0].startswith("-"):
            ctx.fail(f"there is no command {args[0]!r}; {did_you_mean(args[0], self.commands)}")
        return super().resolve_command(ctx, args)


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
