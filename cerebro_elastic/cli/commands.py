"""A command as a class: its fields are its arguments and options, its docstring is its help."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, get_origin

import typer
from pydantic import BaseModel
from typer.models import ArgumentInfo, ParameterInfo

from cerebro_elastic.cli.options import Home, argument, config_ids, echo, option, run_ids
from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.arguments import checked
from cerebro_elastic.runs.verbs import Verb, option_of

if TYPE_CHECKING:
    from cerebro_elastic.runs.run import Run

_OF_CONFIGS = {"autocompletion": config_ids}
_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "config": _OF_CONFIGS,
    "configs": {**_OF_CONFIGS, "metavar": "CONFIG"},
    "like": _OF_CONFIGS,
    "hparams": {"metavar": "KEY=VALUE"},
    "budget": {"metavar": "KEY=VALUE"},
}
"""typer's settings for the fields of verbs; the fields of commands have their own."""


class Command(BaseModel):
    """What a command takes."""

    def __call__(self) -> None:
        """Do it."""
        raise NotImplementedError


class InPlace(Command):
    """A command about runs of a home, or of an etcd."""

    home: Home
    etcd: str | None = option(None, "HOST:PORT of an etcd; the variables CEREBRO_ETCD_* hold login and TLS.")

    @property
    def store(self) -> StoreSettings | None:
        """The settings of the etcd, if one is named."""
        return StoreSettings.at(self.etcd) if self.etcd else None


class OnRun(InPlace):
    """A command about a run."""

    run: str = argument(..., "Run id, or the run's folder.", autocompletion=run_ids)

    def opened(self) -> Run:
        """The run."""
        from cerebro_elastic.runs.run import Run

        return Run.open(self.run, home=self.home, store=self.store)


class OnLastRun(OnRun):
    """One that changes nothing: without a name it is about the run that changed last."""

    run: str = argument(
        "", "Run id, or the run's folder.", show_default="the run that changed last", autocompletion=run_ids
    )

    def opened(self) -> Run:
        """The run. If the command line does not name it, its name is shown."""
        from cerebro_elastic.runs.catalog import last_run
        from cerebro_elastic.runs.run import Run

        if self.run:
            return super().opened()
        if self.etcd is not None:
            raise RunError("name the run: without a name only the last one of a folder of runs is found")
        folder = last_run(self.home)
        echo(f"run {folder.run}, the one of {folder.path.parent} that changed last", err=True)
        return Run.open(folder.path)


def as_typer(kind: type[Command]) -> Callable[..., None]:
    """The command as a function, whose signature typer reads."""
    fields = kind.model_fields

    def command(**given: Any) -> None:
        values = {name: value for name, value in given.items() if value is not None}
        pairs = {
            name: dict(map(_pair, values[name])) for name in values if _takes_pairs(fields[name].annotation)
        }
        try:
            made = checked(kind, values | pairs)
        except RunError as error:  # the command line is wrong
            raise typer.BadParameter(str(error)) from error
        made()

    described = {name: _described(kind, name) for name in fields}
    # The arguments in their order, then the command's own options, then those of its bases.
    names = [name for name in fields if isinstance(described[name], ArgumentInfo)]
    names += [name for base in kind.__mro__ for name in inspect.get_annotations(base) if name in fields]
    parameters = [_parameter(kind, name, described[name]) for name in dict.fromkeys(names)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _described(kind: type[Command], name: str) -> ParameterInfo:
    """typer's settings for a field."""
    field = kind.model_fields[name]
    settings: dict[str, Any] = {"help": field.description}
    if isinstance(field.json_schema_extra, dict):  # of a command
        settings |= field.json_schema_extra
    elif issubclass(kind, Verb):
        settings |= {"argument": name in kind.words, "names": [option_of(name)], **_SETTINGS.get(name, {})}
    is_argument, names = settings.pop("argument", False), settings.pop("names", ())
    shown: ParameterInfo = (
        typer.Argument(**settings)
        if is_argument
        else typer.Option(*(names or [f"--{name.replace('_', '-')}"]), **settings)
    )
    return shown


def _parameter(kind: type[Command], name: str, described: ParameterInfo) -> inspect.Parameter:
    """A field in typer's form. An empty list or mapping stands for one that was not given."""
    field = kind.model_fields[name]
    default: Any = field.get_default(call_default_factory=True)
    annotation: Any = field.annotation
    if field.is_required():
        default = inspect.Parameter.empty
    elif default in ([], {}):
        default, annotation = None, (list[str] if _takes_pairs(annotation) else annotation) | None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[annotation, described]
    )


def _takes_pairs(annotation: Any) -> bool:
    return get_origin(annotation) is dict


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE, such as lr=0.01")
    return name, value
